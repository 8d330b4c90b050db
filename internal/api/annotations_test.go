package api_test

import (
	"net/http"
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
	r.ask(r.key("acme", access.Admin), http.MethodPost, "/api/v1/people", `{"people":1,"reason":"the approver is alone"}`).is(http.StatusOK)
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
	plan := r.ask(approver, http.MethodPost, "/api/v1/dead-letters/purge/plan", `{`+filter+`}`).is(http.StatusOK)
	if plan["letters"] != 1.0 || plan["held"] != 1.0 || plan["money"].(map[string]any)["USD"] != 1000.0 {
		t.Fatalf("%v", plan)
	}
	purge := func(body string) answer { return r.ask(approver, http.MethodPost, "/api/v1/dead-letters/purge", body) }
	purge(`{`+filter+`,"reason":"old","confirm":"2"}`).refused(http.StatusUnprocessableEntity, "invalid", "confirm")
	purge(`{`+filter+`,"reason":"old"}`).refused(http.StatusUnprocessableEntity, "invalid", "confirm")
	purge(`{"filter":{"error_typ":"http.refused"},"reason":"old","confirm":"1"}`).refused(http.StatusUnprocessableEntity, "invalid", "error_typ")
	purge(`{"filter":{},"reason":"old","confirm":"1"}`).refused(http.StatusUnprocessableEntity, "invalid", "filter")
	if done := purge(`{` + filter + `,"reason":"old","confirm":"1"}`).is(http.StatusOK); done["letters"] != 1.0 || done["held"] != 1.0 {
		t.Errorf("%v", done)
	}
	r.ask(auditor, http.MethodGet, "/api/v1/dead-letters/"+gone, "").refused(http.StatusNotFound, "not_found", "")
	r.ask(auditor, http.MethodGet, "/api/v1/runs/"+gone, "").is(http.StatusOK)
	if n := r.ask(auditor, http.MethodGet, "/api/v1/dead-letters/count?letter=open", "").is(http.StatusOK); n["total"] != 1.0 {
		t.Errorf("%v", n)
	}
	r.ask(operator, http.MethodPost, path+"/release", `{"reason":"settled in court"}`).is(http.StatusOK)
	r.ask(approver, http.MethodPost, "/api/v1/dead-letters/clear", `{"family":"settlement","reason":"x","confirm":"yes"}`).refused(http.StatusUnprocessableEntity, "invalid", "confirm")
	if plan := r.ask(approver, http.MethodPost, "/api/v1/dead-letters/clear/plan", `{"family":"settlement"}`).is(http.StatusOK); plan["letters"] != 1.0 {
		t.Errorf("%v", plan)
	}
	if done := r.ask(approver, http.MethodPost, "/api/v1/dead-letters/clear", `{"family":"settlement","reason":"the end","confirm":"settlement"}`).is(http.StatusOK); done["letters"] != 1.0 {
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
