package api_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/recourse-dev/recourse/internal/access"
	"github.com/recourse-dev/recourse/postadjudication/audit"
)

func TestLettersAreHeldMarkedCountedAndPurged(t *testing.T) {
	t.Parallel()
	r := newRig(t).work()
	held, gone := r.letter("acme", 1, `"refused"`), r.letter("acme", 2, `"refused"`)
	r.letter("other", 3, `"refused"`)
	operator, approver, auditor := r.key("acme", access.Operator), r.key("acme", access.Approver), r.key("acme", access.Auditor)
	lowered := r.ask(r.key("acme", access.Admin), http.MethodPost, "/api/v1/people", `{"people":1,"reason":"the approver is alone"}`).is(http.StatusAccepted)
	r.ask(approver, http.MethodPost, "/api/v1/bulk/"+lowered["plan_id"].(string)+"/run", `{"hash":"`+lowered["hash"].(string)+`"}`).is(http.StatusOK)
	path := "/api/v1/dead-letters/" + held
	r.ask(operator, http.MethodPost, path+"/release", `{"reason":"x"}`).refused(http.StatusConflict, "not_held", "")
	if d := r.ask(approver, http.MethodPost, path+"/hold", `{"reason":"in court"}`).is(http.StatusOK); d["held"] != true || d["hold_reason"] != "in court" {
		t.Errorf("%v", d)
	}
	r.ask(operator, http.MethodPost, path+"/hold", `{"reason":"x"}`).refused(http.StatusConflict, "held", "")
	r.ask(operator, http.MethodPost, path+"/mark", `{"reason":"x"}`).refused(http.StatusUnprocessableEntity, "invalid", "marks")
	if d := r.ask(operator, http.MethodPost, path+"/mark", `{"reason":"the account is closed","manual_review_required":true}`).is(http.StatusOK); d["manual_review_required"] != true {
		t.Errorf("%v", d)
	}
	if n := r.ask(auditor, http.MethodGet, "/api/v1/dead-letters/count?held=true&manual_review_required=true", "").is(http.StatusOK); n["total"] != 1.0 {
		t.Errorf("%v", n)
	}
	const filter = `"filter":{"letter":"open","error_type":"http.refused"}`
	purge := func(selection string) answer {
		return r.ask(operator, http.MethodPost, "/api/v1/bulk", `{"action":"purge","reason":"old",`+selection+`}`)
	}
	run := func(plan answer) map[string]any {
		made := plan.is(http.StatusCreated)
		r.ask(operator, http.MethodPost, "/api/v1/bulk/"+made["id"].(string)+"/run", `{"hash":"`+made["hash"].(string)+`"}`).refused(http.StatusForbidden, "role_missing", "")
		r.ask(approver, http.MethodPost, "/api/v1/bulk/"+made["id"].(string)+"/run", `{"hash":"`+strings.Repeat("0", 64)+`"}`).refused(http.StatusConflict, "plan_stale", "")
		r.ask(approver, http.MethodPost, "/api/v1/bulk/"+made["id"].(string)+"/run", `{"hash":"`+made["hash"].(string)+`"}`).is(http.StatusOK)
		r.waitFor("the plan is done", `SELECT state = 'done' FROM recourse.bulks WHERE id = $1`, made["id"])
		return r.ask(auditor, http.MethodGet, "/api/v1/bulk/"+made["id"].(string), "").is(http.StatusOK)["progress"].(map[string]any)
	}
	for _, role := range []string{approver, auditor, r.key("acme", access.Submitter)} {
		r.ask(role, http.MethodPost, "/api/v1/bulk", `{"action":"purge","reason":"old",`+filter+`}`).refused(http.StatusForbidden, "role_missing", "")
	}
	purge(`"filter":{"error_typ":"http.refused"}`).refused(http.StatusUnprocessableEntity, "invalid", "error_typ")
	purge(`"filter":{}`).refused(http.StatusUnprocessableEntity, "invalid", "filter")
	plan := purge(filter)
	if p := plan.is(http.StatusCreated); p["ready"] != 1.0 || p["refused"].(map[string]any)["held"] != 1.0 || p["money"].(map[string]any)["USD"] != 1000.0 {
		t.Fatalf("%v", p)
	}
	if done := run(plan); done["done"] != 1.0 || done["refused_by"].(map[string]any)["held"] != 1.0 {
		t.Errorf("%v", done)
	}
	r.ask(auditor, http.MethodGet, "/api/v1/dead-letters/"+gone, "").refused(http.StatusNotFound, "not_found", "")
	r.ask(auditor, http.MethodGet, "/api/v1/runs/"+gone, "").is(http.StatusOK)
	if n := r.ask(auditor, http.MethodGet, "/api/v1/dead-letters/count?letter=open", "").is(http.StatusOK); n["total"] != 1.0 {
		t.Errorf("%v", n)
	}
	r.ask(operator, http.MethodPost, path+"/release", `{"reason":"settled in court"}`).is(http.StatusOK)
	if done := run(purge(`"filter":{"family":"settlement"}`)); done["done"] != 1.0 {
		t.Errorf("%v", done)
	}
	if n := r.count(`SELECT count(*) FROM recourse.receipts WHERE tenant = 'acme' AND actor = 'user:approver@acme' AND subtype IN ('purged', 'hold-placed')`); n != 3 {
		t.Errorf("%d receipts", n)
	}
	if n := r.ask(r.key("other", access.Auditor), http.MethodGet, "/api/v1/dead-letters/count", "").is(http.StatusOK); n["total"] != 1.0 {
		t.Errorf("the other tenant has %v", n)
	}
	report, err := audit.Run(t.Context(), r.main.Service.AuditReader(), r.main.Service.AuditQuery())
	if err != nil || !report.OK() {
		t.Errorf("%v, %v", report, err)
	}
}

func TestAJobIsRetriedByAnyOfItsRuns(t *testing.T) {
	t.Parallel()
	r := newRig(t).work()
	operator := r.key("acme", access.Operator)
	first := r.letter("acme", 1, `"refused","refused","ok"`)
	second := r.ask(operator, http.MethodPost, "/api/v1/dead-letters/"+first+"/retry", `{"reason":"mended"}`).is(http.StatusCreated)
	if second["parent_run_id"] != first {
		t.Errorf("%v", second)
	}
	r.waitFor("it is dead again", `SELECT state = 'dead_lettered' FROM recourse.runs WHERE id = $1`, second["run_id"])
	third := r.ask(operator, http.MethodPost, "/api/v1/dead-letters/"+first+"/retry", `{"reason":"mended now"}`).is(http.StatusCreated)
	if third["parent_run_id"] != second["run_id"] {
		t.Errorf("%v", third)
	}
	r.waitFor("it settles", `SELECT state = 'succeeded' FROM recourse.runs WHERE id = $1`, third["run_id"])
}
