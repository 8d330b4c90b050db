package api_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/recourse-dev/recourse/internal/access"
	"github.com/recourse-dev/recourse/internal/app"
)

func TestATargetThatIsNotConfiguredIsNoTarget(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(o *app.Options) { o.Targets = []string{"north"} })
	submitter := r.key("acme", access.Submitter)
	to := func(target string, n int) string {
		return strings.Replace(adjudication(n, `"ok"`), `{`, `{"target":"`+target+`",`, 1)
	}
	send := func(body string) answer { return r.ask(submitter, http.MethodPost, "/api/v1/adjudications", body) }
	send(to("elsewhere", 1)).refused(http.StatusUnprocessableEntity, "invalid", "target")
	send(to("north", 2)).is(http.StatusCreated)
	list := r.ask(submitter, http.MethodPost, "/api/v1/adjudications/batch", `{"adjudications":[`+to("north", 3)+`,`+to("elsewhere", 4)+`]}`).is(http.StatusOK)
	items := list["results"].([]any)
	if list["accepted"] != 1.0 || items[1].(map[string]any)["problem"].(map[string]any)["status"] != 422.0 {
		t.Errorf("%v", list)
	}
	if n := r.count(`SELECT count(*) FROM recourse.cases WHERE kind = 'settlement'`); n != 2 {
		t.Errorf("%d cases", n)
	}
}
