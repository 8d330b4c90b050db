package api_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/recourse-dev/recourse/internal/access"
	"github.com/recourse-dev/recourse/postadjudication/audit"
)

// The planner can't run the plan, the person who runs it must send its hash, and the plan is
// executed once, each letter with its outcome.
func TestAPlanIsReadThenRunByAnotherAndExecutedOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t).work()
	operator, approver, auditor := r.key("acme", access.Operator), r.key("acme", access.Approver), r.key("acme", access.Auditor)
	first, second := r.letter("acme", 1, `"refused","ok"`), r.letter("acme", 2, `"refused","ok"`)
	r.letter("other", 3, `"refused","ok"`)
	plan := func(body string) answer { return r.ask(operator, http.MethodPost, "/api/v1/bulk", body) }
	for body, field := range map[string]string{
		`{"action":"fork","reason":"mended"}`:                                                   "filter",
		`{"action":"fork","reason":"mended","filter":{}}`:                                       "filter",
		`{"action":"fork","reason":"mended","filter":{"error_typ":"x"}}`:                        "error_typ",
		`{"action":"fork","reason":"mended","all":true,"filter":{"outcome":"release"}}`:         "all",
		`{"action":"fork","reason":"mended","filter":{"letter":"forked"}}`:                      "letter",
		`{"action":"fork","reason":"x","where":"error.typ == \"x\""}`:                           "where",
		`{"action":"fork","reason":"x","where":""}`:                                             "where",
		`{"action":"fork","reason":"x","filter":{"outcome":"release"},"where":null}`:            "where",
		`{"action":"fork","reason":"x","where":"held","all":true}`:                              "all",
		`{"action":"burn","reason":"mended","all":true}`:                                        "action",
		`{"action":"fork","all":true}`:                                                          "reason",
		`{"action":"fork","reason":"x","all":true,"manual_review_required":true}`:               "marks",
		`{"action":"fork","reason":"x","all":true,"policy":{"base_delay":"soon"}}`:              "policy.base_delay",
		`{"action":"fork","reason":"x","all":true,"parallel":65}`:                               "parallel",
		`{"action":"reconcile_by_lookup","reason":"x","all":true,"queue":"settlement:1"}`:       "queue",
		`{"action":"fork","reason":"x","filter":{"letter":"open","error_type":""}}`:             "error_type",
		`{"action":"fork","reason":"x","filter":{"min_attempts":3,"max_attempts":2},"limit":1}`: "max_attempts",
	} {
		plan(body).refused(http.StatusUnprocessableEntity, "invalid", field)
	}
	made := plan(`{"action":"fork","reason":"the account is open again","filter":{"error_type":"http.refused"}}`).is(http.StatusCreated)
	if made["state"] != "planned" || made["items"] != 2.0 || made["ready"] != 2.0 || made["money"].(map[string]any)["USD"] != 2000.0 || made["actor"] != "user:operator@acme" {
		t.Fatalf("%v", made)
	}
	path, hash := "/api/v1/bulk/"+made["id"].(string), made["hash"].(string)
	run := func(token, hash string) answer {
		return r.ask(token, http.MethodPost, path+"/run", `{"hash":"`+hash+`"}`)
	}
	for state, want := range map[string]int{"": 1, "?state=planned": 1, "?state=done": 0, "?state=planned&after=" + made["id"].(string): 0} {
		if listed := r.ask(auditor, http.MethodGet, "/api/v1/bulk"+state, "").is(http.StatusOK)["bulks"].([]any); len(listed) != want {
			t.Errorf("plans of %q: %v", state, listed)
		}
	}
	r.ask(auditor, http.MethodGet, "/api/v1/bulk?state=waiting", "").refused(http.StatusUnprocessableEntity, "invalid", "state")
	run(operator, hash).refused(http.StatusForbidden, "role_missing", "")
	run(approver, strings.Repeat("0", 64)).refused(http.StatusConflict, "plan_stale", "hash")
	run(approver, "0").refused(http.StatusUnprocessableEntity, "invalid", "hash")
	r.ask(r.key("other", access.Approver), http.MethodPost, path+"/run", `{"hash":"`+hash+`"}`).refused(http.StatusNotFound, "not_found", "")
	r.ask(operator, http.MethodPost, path+"/pause", `{"reason":"wait"}`).refused(http.StatusConflict, "bulk_state", "")
	if n := r.count(`SELECT count(*) FROM recourse.runs WHERE letter = 'open' AND tenant = 'acme'`); n != 2 {
		t.Errorf("%d letters are open", n)
	}
	// Another fork of one of the letters comes first.
	r.ask(operator, http.MethodPost, "/api/v1/dead-letters/"+second+"/fork", `{"reason":"mine"}`).is(http.StatusCreated)
	unwanted := plan(`{"action":"fork","reason":"again","all":true}`).is(http.StatusCreated)["id"].(string)
	for token, want := range map[string]int{operator: 0, approver: 2} {
		if listed := r.ask(token, http.MethodGet, "/api/v1/bulk?waiting_for_me=true", "").is(http.StatusOK)["bulks"].([]any); len(listed) != want {
			t.Errorf("%d plans wait, want %d", len(listed), want)
		}
	}
	r.ask(operator, http.MethodPost, "/api/v1/bulk/"+unwanted+"/refuse", `{"reason":"no"}`).refused(http.StatusForbidden, "role_missing", "")
	if refused := r.ask(approver, http.MethodPost, "/api/v1/bulk/"+unwanted+"/refuse", `{"reason":"once is enough"}`).is(http.StatusOK); refused["state"] != "refused" || refused["changed_by"] != "user:approver@acme" {
		t.Errorf("%v", refused)
	}
	r.ask(operator, http.MethodPost, "/api/v1/bulk/"+unwanted+"/cancel", `{"reason":"mine"}`).refused(http.StatusConflict, "bulk_state", "")
	review := r.ask(approver, http.MethodGet, path, "").is(http.StatusOK)["review"].(map[string]any)
	if cause := review["causes"].([]any)[0].(map[string]any); cause["items"] != 1.0 || cause["money"].(map[string]any)["USD"] != 1000.0 || review["ready"] != 1.0 || review["money"].(map[string]any)["USD"] != 1000.0 || len(review["largest_items"].([]any)) != 1 || len(review["changed"].(map[string]any)) != 1 || len(review["differs"].([]any)) != 0 {
		t.Errorf("%v", review)
	}
	if b := run(approver, hash).is(http.StatusOK); b["started_by"] != "user:approver@acme" {
		t.Errorf("%v", b)
	}
	r.waitFor("the plan is done", `SELECT state = 'done' FROM recourse.bulks WHERE id = $1`, made["id"])
	ended := r.ask(auditor, http.MethodGet, path, "").is(http.StatusOK)["progress"].(map[string]any)
	if ended["done"] != 1.0 || ended["plan_stale"] != 1.0 || ended["pending"] != 0.0 {
		t.Errorf("%v", ended)
	}
	if again := run(approver, hash).is(http.StatusOK); again["state"] != "done" {
		t.Errorf("%v", again)
	}
	items := r.ask(auditor, http.MethodGet, path+"/items?outcome=done", "").is(http.StatusOK)["items"].([]any)
	if len(items) != 1 || items[0].(map[string]any)["run_id"] != first || items[0].(map[string]any)["new_run"] == nil {
		t.Errorf("%v", items)
	}
	r.ask(auditor, http.MethodGet, path+"/items?outcome=lucky", "").refused(http.StatusUnprocessableEntity, "invalid", "outcome")
	r.ask(auditor, http.MethodGet, path+"/items?after=x", "").refused(http.StatusUnprocessableEntity, "invalid", "after")
	r.ask(auditor, http.MethodGet, "/api/v1/bulk?after=x", "").refused(http.StatusUnprocessableEntity, "invalid", "after")
	if all := r.ask(auditor, http.MethodGet, "/api/v1/bulk", "").is(http.StatusOK)["bulks"].([]any); len(all) != 2 {
		t.Errorf("%v", all)
	}
	if none := r.ask(r.key("other", access.Auditor), http.MethodGet, "/api/v1/bulk", "").is(http.StatusOK)["bulks"].([]any); len(none) != 0 {
		t.Errorf("%v", none)
	}
	r.waitFor("both settle", `SELECT count(*) = 2 FROM recourse.runs WHERE tenant = 'acme' AND state = 'succeeded'`)
	report, err := audit.Run(t.Context(), r.main.Service.AuditReader(), r.main.Service.AuditQuery())
	if err != nil || !report.OK() {
		t.Errorf("%v, %v", report, err)
	}
}

// A plan may select its letters by a condition. It reports how many letters were scanned, and
// the condition is part of its hash.
func TestAPlanMayCarryACondition(t *testing.T) {
	t.Parallel()
	r := newRig(t).work()
	operator := r.key("acme", access.Operator)
	r.letter("acme", 1, `"refused"`)
	second := r.letter("acme", 2, `"refused"`)
	plan := func(where string) map[string]any {
		return r.ask(operator, http.MethodPost, "/api/v1/bulk", `{"action":"hold","reason":"in court","filter":{"error_type":"http.refused"},"where":"`+where+`"}`).is(http.StatusCreated)
	}
	made := plan("run_id == '" + second + "'")
	if made["items"] != 1.0 || made["scanned"] != 2.0 || made["asked"].(map[string]any)["where"] != "run_id == '"+second+"'" {
		t.Errorf("%v", made)
	}
	if other := plan("run_id == '" + second + "' && !held"); other["items"] != 1.0 || other["hash"] == made["hash"] {
		t.Errorf("%v", other)
	}
	items := r.ask(operator, http.MethodGet, "/api/v1/bulk/"+made["id"].(string)+"/items", "").is(http.StatusOK)["items"].([]any)
	if len(items) != 1 || items[0].(map[string]any)["run_id"] != second || items[0].(map[string]any)["subject"] != "txr_2" {
		t.Errorf("%v", items)
	}
}

// A plan without letters is refused and leaves no plan and no receipt.
func TestAPlanOfNothingIsRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t).work()
	r.letter("acme", 1, `"refused"`)
	operator := r.key("acme", access.Operator)
	const kept = `SELECT (SELECT count(*) FROM recourse.bulks) + (SELECT count(*) FROM recourse.bulk_items) + (SELECT count(*) FROM recourse.bulk_counts) + (SELECT count(*) FROM recourse.receipts WHERE case_id NOT IN (SELECT case_id FROM recourse.runs))`
	before := r.count(kept)
	for body, undecided := range map[string]any{
		`{"action":"fork","reason":"mended","filter":{"currency":"JPY"}}`:         nil,
		`{"action":"purge","reason":"old","where":"attempts > 100"}`:              nil,
		`{"action":"hold","reason":"odd","where":"1 / (attempts - 1) > 0"}`:       1.0,
		`{"action":"fork","reason":"mended","filter":{"family":"x"},"limit":100}`: nil,
	} {
		a := r.ask(operator, http.MethodPost, "/api/v1/bulk", body)
		a.refused(http.StatusUnprocessableEntity, "nothing_selected", "")
		if got := a.object()["undecided"]; got != undecided {
			t.Errorf("%s: %s", body, a.text)
		}
	}
	r.ask(operator, http.MethodPost, "/api/v1/cases/free", `{"reason":"withdrawn","reference":"mail 3","states":["partially-settled"]}`).refused(http.StatusUnprocessableEntity, "nothing_selected", "")
	if after := r.count(kept); after != before {
		t.Errorf("%d rows, %d before", after, before)
	}
}

func TestAPlanThatWasCancelledDoesNotRun(t *testing.T) {
	t.Parallel()
	r := newRig(t).work()
	run := r.letter("acme", 1, `"refused"`)
	made := r.ask(r.key("acme", access.Operator), http.MethodPost, "/api/v1/bulk", `{"action":"hold","reason":"in court","all":true}`).is(http.StatusCreated)
	path := "/api/v1/bulk/" + made["id"].(string)
	if b := r.ask(r.key("acme", access.Approver), http.MethodPost, path+"/cancel", `{"reason":"settled"}`).is(http.StatusOK); b["state"] != "cancelled" || b["changed_by"] != "user:approver@acme" {
		t.Errorf("%v", b)
	}
	r.ask(r.key("acme", access.Approver), http.MethodPost, path+"/run", `{"hash":"`+made["hash"].(string)+`"}`).refused(http.StatusConflict, "bulk_state", "")
	r.ask(r.key("acme", access.Auditor), http.MethodPost, path+"/cancel", `{"reason":"x"}`).refused(http.StatusForbidden, "role_missing", "")
	if d := r.ask(r.key("acme", access.Operator), http.MethodPost, "/api/v1/dead-letters/"+run+"/hold", `{"reason":"x"}`).is(http.StatusOK); d["held"] != true {
		t.Errorf("%v", d)
	}
}
