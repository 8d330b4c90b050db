package api_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/internal/access"
	"github.com/recourse-dev/recourse/internal/app"
	"github.com/recourse-dev/recourse/postadjudication"
)

// madeBy returns a token of a principal, whose key maker made.
func (r *rig) madeBy(maker, principal string, roles ...access.Role) string {
	r.t.Helper()
	token, _, err := r.main.Service.As("acme", maker).Keys.Create(context.Background(), postadjudication.NewKey{Principal: principal, Roles: roles, Reason: "test"})
	if err != nil {
		r.t.Fatal(err)
	}
	return token
}

const executed = `{"finding":"executed","moved":1000,"currency":"USD","contradicts_record":true,"reason":"the bank says so","reference":"stmt-7"}`

// Each combination over HTTP: which principal may run a plan of user:ada, by which maker's key,
// and how many people are required. The plans are cancelled first, so that running one only
// reports whether it is allowed, and moves nothing.
func TestWhoMayRunWhatAnotherPlannedOverHTTP(t *testing.T) {
	t.Parallel()
	r := newRig(t).work()
	run := r.letter("acme", 1, `"refused"`)
	r.madeBy("root", "user:zoe", access.Admin)
	ada := r.madeBy("user:zoe", "user:ada", access.Operator, access.Approver)
	runners := []struct {
		name, token string
		two, one    string // code of the answer to run-bulk where two people are required, and where one is
	}{
		{"who planned it", ada, "second_person_required", "bulk_state"},
		{"another key of theirs", r.madeBy("user:ada", "user:ada", access.Approver), "second_person_required", "bulk_state"},
		{"another", r.madeBy("user:root", "user:ben", access.Approver), "bulk_state", "bulk_state"},
		{"whose key they made", r.madeBy("user:ada", "user:cem", access.Approver), "second_person_required", "bulk_state"},
		{"whose key one made whose key they made", r.madeBy("user:cem", "user:dee", access.Approver), "second_person_required", "bulk_state"},
		{"whose key the maker of who planned it made", r.madeBy("user:zoe", "user:gus", access.Approver), "second_person_required", "bulk_state"},
		{"one name in another case", r.madeBy("user:root", "user:Ada", access.Approver), "second_person_required", "bulk_state"},
		{"a robot", r.madeBy("user:root", "robot:ada", access.Approver), "second_person_required", "second_person_required"},
		{"a service", r.madeBy("user:root", "service:desk", access.Approver), "second_person_required", "second_person_required"},
		{"an operator", r.key("acme", access.Operator), "role_missing", "role_missing"},
		{"an admin", r.key("acme", access.Admin), "role_missing", "role_missing"},
		{"an approver of another tenant", r.key("other", access.Approver), "not_found", "not_found"},
	}
	plans := map[string]func() (id, hash string){
		"finding": func() (string, string) {
			p := r.ask(ada, http.MethodPost, "/api/v1/dead-letters/"+run+"/reconcile", executed)
			if p.status == http.StatusOK { // one person is enough: the action was done
				t.Fatalf("%s", p.text)
			}
			o := p.is(http.StatusAccepted)
			return o["plan_id"].(string), o["hash"].(string)
		},
		"purge": func() (string, string) { return r.plan(ada, "/bulk", `{"action":"purge","all":true,"reason":"old"}`) },
		"fork":  func() (string, string) { return r.plan(ada, "/bulk", `{"action":"fork","all":true,"reason":"mended"}`) },
		"free": func() (string, string) {
			return r.plan(ada, "/cases/free", `{"all":true,"reason":"withdrawn","reference":"mail 3"}`)
		},
		"hold": func() (string, string) {
			return r.plan(ada, "/bulk", `{"action":"hold","all":true,"reason":"in court"}`)
		},
	}
	for _, people := range []int{2, 1} {
		if people == 1 {
			r.ask(ada, http.MethodPost, "/api/v1/people", `{"people":1,"reason":"we are one"}`).refused(http.StatusForbidden, "role_missing", "")
			admin := r.keyOf("user:sue", time.Time{}, access.Admin, access.Approver)
			o := r.ask(admin, http.MethodPost, "/api/v1/people", `{"people":1,"reason":"we are one"}`).is(http.StatusAccepted)
			path, hash := "/api/v1/bulk/"+o["plan_id"].(string)+"/run", `{"hash":"`+o["hash"].(string)+`"}`
			r.ask(admin, http.MethodPost, path, hash).refused(http.StatusConflict, "second_person_required", "")
			r.ask(r.madeBy("user:root", "user:ben", access.Approver), http.MethodPost, path, hash).is(http.StatusOK)
			if set := r.ask(admin, http.MethodGet, "/api/v1/people", "").is(http.StatusOK); set["people"] != 1.0 || set["actor"] != "user:ben" {
				t.Errorf("%v", set)
			}
			delete(plans, "finding")
		}
		for action, plan := range plans {
			id, hash := plan()
			r.ask(ada, http.MethodPost, "/api/v1/bulk/"+id+"/cancel", `{"reason":"test"}`).is(http.StatusOK)
			for _, by := range runners {
				want := map[int]string{2: by.two, 1: by.one}[people]
				if action == "hold" && want == "second_person_required" { // one person is enough
					want = "bulk_state"
				}
				got := r.ask(by.token, http.MethodPost, "/api/v1/bulk/"+id+"/run", `{"hash":"`+hash+`"}`)
				if !strings.Contains(got.text, `"code":"`+want+`"`) {
					t.Errorf("%s run by %s, people %d: %d %s, want %s", action, by.name, people, got.status, got.text, want)
				}
			}
		}
	}
	if n := r.count(`SELECT count(*) FROM recourse.receipts WHERE subtype = 'access-refused' AND actor = 'user:cem' AND body LIKE '%second_person_required%'`); n != 4 {
		t.Errorf("%d receipts of what user:cem was refused", n)
	}
	if history := r.ask(r.key("acme", access.Auditor), http.MethodGet, "/api/v1/people/history", "").is(http.StatusOK)["versions"].([]any); len(history) != 1 {
		t.Errorf("%v", history)
	}
}

// plan makes a plan and returns its id and hash.
func (r *rig) plan(token, path, body string) (id, hash string) {
	r.t.Helper()
	made := r.ask(token, http.MethodPost, "/api/v1"+path, body).is(http.StatusCreated)
	return made["id"].(string), made["hash"].(string)
}

// A finding that money was moved is planned, and another principal runs the plan. Repeated
// under its Idempotency-Key it is planned once.
func TestAFindingIsRunByAnotherPrincipal(t *testing.T) {
	t.Parallel()
	r := newRig(t).work()
	run := r.letter("acme", 1, `"refused"`)
	operator, approver := r.key("acme", access.Operator), r.key("acme", access.Approver)
	path := "/api/v1/dead-letters/" + run + "/reconcile"
	planned := r.ask(operator, http.MethodPost, path, executed, "Idempotency-Key", "k1")
	o := planned.is(http.StatusAccepted)
	if o["code"] != "second_person_required" || planned.header.Get("Location") != "/api/v1/bulk/"+o["plan_id"].(string) || len(o["hash"].(string)) != 64 {
		t.Fatalf("%v", planned)
	}
	if again := r.ask(operator, http.MethodPost, path, executed, "Idempotency-Key", "k1"); again.text != planned.text {
		t.Errorf("%s", again.text)
	}
	if n := r.count(`SELECT count(*) FROM recourse.bulks`); n != 1 {
		t.Errorf("%d plans", n)
	}
	b := r.ask(approver, http.MethodPost, "/api/v1/bulk/"+o["plan_id"].(string)+"/run", `{"hash":"`+o["hash"].(string)+`"}`).is(http.StatusOK)
	if b["started_by"] != "user:approver@acme" || b["people"] != 2.0 || b["self_declared"] != nil {
		t.Errorf("%v", b)
	}
	r.waitFor("the case is settled", `SELECT progression = 'settled' FROM recourse.cases WHERE kind = 'settlement'`)
	if n := r.count(`SELECT count(*) FROM recourse.receipts WHERE subtype = 'reconciled' AND actor = 'user:approver@acme' AND body LIKE '%"planned_by":"user:operator@acme"%' AND body NOT LIKE '%self_declared%'`); n != 1 {
		t.Errorf("%d receipts name both", n)
	}
}

// A thousand attempts to run one's own plan leave one receipt.
func TestThatASecondPersonIsRequiredLeavesOneReceiptADayAndPlan(t *testing.T) {
	t.Parallel()
	r := newRig(t).work()
	run := r.letter("acme", 1, `"refused"`)
	ada := r.madeBy("user:root", "user:ada", access.Operator, access.Approver)
	for range 2 {
		o := r.ask(ada, http.MethodPost, "/api/v1/dead-letters/"+run+"/reconcile", executed).is(http.StatusAccepted)
		for range 200 {
			r.ask(ada, http.MethodPost, "/api/v1/bulk/"+o["plan_id"].(string)+"/run", `{"hash":"`+o["hash"].(string)+`"}`).refused(http.StatusConflict, "second_person_required", "")
		}
		if n := r.count(`SELECT count(*) FROM recourse.receipts WHERE subtype = 'access-refused' AND actor = 'user:ada' AND body::json->'payload'->>'bulk' = $1`, o["plan_id"]); n != 1 {
			t.Errorf("%d receipts of plan %s", n, o["plan_id"])
		}
	}
	if n := r.count(`SELECT count(*) FROM recourse.receipts WHERE subtype = 'access-refused'`); n != 2 {
		t.Errorf("%d receipts", n)
	}
}

// Refusals by gates and by roles are counted together: a key that is refused too often leaves
// no more receipts, and gets 429.
func TestRefusalsOfAKeyAreBoundedWhoeverRefuses(t *testing.T) {
	t.Parallel()
	r := newRig(t).work()
	run, operator := r.letter("acme", 1, `"refused"`), r.key("acme", access.Operator)
	recorded, often := 0, map[bool]int{}
	for i := range 400 {
		gate := i%2 == 0
		path, body, status := "/api/v1/runs/"+run+"/cancel", fmt.Sprintf(`{"reason":"reason %d"}`, i), http.StatusConflict
		if !gate {
			path, body, status = "/api/v1/keys", `{}`, http.StatusForbidden
		}
		a := r.ask(operator, http.MethodPost, path, body)
		if a.status == http.StatusTooManyRequests {
			a.refused(http.StatusTooManyRequests, "too_many_failures", "")
			often[gate]++
			continue
		}
		a.is(status)
		recorded++
	}
	if often[true] == 0 || often[false] == 0 || recorded < 120 {
		t.Errorf("refused too often by %v, %d recorded", often, recorded)
	}
	if n := r.count(`SELECT count(*) FROM recourse.receipts WHERE subtype IN ('refused', 'access-refused') AND actor = 'user:operator@acme'`); n != recorded {
		t.Errorf("%d receipts of %d refusals", n, recorded)
	}
}

// An approver runs their own plan alone only with an incident and a reason.
func TestBreakGlassOverHTTP(t *testing.T) {
	t.Parallel()
	r := newRig(t).work()
	run := r.letter("acme", 1, `"refused"`)
	ada, operator := r.madeBy("user:root", "user:ada", access.Operator, access.Approver), r.madeBy("user:root", "user:ada", access.Operator)
	o := r.ask(ada, http.MethodPost, "/api/v1/dead-letters/"+run+"/reconcile", executed).is(http.StatusAccepted)
	path, hash := "/api/v1/bulk/"+o["plan_id"].(string)+"/run", o["hash"].(string)
	body := func(more string) string { return `{"hash":"` + hash + `"` + more + `}` }
	r.ask(ada, http.MethodPost, path, body("")).refused(http.StatusConflict, "second_person_required", "")
	r.ask(ada, http.MethodPost, path, body(`,"break_glass":"INC-7"`)).refused(http.StatusUnprocessableEntity, "invalid", "reason")
	r.ask(ada, http.MethodPost, path, body(`,"reason":"alone"`)).refused(http.StatusUnprocessableEntity, "invalid", "reason")
	r.ask(operator, http.MethodPost, path, body(`,"break_glass":"INC-7","reason":"alone"`)).refused(http.StatusForbidden, "role_missing", "")
	if b := r.ask(ada, http.MethodPost, path, body(`,"break_glass":"INC-7","reason":"alone"`)).is(http.StatusOK); b["break_glass"] != "INC-7" || b["people"] != 1.0 {
		t.Errorf("%v", b)
	}
	r.waitFor("the case is settled", `SELECT progression = 'settled' FROM recourse.cases WHERE kind = 'settlement'`)
}

// Where no keys are required persons can't be told apart, so one person is enough, and the
// receipt says so. A caller with a key still counts as one of two persons.
func TestOnePersonDoesWhereNoKeysAreNeeded(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(o *app.Options) { o.RequireKeys = false }).work()
	run, other := r.letter("acme", 1, `"refused"`), r.letter("acme", 2, `"refused"`)
	r.ask(r.key("acme", access.Operator), http.MethodPost, "/api/v1/dead-letters/"+other+"/reconcile", executed).is(http.StatusAccepted)
	r.ask("", http.MethodPost, "/api/v1/dead-letters/"+run+"/reconcile", executed, "Recourse-Tenant", "acme").is(http.StatusOK)
	if n := r.count(`SELECT count(*) FROM recourse.receipts WHERE subtype = 'reconciled' AND actor = 'local' AND body LIKE '%"people":1%'`); n != 1 {
		t.Errorf("%d receipts say that one person did it", n)
	}
}

// Cases are listed page by page, and their reserved money is freed by two people.
func TestCasesAreListedAndFreedOverHTTP(t *testing.T) {
	t.Parallel()
	r := newRig(t).work()
	for n := 1; n <= 3; n++ {
		r.letter("acme", n, `"refused"`)
	}
	auditor, operator, approver := r.key("acme", access.Auditor), r.key("acme", access.Operator), r.key("acme", access.Approver)
	page := r.ask(auditor, http.MethodGet, "/api/v1/cases?state=dispute-ready,settled&reserved=true&limit=2", "").is(http.StatusOK)
	if page["total"] != 3.0 || page["more"] != true || len(page["cases"].([]any)) != 2 || page["money"].(map[string]any)["USD"].(map[string]any)["reserved"] != 3000.0 {
		t.Fatalf("%v", page)
	}
	if none := r.ask(auditor, http.MethodGet, "/api/v1/cases?without_letter=true", "").is(http.StatusOK); none["total"] != 0.0 {
		t.Errorf("each has an open letter: %v", none)
	}
	rest := r.ask(auditor, http.MethodGet, "/api/v1/cases?reserved=true&after="+page["next"].(string), "").is(http.StatusOK)
	last := rest["cases"].([]any)[0].(map[string]any)
	if len(rest["cases"].([]any)) != 1 || last["transaction_receipt_id"] != "txr_3" || last["waits_for"] != "dead_letter" || fmt.Sprint(last["may"]) != "[fork lookup reconcile hold purge free adjudicate]" {
		t.Errorf("%v", rest)
	}
	for body, field := range map[string]string{
		`{"all":true,"reason":"x"}`: "reference", `{"all":true,"reference":"x"}`: "reason", `{"reason":"x","reference":"y"}`: "filter",
		`{"all":true,"transaction_receipt_id":"txr_1","reason":"x","reference":"y"}`: "filter", `{"states":["settled"],"reason":"x","reference":"y"}`: "states[0]",
	} {
		r.ask(operator, http.MethodPost, "/api/v1/cases/free", body).refused(http.StatusUnprocessableEntity, "invalid", field)
	}
	id, hash := r.plan(operator, "/cases/free", `{"transaction_receipt_id":"txr_3","reason":"withdrawn","reference":"mail 3"}`)
	r.ask(approver, http.MethodPost, "/api/v1/bulk/"+id+"/run", `{"hash":"`+hash+`"}`).is(http.StatusOK)
	r.waitFor("it is freed", `SELECT count(*) = 1 FROM recourse.cases WHERE kind = 'settlement' AND progression = 'review-needed' AND reserved = 0`)
	if left := r.ask(auditor, http.MethodGet, "/api/v1/cases?reserved=true", "").is(http.StatusOK); left["total"] != 2.0 {
		t.Errorf("%v", left)
	}
}
