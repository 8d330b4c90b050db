package api_test

import (
	"net/http"
	"testing"

	"github.com/recourse-dev/recourse/internal/access"
)

func TestTheAnalysisOfDeadLettersIsOfTheirTenantAlone(t *testing.T) {
	t.Parallel()
	r := newRig(t).work()
	auditor := r.key("acme", access.Auditor)
	r.letter("acme", 1, `"refused"`)
	r.letter("acme", 2, `"refused"`)
	r.letter("acme", 3, `"retryable"`)
	r.letter("other", 4, `"refused"`)
	get := func(path string) answer { return r.ask(auditor, http.MethodGet, "/api/v1/dead-letters/"+path, "") }
	all := get("analysis").is(http.StatusOK)
	if all["letters"] != 3.0 || all["open"] != 3.0 || all["at_risk"].(map[string]any)["USD"] != 3000.0 || all["groups"] != 2.0 || len(all["times"].([]any)) != 30 {
		t.Errorf("%v", all)
	}
	if refused := get("analysis?error_type=http.refused&step=hour&steps=2").is(http.StatusOK); refused["letters"] != 2.0 || len(refused["times"].([]any)) != 2 {
		t.Errorf("%v", refused)
	}
	page := get("groups?limit=1").is(http.StatusOK)
	group := page["groups"].([]any)[0].(map[string]any)
	if page["total"] != 2.0 || page["more"] != true || group["letters"] != 2.0 || group["error_type"] != "http.refused" {
		t.Errorf("%v", page)
	}
	if sample := group["sample_run_id"]; sample == "" || sample == nil {
		t.Errorf("no sample: %v", group)
	}
	if rest := get("groups?limit=1&after=" + page["next"].(string)).is(http.StatusOK); len(rest["groups"].([]any)) != 1 || rest["more"] != false {
		t.Errorf("%v", rest)
	}
	if s := get("stats").is(http.StatusOK); s["letters"] != 3.0 || s["died_last_hour"] != 3.0 || s["at_risk"].(map[string]any)["USD"] != 3000.0 || s["reserved"].(map[string]any)["open_letters"].(map[string]any)["money"].(map[string]any)["USD"] != 3000.0 {
		t.Errorf("%v", s)
	}
	platform := r.key("*", access.Platform)
	each := r.ask(platform, http.MethodGet, "/api/v1/dead-letters/stats/by-tenant?error_type=http.refused", "").is(http.StatusOK)["tenants"].([]any)
	for i, want := range []struct {
		tenant  string
		letters float64
		atRisk  float64
	}{{"acme", 2, 2000}, {"other", 1, 1000}} {
		if got := each[i].(map[string]any); len(each) != 2 || got["tenant"] != want.tenant || got["letters"] != want.letters || got["at_risk"].(map[string]any)["USD"] != want.atRisk || got["oldest"] != nil {
			t.Errorf("%v", each)
		}
	}
	get("stats/by-tenant").refused(http.StatusForbidden, "role_missing", "")
	get("analysis?step=fortnight").refused(http.StatusUnprocessableEntity, "invalid", "step")
	get("analysis?steps=0").refused(http.StatusUnprocessableEntity, "invalid", "steps")
	get("analysis?error_typ=x").refused(http.StatusUnprocessableEntity, "invalid", "error_typ")
	get("groups?after=forged").refused(http.StatusUnprocessableEntity, "invalid", "after")
	get("stats?older_than=yore").refused(http.StatusUnprocessableEntity, "invalid", "older_than")
}
