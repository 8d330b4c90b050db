package api_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/recourse-dev/recourse/internal/access"
)

// A file of returned payments is planned over HTTP by an operator, run by another person, and known when it is sent again.
func TestReturnedPaymentsAreRecordedOverHTTP(t *testing.T) {
	t.Parallel()
	r := newRig(t).work()
	r.ask(r.key("acme", access.Submitter), http.MethodPost, "/api/v1/adjudications", adjudication(1, `"ok"`)).is(http.StatusCreated)
	r.waitFor("the case is settled", `SELECT count(*) = 1 FROM recourse.cases WHERE progression = 'settled'`)
	operator, approver := r.key("acme", access.Operator), r.key("acme", access.Approver)
	const file = `{"reason":"account closed","returns":[{"transaction_receipt_id":"txr_1","reference":"R-1","amount":{"minor":400,"currency":"USD"},"returned_at":"2026-11-20T09:30:00Z"},` +
		`{"transaction_receipt_id":"txr_none","reference":"R-2","amount":{"minor":1,"currency":"USD"}}]}`
	r.ask(approver, http.MethodPost, "/api/v1/returns", file).refused(http.StatusForbidden, "role_missing", "")
	planned := r.ask(operator, http.MethodPost, "/api/v1/returns", file).is(http.StatusOK)
	plan := planned["plan"].(map[string]any)
	if refused := planned["refused"].([]any); len(refused) != 1 || refused[0].(map[string]any)["reference"] != "R-2" || plan["people"] != 2.0 || plan["money"].(map[string]any)["USD"] != 400.0 {
		t.Errorf("%v", planned)
	}
	run := "/api/v1/bulk/" + plan["id"].(string) + "/run"
	hash := `{"hash":"` + plan["hash"].(string) + `"}`
	r.ask(operator, http.MethodPost, run, hash).refused(http.StatusForbidden, "role_missing", "")
	r.ask(approver, http.MethodPost, run, hash).is(http.StatusOK)
	r.waitFor("the plan is done", `SELECT bool_and(state = 'done') FROM recourse.bulks`)
	c := r.ask(operator, http.MethodGet, "/api/v1/transactions/txr_1", "").is(http.StatusOK)
	if c["settlement_progression_status"] != "dispute-ready" || c["returned"] != 400.0 || c["released"] != 1000.0 || c["escrow_committed"] != 600.0 {
		t.Errorf("%v", c)
	}
	again := r.ask(operator, http.MethodPost, "/api/v1/returns", file).is(http.StatusOK)
	if known := again["known"].([]any); again["plan"] != nil || len(known) != 1 || known[0] != "R-1" {
		t.Errorf("again: %v", again)
	}
	list := r.ask(operator, http.MethodGet, "/api/v1/cases?state=dispute-ready", "").is(http.StatusOK)
	if money := list["money"].(map[string]any)["USD"].(map[string]any); money["returned"] != 400.0 {
		t.Errorf("%v", list)
	}
	r.ask(operator, http.MethodPost, "/api/v1/returns", strings.Replace(file, `"USD"`, `"XXX"`, 1)).refused(http.StatusUnprocessableEntity, "invalid", "")
}
