package api_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/internal/access"
	"github.com/recourse-dev/recourse/internal/app"
)

// Only an admin sets policies: an operator can't give a fork, alone or in a plan, more attempts
// than the policy of new runs has, or ten.
func TestAnOperatorGivesAForkNoMoreAttemptsThanThePolicy(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(o *app.Options) { o.TimeLimit = 5 * time.Second }).work() // a refused call has a known outcome
	operator, admin := r.key("acme", access.Operator), r.key("acme", access.Admin)
	run := r.letter("acme", 1, `"refused"`)
	fork := "/api/v1/dead-letters/" + run + "/fork"
	body := func(attempts string) string {
		return `{"reason":"x","policy":{"max_retry_attempts":` + attempts + `}}`
	}
	plan := func(attempts, which string) answer {
		return r.ask(operator, http.MethodPost, "/api/v1/bulk", strings.Replace(body(attempts), "{", `{"action":"fork",`+which+`,`, 1))
	}
	refusedHere := func(a answer, most string) {
		t.Helper()
		p := a.refused(http.StatusForbidden, "beyond_reach", "policy.max_retry_attempts")
		if needs := p["needs_one_of"].([]any); len(needs) != 1 || needs[0] != "admin" || !strings.Contains(a.text, "must be "+most+" at most") {
			t.Errorf("%s", a.text)
		}
	}
	refusedHere(r.ask(operator, http.MethodPost, fork, body("11")), "10")
	refusedHere(r.ask(operator, http.MethodPost, fork, body("10000")), "10")
	refusedHere(plan("11", `"all":true`), "10")
	refusedHere(plan("11", `"filter":{"family":"settlement"}`), "10")
	plan("10", `"all":true`).is(http.StatusCreated)
	r.ask(admin, http.MethodPost, "/api/v1/policies/settlement", `{"policy":{"max_retry_attempts":12},"reason":"slow service"}`).is(http.StatusOK)
	refusedHere(plan("13", `"filter":{"family":"settlement"}`), "12")
	plan("12", `"filter":{"family":"settlement"}`).is(http.StatusCreated)
	refusedHere(r.ask(operator, http.MethodPost, fork, body("13")), "12")
	if n := r.count(`SELECT count(*) FROM recourse.runs`); n != 1 {
		t.Errorf("%d runs", n)
	}
	if n := r.count(`SELECT count(*) FROM recourse.receipts WHERE run_id = $1 AND subtype = 'refused' AND body LIKE '%"asked_for":"fork"%' AND body LIKE '%"refused_by":"beyond_reach"%'`, run); n != 3 {
		t.Errorf("%d receipts of refused forks", n)
	}
	if n := r.count(`SELECT count(*) FROM recourse.receipts WHERE subtype = 'access-refused' AND body LIKE '%"asked_for":"bulk-plan"%' AND body LIKE '%"refused_by":"beyond_reach"%'`); n != 3 {
		t.Errorf("%d receipts of refused plans", n)
	}
	r.ask(operator, http.MethodPost, "/api/v1/dead-letters/00000000-0000-7000-8000-000000000000/fork", body("11")).refused(http.StatusNotFound, "not_found", "")
	both := r.keyNamed("acme", "user:both", access.Operator, access.Admin)
	r.ask(both, http.MethodPost, fork, body("13")).is(http.StatusCreated)
}
