package api_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/recourse-dev/recourse/internal/access"
	"github.com/recourse-dev/recourse/internal/app"
	"github.com/recourse-dev/recourse/internal/testkit"
)

// An operator takes a dead letter from its failure to settled, each step with a key of the
// role for it.
func TestADeadLetterIsFoundForkedAndSettled(t *testing.T) {
	t.Parallel()
	r := newRig(t).work()
	run := r.letter("acme", 1, `"refused","ok"`)
	operator, auditor := r.key("acme", access.Operator), r.key("acme", access.Auditor)
	list := r.ask(auditor, http.MethodGet, "/api/v1/dead-letters?letter=open&outcome_class=not_executed&min_attempts=1&currency=USD&held=false", "").is(http.StatusOK)
	if letters := list["letters"].([]any); len(letters) != 1 || letters[0].(map[string]any)["run_id"] != run || list["more"] != false {
		t.Fatalf("%v", list)
	}
	seen := r.ask(auditor, http.MethodGet, "/api/v1/dead-letters/"+run, "").is(http.StatusOK)
	attempts := seen["attempts"].([]any)
	if seen["letter"].(map[string]any)["can_fork"] != true || len(attempts) != 1 || seen["case"].(map[string]any)["settlement_progression_status"] != "dispute-ready" {
		t.Fatalf("%v", seen)
	}
	first := attempts[0].(map[string]any)
	if first["attempt"] != 1.0 || first["ended_by"] != "dead-lettered" || first["outcome_class"] != "not_executed" || first["error"].(map[string]any)["type"] == nil {
		t.Errorf("%v", first)
	}
	forked := r.ask(operator, http.MethodPost, "/api/v1/dead-letters/"+run+"/fork", `{"reason":"mended","policy":{"max_retry_attempts":2}}`)
	fork := forked.is(http.StatusCreated)
	next := fork["run_id"].(string)
	if forked.header.Get("Location") != "/api/v1/runs/"+next || fork["parent_run_id"] != run {
		t.Errorf("%v, %v", forked.header, fork)
	}
	again := r.ask(operator, http.MethodPost, "/api/v1/dead-letters/"+run+"/fork", `{"reason":"me too"}`).refused(http.StatusConflict, "not_open", "")
	if again["run_id"] != run || again["letter"] != "forked" || again["holder_run_id"] != next {
		t.Errorf("%v", again)
	}
	r.waitFor("the fork settles", `SELECT state = 'succeeded' FROM recourse.runs WHERE id = $1`, next)
	status := r.ask(r.key("acme", access.Submitter), http.MethodGet, "/api/v1/runs/"+next, "").is(http.StatusOK)
	if status["state"] != "succeeded" || status["policy"].(map[string]any)["max_retry_attempts"] != 2.0 {
		t.Errorf("%v", status)
	}
	caseID := fork["case_id"].(string)
	if c := r.ask(auditor, http.MethodGet, "/api/v1/cases/"+caseID, "").is(http.StatusOK); c["settlement_progression_status"] != "settled" || len(c["runs"].([]any)) != 2 {
		t.Errorf("%v", c)
	}
	if c := r.ask(auditor, http.MethodGet, "/api/v1/transactions/txr_1", "").is(http.StatusOK); c["case_id"] != caseID {
		t.Errorf("%v", c)
	}
	r.checkReceipts(auditor, caseID, "user:operator@acme")
	r.ask(operator, http.MethodPost, "/api/v1/runs/"+next+"/cancel", `{"reason":"too late"}`).refused(http.StatusConflict, "ended", "")
	r.ask(operator, http.MethodPost, "/api/v1/dead-letters/"+next+"/fork", `{"reason":"x"}`).refused(http.StatusConflict, "not_a_letter", "")
}

// checkReceipts reads the receipts of a case page by page and verifies them; who must be the
// actor of one.
func (r *rig) checkReceipts(token, caseID, who string) {
	r.t.Helper()
	seen, actors := 0.0, map[string]bool{}
	for more := true; more; {
		page := r.ask(token, http.MethodGet, fmt.Sprintf("/api/v1/cases/%s/receipts?limit=2&after=%.0f&verify=true", caseID, seen), "").is(http.StatusOK)
		for _, one := range page["receipts"].([]any) {
			receipt := one.(map[string]any)
			if seen++; receipt["sequence"] != seen || receipt["link"] == "" {
				r.t.Errorf("%v after %v", receipt, seen)
			}
			actors[receipt["actor"].(string)] = true
		}
		if v := page["verification"].(map[string]any); v["ok"] != true || v["sequence"].(float64) < seen {
			r.t.Errorf("%v", v)
		}
		more = page["more"].(bool)
	}
	if seen < 5 || !actors[who] {
		r.t.Errorf("%v receipts of %v", seen, actors)
	}
}

func TestAnUnknownOutcomeIsReconciledByLookupOrFinding(t *testing.T) {
	t.Parallel()
	broken := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) }))
	defer broken.Close()
	r := newRig(t, func(o *app.Options) {
		o.Embedded, o.EscrowURL, o.KeyLifetime = false, broken.URL, app.Lifetime{Given: true}
	}).work()
	operator := r.key("acme", access.Operator)
	run := r.letter("acme", 1, `"ok"`) // without a key lifetime nothing is called again
	path := "/api/v1/dead-letters/" + run
	seen := r.ask(operator, http.MethodGet, path, "").is(http.StatusOK)["letter"].(map[string]any)
	if seen["can_fork"] != false || seen["refused_by"] != "reconcile_first" || seen["outcome_class"] != "unknown" {
		t.Errorf("%v", seen)
	}
	r.ask(operator, http.MethodPost, path+"/fork", `{"reason":"try"}`).refused(http.StatusConflict, "reconcile_first", "")
	r.ask(operator, http.MethodPost, path+"/reconcile", `{"lookup":true}`).refused(http.StatusConflict, "reconcile_first", "")
	for body, field := range map[string]string{
		`{"reason":"x","reference":"y"}`:                                                    "finding",
		`{"finding":"perhaps","reason":"x","reference":"y"}`:                                "finding",
		`{"finding":"executed","reason":"x","reference":"y"}`:                               "moved",
		`{"finding":"executed","moved":0,"reason":"x","reference":"y"}`:                     "moved",
		`{"finding":"executed","moved":1.5,"reason":"x","reference":"y"}`:                   "moved",
		`{"finding":"not_executed","reason":"x"}`:                                           "reference",
		`{"finding":"not_executed","reference":"x"}`:                                        "reason",
		`{"finding":"not_executed","reason":"x","reference":"y","moved":5}`:                 "moved",
		`{"finding":"executed","reason":"x","reference":"y","moved":5}`:                     "other_amount",
		`{"finding":"executed","reason":"x","reference":"y","moved":1000,"currency":"JPY"}`: "currency",
		`{"finding":"not_executed","reason":"x","reference":"y","currency":"EUR"}`:          "currency",
		`{"lookup":true,"reason":"x"}`:                                                      "lookup",
		`{"lookup":true,"other_amount":true}`:                                               "lookup",
		`{"lookup":true,"contradicts_record":true}`:                                         "lookup",
		`{"lookup":true,"call_outstanding":true}`:                                           "lookup",
		`{"finding":"not_executed","reason":"x","reference":"y","by":"z"}`:                  "by",
	} {
		r.ask(operator, http.MethodPost, path+"/reconcile", body).refused(http.StatusUnprocessableEntity, "invalid", field)
	}
	r.ask(operator, http.MethodPost, path+"/reconcile", `{"finding":"not_executed","reason":"asked them","reference":"ticket 7"}`).refused(http.StatusConflict, "call_outstanding", "")
	caseID := r.ask(operator, http.MethodPost, path+"/reconcile", `{"finding":"not_executed","call_outstanding":true,"reason":"asked them","reference":"ticket 7"}`).is(http.StatusOK)
	if caseID["unknown_open"] != 0.0 {
		t.Errorf("%v", caseID)
	}
	r.ask(operator, http.MethodPost, path+"/fork", `{"reason":"now it may"}`).is(http.StatusCreated)
}

func TestManyAdjudicationsAreAnsweredOneByOne(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	submitter := r.key("acme", access.Submitter)
	first := r.ask(submitter, http.MethodPost, "/api/v1/adjudications", adjudication(1, `"ok"`))
	made := first.is(http.StatusCreated)
	if made["reply"] != "created" || first.header.Get("Location") != "/api/v1/runs/"+made["run_id"].(string) {
		t.Errorf("%v %v", made, first.header)
	}
	if same := r.ask(submitter, http.MethodPost, "/api/v1/adjudications", adjudication(1, `"ok"`)).is(http.StatusOK); same["reply"] != "deduplicated" || same["run_id"] != made["run_id"] {
		t.Errorf("%v", same)
	}
	other := strings.Replace(adjudication(1, `"ok"`), `"minor":1000`, `"minor":999`, 1)
	if p := r.ask(submitter, http.MethodPost, "/api/v1/adjudications", other).refused(http.StatusConflict, "retry_key_mismatch", ""); p["run_id"] != made["run_id"] {
		t.Errorf("%v", p)
	}
	items := []string{
		adjudication(2, `"ok"`), adjudication(1, `"ok"`), other, `{"transaction_receipt_id":"txr_3"}`, `7`,
		strings.Replace(adjudication(4, `"ok"`), "{", `{"tenant":"other",`, 1), strings.Replace(adjudication(5, `"ok"`), `"minor":1000`, `"minor":1e3`, 1),
	}
	all := r.ask(submitter, http.MethodPost, "/api/v1/adjudications/batch", `{"adjudications":[`+strings.Join(items, ",")+`]}`).is(http.StatusOK)
	results := all["results"].([]any)
	if all["accepted"] != 2.0 || len(results) != len(items) {
		t.Fatalf("%v", all)
	}
	for i, want := range []string{"created", "deduplicated", "retry_key_mismatch", "invalid", "invalid", "invalid", "invalid"} {
		item := results[i].(map[string]any)
		code, _ := item["reply"].(string)
		if p, ok := item["problem"].(map[string]any); ok {
			code = p["code"].(string)
		}
		if code != want || item["accepted"] != (i < 2) {
			t.Errorf("item %d: %v, want %s", i, item, want)
		}
	}
	if n := r.count(`SELECT count(*) FROM recourse.runs`); n != 2 {
		t.Errorf("%d runs", n)
	}
	for body, field := range map[string]string{
		`{"adjudications":[]}`: "adjudications", `{}`: "adjudications", `{"adjudications":[1],"more":1}`: "", `{"adjudications":{}}`: "",
		`{"adjudications":[` + strings.TrimSuffix(strings.Repeat("{},", 1001), ",") + `]}`: "adjudications",
	} {
		a := r.ask(submitter, http.MethodPost, "/api/v1/adjudications/batch", body)
		a.text = a.text[:min(len(a.text), 2000)]
		a.refused(http.StatusUnprocessableEntity, "invalid", field)
	}
	if n := r.count(`SELECT count(*) FROM recourse.receipts WHERE subtype = 'submitted' AND actor <> 'user:submitter@acme'`); n != 0 {
		t.Errorf("%d receipts of another actor", n)
	}
}

// No request shows anything of one tenant to another.
func TestAnotherTenantsIsNotThere(t *testing.T) {
	t.Parallel()
	r := newRig(t).work()
	run := r.letter("acme", 1, `"refused"`)
	caseID := r.ask(r.key("acme", access.Auditor), http.MethodGet, "/api/v1/runs/"+run, "").is(http.StatusOK)["case_id"].(string)
	made := r.ask(r.key("acme", access.Admin), http.MethodPost, "/api/v1/keys", `{"principal":"user:ada","roles":["auditor"],"reason":"test"}`).is(http.StatusCreated)
	r.ask(r.key("acme", access.Operator), http.MethodPost, "/api/v1/breakers/open", `{"reason":"test","target":"elsewhere"}`).is(http.StatusOK)
	if err := r.main.Service.DrainEvents(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{
		"/runs/" + run, "/cases/" + caseID, "/cases/" + caseID + "/receipts?verify=true", "/dead-letters/" + run, "/transactions/txr_1",
	} {
		r.ask(r.key("other", access.Auditor), http.MethodGet, "/api/v1"+path, "").refused(http.StatusNotFound, "not_found", "")
		r.ask(r.key("acme", access.Auditor), http.MethodGet, "/api/v1"+path, "").is(http.StatusOK)
	}
	for path, list := range map[string]string{"/dead-letters": "letters", "/events": "events", "/breakers": "breakers"} {
		for tenant, some := range map[string]bool{"acme": true, "other": false} {
			if n := len(r.ask(r.key(tenant, access.Auditor), http.MethodGet, "/api/v1"+path, "").is(http.StatusOK)[list].([]any)); (n > 0) != some {
				t.Errorf("%s has %d %s", tenant, n, list)
			}
		}
	}
	for path, body := range map[string]string{
		"/runs/" + run + "/cancel": `{"reason":"x"}`, "/dead-letters/" + run + "/fork": `{"reason":"x"}`,
		"/dead-letters/" + run + "/reconcile": `{"finding":"not_executed","reason":"x","reference":"y"}`,
	} {
		r.ask(r.key("other", access.Operator), http.MethodPost, "/api/v1"+path, body).refused(http.StatusNotFound, "not_found", "")
	}
	r.ask(r.key("other", access.Admin), http.MethodDelete, "/api/v1/keys/"+made["prefix"].(string)+"?reason=x", "").refused(http.StatusNotFound, "not_found", "")
	for _, k := range r.ask(r.key("other", access.Admin), http.MethodGet, "/api/v1/keys", "").is(http.StatusOK)["keys"].([]any) {
		if k.(map[string]any)["tenant"] != "other" {
			t.Errorf("%v", k)
		}
	}
}

// A request that is not understood is refused, naming the field, and changes nothing.
func TestWhatIsNotUnderstoodIsRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	keys := map[string]string{}
	for _, role := range access.Roles() {
		keys[string(role)] = r.key("acme", role)
	}
	big := strings.Repeat("x", 70<<10)
	for _, tc := range []struct {
		role, method, path, body string
		status                   int
		code, field              string
	}{
		{"auditor", "GET", "/dead-letters?limit=0", "", 422, "invalid", "limit"},
		{"auditor", "GET", "/dead-letters?limit=1001", "", 422, "invalid", "limit"},
		{"auditor", "GET", "/dead-letters?limit=many", "", 422, "invalid", "limit"},
		{"auditor", "GET", "/dead-letters?standing=open", "", 422, "invalid", "standing"},
		{"auditor", "GET", "/dead-letters?letter=opne", "", 422, "invalid", "letter"},
		{"auditor", "GET", "/dead-letters?letter=", "", 422, "invalid", "letter"},
		{"auditor", "GET", "/dead-letters?letter=open&letter=forked", "", 422, "invalid", "letter"},
		{"auditor", "GET", "/dead-letters?died_from=yesterday", "", 422, "invalid", "died_from"},
		{"auditor", "GET", "/dead-letters?older_than=soon", "", 422, "invalid", "older_than"},
		{"auditor", "GET", "/dead-letters?min_attempts=-1", "", 422, "invalid", "min_attempts"},
		{"auditor", "GET", "/dead-letters?min_attempts=3&max_attempts=2", "", 422, "invalid", "max_attempts"},
		{"auditor", "GET", "/dead-letters?held=perhaps", "", 422, "invalid", "held"},
		{"auditor", "GET", "/dead-letters?reason_code=bad", "", 422, "invalid", "reason_code"},
		{"auditor", "GET", "/dead-letters?sort=random", "", 422, "invalid", "sort"},
		{"auditor", "GET", "/dead-letters?after=forged", "", 422, "invalid", "after"},
		{"auditor", "GET", "/dead-letters?%zz", "", 400, "malformed", ""},
		{"auditor", "GET", "/dead-letters/none", "", 422, "invalid", "run"},
		{"auditor", "GET", "/events?after=-1", "", 422, "invalid", "after"},
		{"auditor", "GET", "/events?wait=26", "", 422, "invalid", "wait"},
		{"auditor", "GET", "/events/stream?from=1", "", 422, "invalid", "from"},
		{"auditor", "GET", "/runs/1", "", 422, "invalid", "run"},
		{"auditor", "GET", "/cases?state=closed", "", 422, "invalid", "state[0]"},
		{"auditor", "GET", "/cases/" + uuid.NewString() + "/receipts?after=x", "", 422, "invalid", "after"},
		{"auditor", "GET", "/cases/" + uuid.NewString() + "/receipts", "", 404, "not_found", ""},
		{"auditor", "GET", "/frobnicate", "", 404, "no_such_path", ""},
		{"auditor", "PATCH", "/breakers", "", 405, "method_not_allowed", ""},
		{"operator", "POST", "/breakers/open", "", 400, "malformed", ""},
		{"operator", "POST", "/breakers/open", `{"reason":"x"`, 400, "malformed", ""},
		{"operator", "POST", "/breakers/open", `{"reason":"x"}{}`, 400, "malformed", ""},
		{"operator", "POST", "/breakers/open", `[]`, 400, "malformed", ""},
		{"operator", "POST", "/breakers/open", `{"reason":"x","reason":"y"}`, 400, "malformed", "reason"},
		{"operator", "POST", "/breakers/open", `{"reason":"x","why":"y"}`, 422, "invalid", "why"},
		{"operator", "POST", "/breakers/open", `{"reason":"x","Reason":"y"}`, 422, "invalid", "Reason"},
		{"operator", "POST", "/breakers/open", `{"Reason":"y"}`, 422, "invalid", "reason"},
		{"operator", "POST", "/breakers/open", `{"reason":"x\ud800"}`, 400, "malformed", "reason"},
		{"operator", "POST", "/bulk", `{"action":"fork","reason":"x","filter":{"outcome":"release","Outcome":"refund"}}`, 422, "invalid", "Outcome"},
		{"submitter", "POST", "/adjudications", strings.Replace(adjudication(1, `"ok"`), "{", `{"Outcome":"refund",`, 1), 422, "invalid", "Outcome"},
		{"submitter", "POST", "/adjudications", strings.Replace(adjudication(1, `"ok"`), `"minor"`, `"minor":1,"Minor"`, 1), 422, "invalid", "amount.Minor"},
		{"submitter", "POST", "/adjudications/batch", `{"Adjudications":[` + adjudication(1, `"ok"`) + `]}`, 422, "invalid", ""},
		{"admin", "POST", "/keys", `{"principal":"user:p","roles":["auditor"],"Roles":["admin"],"reason":"x"}`, 422, "invalid", "Roles"},
		{"admin", "POST", "/rules/night", `{"reason":"x","rule":{"enabled":false,"Enabled":true,"all":true,"delay":"1h","max_replays":2}}`, 422, "invalid", "rule.Enabled"},
		{"operator", "POST", "/breakers/open", `{}`, 422, "invalid", "reason"},
		{"operator", "POST", "/breakers/open", `{"reason":""}`, 422, "invalid", "reason"},
		{"operator", "POST", "/breakers/open", `{"reason":null}`, 422, "invalid", "reason"},
		{"operator", "POST", "/breakers/open", `{"reason":"a\nb"}`, 422, "invalid", "reason"},
		{"operator", "POST", "/breakers/open", `{"reason":"` + big + `"}`, 413, "too_large", ""},
		{"operator", "POST", "/breakers/release", `{"reason":"x"}`, 409, "breaker_not_open", ""},
		{"submitter", "POST", "/adjudications", `{"payload":"` + big + `"}`, 413, "too_large", ""},
		{"submitter", "POST", "/adjudications", strings.Replace(adjudication(1, `"ok"`), "{", `{"payload":{"card":"4111 1111 1111 1111"},`, 1), 422, "invalid", "payload.card"},
		{"submitter", "POST", "/adjudications", strings.Replace(adjudication(1, `"ok"`), `"release"`, `"both"`, 1), 422, "invalid", "outcome"},
		{"submitter", "POST", "/adjudications", strings.Replace(adjudication(1, `"ok"`), "{", `{"target":"4111.1111.1111.1111",`, 1), 422, "invalid", "target"},
		{"submitter", "POST", "/adjudications", strings.Replace(adjudication(1, `"ok"`), "{", `{"payload":{"token":99},`, 1), 422, "invalid", "payload.token"},
		{"submitter", "POST", "/adjudications", strings.Replace(adjudication(1, `"ok"`), "{", `{"4111111111111111":1,`, 1), 422, "invalid", "[card]"},
		{"admin", "POST", "/keys", `{"principal":"user:4111111111111111","roles":["admin"],"reason":"x"}`, 422, "invalid", "principal"},
		{"admin", "POST", "/keys", `{"principal":"user:p","roles":[],"reason":"x"}`, 422, "invalid", "roles"},
		{"admin", "POST", "/keys", `{"principal":"user:p","roles":["root"],"reason":"x"}`, 422, "invalid", "roles[0]"},
		{"admin", "POST", "/keys", `{"principal":"user:p","roles":["admin","admin"],"reason":"x"}`, 422, "invalid", "roles"},
		{"admin", "POST", "/keys", `{"principal":"user:p","roles":["admin"],"reason":"x","expires_at":"2020-01-01T00:00:00Z"}`, 422, "invalid", "expires_at"},
		{"admin", "POST", "/keys", `{"principal":"user:p","roles":["admin"],"reason":"x","tenant":"other"}`, 422, "invalid", "tenant"},
		{"admin", "DELETE", "/keys/aaaaaaaaaaaa", "", 422, "invalid", "reason"},
		{"admin", "POST", "/policies/settlement", `{"policy":{"base_delay":"soon"},"reason":"x"}`, 422, "invalid", "policy.base_delay"},
		{"admin", "POST", "/policies/settlement", `{"policy":{"on_exhaustion":"discard"},"reason":"x"}`, 422, "invalid", "policy.on_exhaustion"},
		{"admin", "POST", "/policies/none", `{"policy":{},"reason":"x"}`, 404, "unknown_family", ""},
	} {
		r.ask(keys[tc.role], tc.method, "/api/v1"+tc.path, tc.body).refused(tc.status, tc.code, tc.field)
	}
	if a := r.ask(keys["operator"], "POST", "/api/v1/breakers/open", `{"reason":"x"}`, "Content-Type", "text/plain"); a.refused(415, "unsupported_media_type", "") == nil {
		t.Error("no problem")
	}
	r.ask(keys["operator"], "POST", "/api/v1/breakers/open", `{"reason":"x"}`, "Idempotency-Key", "ticket-4111 1111 1111 1111").refused(422, "invalid", "Idempotency-Key")
	if a := r.ask(keys["auditor"], "PATCH", "/api/v1/breakers", ""); a.header.Get("Allow") != "GET, HEAD" {
		t.Errorf("%v", a.header)
	}
	if n := r.count(`SELECT (SELECT count(*) FROM recourse.runs) + (SELECT count(*) FROM recourse.circuit_breakers) + (SELECT count(*) FROM recourse.keys) - 6 + (SELECT count(*) FROM recourse.policies)`); n != 0 {
		t.Errorf("%d rows were changed", n)
	}
}

func TestLettersAreReadPageByPage(t *testing.T) {
	t.Parallel()
	r := newRig(t).work()
	runs := map[string]bool{}
	for i := range 5 {
		runs[r.letter("acme", i+1, `"refused"`)] = true
	}
	auditor := r.key("acme", access.Auditor)
	cursor, pages := "", 0
	for more := true; more; pages++ {
		page := r.ask(auditor, http.MethodGet, "/api/v1/dead-letters?limit=2&sort=oldest"+cursor, "").is(http.StatusOK)
		for _, l := range page["letters"].([]any) {
			if run := l.(map[string]any)["run_id"].(string); !runs[run] {
				t.Errorf("%s is repeated or unknown", run)
			} else {
				delete(runs, run)
			}
		}
		next, _ := page["next"].(string)
		cursor, more = "&after="+url.QueryEscape(next), page["more"].(bool)
		if more { // of this list only
			r.ask(auditor, http.MethodGet, "/api/v1/dead-letters?limit=2&sort=newest"+cursor, "").refused(422, "invalid", "after")
			r.ask(r.key("other", access.Auditor), http.MethodGet, "/api/v1/dead-letters?limit=2&sort=oldest"+cursor, "").refused(422, "invalid", "after")
		}
	}
	if len(runs) != 0 || pages != 3 {
		t.Errorf("%d letters were not listed on %d pages", len(runs), pages)
	}
}

func TestAPolicyIsSetForNewRuns(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	admin := r.key("acme", access.Admin)
	set := r.ask(admin, http.MethodPost, "/api/v1/policies/settlement", `{"policy":{"max_retry_attempts":5,"base_delay":"40ms"},"reason":"slow service","if_version":0}`).is(http.StatusOK)
	if set["version"] != 1.0 || set["actor"] != "user:admin@acme" {
		t.Errorf("%v", set)
	}
	r.ask(admin, http.MethodPost, "/api/v1/policies/settlement", `{"policy":{},"reason":"x","if_version":0}`).refused(http.StatusConflict, "policy_version", "")
	answer := r.ask(r.key("acme", access.Auditor), http.MethodGet, "/api/v1/policies/settlement/history", "").is(http.StatusOK)["versions"].([]any)
	if v := answer[0].(map[string]any); len(answer) != 1 || v["version"] != 1.0 || v["reason"] != "slow service" || v["receipt_id"] == "" {
		t.Errorf("%v", answer)
	}
	if none := r.ask(admin, http.MethodGet, "/api/v1/policies/settlement/history?after=1", "").is(http.StatusOK)["versions"].([]any); len(none) != 0 {
		t.Errorf("%v", none)
	}
	list := r.ask(r.key("acme", access.Operator), http.MethodGet, "/api/v1/policies", "")
	var got struct {
		Policies []struct {
			Family string
			Policy struct {
				Attempts int `json:"max_retry_attempts"`
			}
		}
	}
	if err := json.Unmarshal([]byte(list.text), &got); err != nil || len(got.Policies) == 0 || got.Policies[0].Policy.Attempts != 5 {
		t.Errorf("%v %s", err, list.text)
	}
	const reset = "/api/v1/policies/settlement/reset"
	r.ask(admin, http.MethodPost, reset, `{}`).refused(http.StatusUnprocessableEntity, "invalid", "reason")
	r.ask(admin, http.MethodPost, reset, `{"reason":"x","if_version":7}`).refused(http.StatusConflict, "policy_version", "")
	r.ask(admin, http.MethodPost, "/api/v1/policies/none/reset", `{"reason":"x"}`).refused(http.StatusNotFound, "unknown_family", "")
	r.ask(r.key("acme", access.Operator), http.MethodPost, reset, `{"reason":"x"}`).refused(http.StatusForbidden, "role_missing", "")
	was := r.ask(admin, http.MethodPost, reset, `{"reason":"it is fast again","if_version":1}`).is(http.StatusOK)
	if was["version"] != 2.0 || was["as_configured"] != true || was["policy"].(map[string]any)["max_retry_attempts"] != 3.0 {
		t.Errorf("%v", was)
	}
}

// If another transaction has a row locked for too long the answer is 503 with Retry-After, and
// nothing is done.
func TestARowThatIsLockedElsewhereIsToBeAskedForAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	ask := map[string]func() answer{
		"policy": func() answer {
			return r.ask(r.key("acme", access.Admin), http.MethodPost, "/api/v1/policies/settlement", `{"policy":{"max_retry_attempts":5},"reason":"x"}`)
		},
		"breaker": func() answer {
			return r.ask(r.key("acme", access.Operator), http.MethodPost, "/api/v1/breakers/open", `{"reason":"x"}`)
		},
	}
	for name, do := range ask {
		if a := do(); a.status != http.StatusOK {
			t.Fatalf("%s: %d %s", name, a.status, a.text)
		}
	}
	unlock := testkit.LockTables(t, r.db, `recourse.policies, recourse.circuit_breakers IN EXCLUSIVE MODE`)
	for name, do := range ask {
		a := do()
		if a.refused(http.StatusServiceUnavailable, "busy", ""); a.header.Get("Retry-After") != "1" {
			t.Errorf("%s: %v", name, a.header)
		}
	}
	unlock()
	for name, do := range ask {
		if a := do(); a.status != http.StatusOK {
			t.Errorf("%s: %d %s", name, a.status, a.text)
		}
	}
}
