package api_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/recourse-dev/recourse/internal/access"
	"github.com/recourse-dev/recourse/internal/app"
)

// A repeated submission is answered by the status of its run: 200 if nothing has to be done, 409
// if a person has to act or has acted.
func TestAnAdjudicationThatIsSentAgainIsAnsweredByWhatBecameOfIt(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	submitter, operator := r.key("acme", access.Submitter), r.key("acme", access.Operator)
	send := func(body string) answer { return r.ask(submitter, http.MethodPost, "/api/v1/adjudications", body) }
	second := func(body string) string {
		return strings.Replace(body, `"outcome"`, `"generation":2,"outcome"`, 1)
	}
	cancelled := send(adjudication(1, `"ok"`)).is(http.StatusCreated)["run_id"].(string)
	r.ask(operator, http.MethodPost, "/api/v1/runs/"+cancelled+"/cancel", `{"reason":"a fraud"}`).is(http.StatusOK)
	if p := send(adjudication(1, `"ok"`)).refused(http.StatusConflict, "cancelled", ""); p["run_id"] != cancelled || p["cancelled_by"] != "user:operator@acme" || p["reason"] != "a fraud" {
		t.Errorf("%v", p)
	}
	next := send(second(adjudication(1, `"ok"`))).is(http.StatusCreated)["run_id"]
	if next == cancelled {
		t.Errorf("the same run %s", next)
	}
	if v := send(adjudication(1, `"ok"`)).is(http.StatusOK); v["reply"] != "superseded" || v["run_id"] != cancelled || v["state"] != "cancelled" || v["settlement"].(map[string]any)["generation"] != 2.0 {
		t.Errorf("%v", v)
	}

	r.work()
	send(adjudication(2, `"ok"`)).is(http.StatusCreated)
	r.waitFor("it settles", `SELECT EXISTS (SELECT FROM recourse.cases WHERE subject = 'txr_2' AND progression = 'settled')`)
	v := send(adjudication(2, `"ok"`)).is(http.StatusOK)
	if s := v["settlement"].(map[string]any); v["reply"] != "already_executed" || s["moved"] != 1000.0 || s["released"] != 1000.0 || s["currency"] == "" || s["settlement_progression_status"] != "settled" {
		t.Errorf("%v", v)
	}
	send(second(adjudication(2, `"ok"`))).refused(http.StatusConflict, "case_ended", "")

	list := r.ask(submitter, http.MethodPost, "/api/v1/adjudications/batch", `{"adjudications":[`+strings.Join([]string{
		adjudication(1, `"ok"`), adjudication(2, `"ok"`), second(adjudication(2, `"ok"`)),
	}, ",")+`]}`).is(http.StatusOK)
	for i, want := range []string{"superseded", "already_executed", "case_ended"} {
		if item := list["results"].([]any)[i].(map[string]any); item["reply"] != want || item["accepted"] != (i < 2) {
			t.Errorf("%v, want %s", item, want)
		}
	}
	if list["accepted"] != 2.0 {
		t.Errorf("%v", list["accepted"])
	}
}

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
