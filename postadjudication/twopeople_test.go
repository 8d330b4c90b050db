package postadjudication

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/access"
	"github.com/recourse-dev/recourse/postadjudication/casestatus"
	"github.com/recourse-dev/recourse/postadjudication/deadletter"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/internal/casework"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/settlement"
)

// secondPerson returns the plan that an action which takes two people leaves.
func (r *rig) secondPerson(err error) Bulk {
	r.t.Helper()
	var second *SecondPersonError
	if !errors.As(err, &second) || second.Code() != "second_person_required" || second.Plan.State != BulkPlanned || second.Plan.People != 2 || second.Plan.Hash == "" {
		r.t.Fatalf("no second person is asked for: %v", err)
	}
	return second.Plan
}

// A person who states alone that money was moved has only planned it; another one starts it, and
// the receipt names both.
func TestAFindingOfExecutedTakesTwoPeople(t *testing.T) {
	t.Parallel()
	r := newRig(t).startWorkers()
	ctx := context.Background()
	letter := r.deadLetter(1, func(c escrow.Call) escrow.Answer { r.escrow.pay(c, c.Amount.Minor); return refused() })
	before := r.count(`SELECT last_seq FROM recourse.cases WHERE id = $1`, letter.Case.String())
	_, err := r.Service.As("acme", "user:ada").DeadLetters.Reconcile(ctx, letter.Run, paidFinding)
	plan := r.secondPerson(err)
	if f := plan.Spec.Finding; plan.Action != BulkFinding || f == nil || *f != (PlannedFinding{Class: escrow.Executed, Moved: 1000, Reference: "stmt-7", Transaction: release(1).TransactionReceiptID}) || plan.Items != 1 || plan.Ready != 1 || plan.Money["EUR"] != 1000 {
		t.Errorf("%+v", plan)
	}
	var second *SecondPersonError
	if _, err := r.As("acme", "user:ada").Bulk.Run(ctx, plan.ID, plan.Hash); !errors.As(err, &second) || second.Because == "" {
		t.Errorf("the author starts it: %v", err)
	}
	if now := r.count(`SELECT last_seq FROM recourse.cases WHERE id = $1`, letter.Case.String()); now != before {
		t.Errorf("the case has %d receipts, and had %d", now, before)
	}
	if b := r.runPlan(plan); b.Progress.Done != 1 || b.People != 2 || !b.SelfDeclared {
		t.Errorf("%+v", b)
	}
	if c := r.caseOf(release(1)); c.Progression != settlement.Settled || c.Released != 1000 || c.Reserved != 0 {
		t.Errorf("%+v", c)
	}
	payloads := r.payloadsOf(letter, receipts.Reconciled)
	if len(payloads) != 1 || payloads[0].PlannedBy != "user:ada" || payloads[0].Bulk != plan.ID.String() || !payloads[0].SelfDeclared || payloads[0].People != 0 || payloads[0].FindingReference != "stmt-7" || payloads[0].Moved != 1000 {
		t.Errorf("%+v", payloads)
	}
	r.checkReceiptNamesPlan(letter, plan, receipts.Reconciled)
	r.checkPlanReceipts(plan, "user:ada none to planned", "user:bob planned to running", "system:bulk running to done")
	r.mustAudit()
}

// A plan of a case that has changed since is not executed.
func TestAFindingIsStaleOnceItsCaseHasMoved(t *testing.T) {
	t.Parallel()
	r := newRig(t).startWorkers()
	ctx := context.Background()
	letter := r.deadLetter(1, func(escrow.Call) escrow.Answer { return refused() })
	_, err := r.Service.As("acme", "user:ada").DeadLetters.Reconcile(ctx, letter.Run, paidFinding)
	plan := r.secondPerson(err)
	if _, err := r.As("acme", "user:ada").DeadLetters.Hold(ctx, letter.Run, holdReason); err != nil {
		t.Fatal(err)
	}
	if b := r.runPlan(plan); b.Progress.PlanStale != 1 {
		t.Errorf("%+v", b.Progress)
	}
	if c := r.caseOf(release(1)); c.Progression != settlement.DisputeReady || c.Reserved != 1000 {
		t.Errorf("%+v", c)
	}
	r.mustAudit()
}

// An invalid finding is refused when it is planned.
func TestAFindingThatMakesNoSenseIsNotPlanned(t *testing.T) {
	t.Parallel()
	r := newRig(t).startWorkers()
	ctx := context.Background()
	letter := r.deadLetter(1, func(escrow.Call) escrow.Answer { return refused() })
	other, nothing := paidFinding, paidFinding
	other.Moved, nothing.Class, nothing.Moved = 999, escrow.NotExecuted, 0
	var wrong *refusal.FieldError
	if _, err := r.As("acme", "user:ada").Bulk.PlanFinding(ctx, letter.Run, other); !errors.As(err, &wrong) || wrong.Field != "other_amount" {
		t.Errorf("another amount: %v", err)
	}
	if _, err := r.As("acme", "user:ada").Bulk.PlanFinding(ctx, letter.Run, nothing); !errors.As(err, &wrong) || wrong.Field != "finding" {
		t.Errorf("not executed: %v", err)
	}
	if _, err := r.As("other", "user:ada").Bulk.PlanFinding(ctx, letter.Run, paidFinding); !errors.Is(err, refusal.ErrNotFound) {
		t.Errorf("another tenant: %v", err)
	}
	if n := r.count(`SELECT count(*) FROM recourse.bulks`); n != 0 {
		t.Errorf("%d plans", n)
	}
}

// A purge of settlements is planned, whoever asks; letters of plain tasks take one person.
func TestAPurgeOfSettlementsTakesTwoPeople(t *testing.T) {
	t.Parallel()
	r := newRig(t).startWorkers()
	ctx := context.Background()
	letter := r.deadLetter(1, func(escrow.Call) escrow.Answer { return refused() })
	q := refusedLetters()
	q.Confirm = "1"
	_, err := r.Service.As("acme", "user:ada").DeadLetters.Purge(ctx, q)
	plan := r.secondPerson(err)
	if _, err := r.Service.As("acme", "user:ada").DeadLetters.Clear(ctx, ClearRequest{Reason: "old", Family: casework.Family, Confirm: casework.Family}); r.secondPerson(err).Items != 1 {
		t.Errorf("clear: %v", err)
	}
	if got := r.letterStatus(letter); got != background.LetterOpen {
		t.Fatalf("the letter is %s", got)
	}
	if b := r.runPlan(plan); b.Progress.Done != 1 {
		t.Errorf("%+v", b.Progress)
	}
	if payloads := r.payloadsOf(letter, receipts.Purged); len(payloads) != 1 || payloads[0].PlannedBy != "user:ada" || payloads[0].Bulk != plan.ID.String() {
		t.Errorf("%+v", payloads)
	}
	r.mustAudit()
}

// A hundred callers start one plan at once, its author among them: one of the others succeeds, once.
func TestOfManyWhoRunOnePlanOneActsAndNeverItsPlanner(t *testing.T) {
	t.Parallel()
	r := newRig(t).startWorkers()
	ctx := context.Background()
	letter := r.deadLetter(1, func(c escrow.Call) escrow.Answer { r.escrow.pay(c, c.Amount.Minor); return refused() })
	_, err := r.Service.As("acme", "user:ada").DeadLetters.Reconcile(ctx, letter.Run, paidFinding)
	plan := r.secondPerson(err)
	var all sync.WaitGroup
	start := make(chan struct{})
	for n := range 100 {
		all.Go(func() {
			<-start
			actor := "user:ada"
			if n%2 == 0 {
				actor = fmt.Sprintf("user:%d", n)
			}
			b, err := r.As("acme", actor).Bulk.Run(ctx, plan.ID, plan.Hash)
			for errors.Is(err, background.ErrBusy) { // the callers wait for one case
				b, err = r.As("acme", actor).Bulk.Run(ctx, plan.ID, plan.Hash)
			}
			var second *SecondPersonError
			switch planner := actor == "user:ada"; {
			case planner && !errors.As(err, &second):
				t.Errorf("the planner: %+v, %v", b, err)
			case !planner && (err != nil || b.StartedBy == "user:ada"):
				t.Errorf("%s: started by %q, %v", actor, b.StartedBy, err)
			}
		})
	}
	close(start)
	all.Wait()
	r.untilPlanDone(plan.ID)
	if n := r.count(`SELECT count(*) FROM recourse.receipts WHERE subtype = 'reconciled'`); n != 1 {
		t.Errorf("%d findings are recorded", n)
	}
	if n := r.count(`SELECT count(*) FROM recourse.receipts WHERE subtype = 'bulk-changed' AND body::json->'payload'->>'changes' = 'planned to running'`); n != 1 {
		t.Errorf("it was started %d times", n)
	}
	r.mustAudit()
}

// Every cell: who starts another's plan, with which key, where how many people are required. x: it
// starts; 2: a second person is required.
func TestWhoMayRunWhatAnotherPlanned(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *Config) {
		c.Families = []PlainFamily{{Name: "chores", Handle: func(context.Context, background.Attempt) background.Result {
			return background.Result{Class: escrow.NotExecuted, Failure: &background.Failure{Type: "chore.refused"}}
		}}}
	}).startWorkers()
	ctx := context.Background()
	key := func(principal, maker string, roles ...access.Role) string {
		_, k, err := r.As("acme", maker).Keys.Create(ctx, NewKey{Principal: principal, Roles: roles, Reason: "test"})
		if err != nil {
			t.Fatal(err)
		}
		return k.Prefix
	}
	both := []access.Role{access.Operator, access.Approver}
	who := map[string]casework.Caller{
		"user:ada":     {Key: key("user:ada", "user:root", both...)},
		"user:ben":     {Key: key("user:ben", "user:root", access.Approver)},
		"user:cem":     {Key: key("user:cem", "user:ada", access.Approver)},
		"user:dee":     {Key: key("user:dee", "user:cem", access.Approver)},
		"user:eve":     {Key: key("user:eve", "user:root", access.Submitter)},
		"service:desk": {Key: key("service:desk", "user:root", access.Approver)}, "rule:nightly": {}, "user:fay": {}, "local": {NoKeys: true},
		"user:own": {Key: key("user:ada", "user:ada", both...)},
	}
	name := func(of string) string {
		if of == "user:own" { // another key of ada's
			return "user:ada"
		}
		return of
	}
	letters := r.deadLetters(0, 3, func(escrow.Call) escrow.Answer { return refused() })
	if _, err := r.SubmitTask(ctx, Task{Tenant: "acme", Family: "chores", Payload: []byte(`{}`)}); err != nil {
		t.Fatal(err)
	}
	r.untilNoneLive()
	plans := map[string]func(context.Context) (Bulk, error){
		"finding": func(ctx context.Context) (Bulk, error) {
			return r.As("acme", "user:ada").Bulk.PlanFinding(ctx, letters[0].Run, paidFinding)
		},
		"free": func(ctx context.Context) (Bulk, error) {
			return r.As("acme", "user:ada").Bulk.PlanFree(ctx, FreeRequest{Filter: casestatus.Filter{Transaction: "txr_1"}, Reason: "withdrawn", Reference: "mail 3"})
		},
	}
	for _, a := range BulkActions {
		for _, family := range []string{casework.Family, "chores"} {
			q := BulkRequest{Filter: deadletter.Filter{Family: family}, Action: a, Reason: "test"}
			if a == BulkMark {
				q.Reprocess = new(bool)
			}
			plans[string(a)+" "+family] = func(ctx context.Context) (Bulk, error) { return r.As("acme", "user:ada").Bulk.Plan(ctx, q) }
		}
	}
	money := []string{"finding", "free", "fork " + casework.Family, "purge " + casework.Family}
	const cells = `
user:ada user:own user:ben user:cem user:dee user:eve service:desk rule:nightly user:fay local
2        2        x        2        2        2        2            2            x        x
x        x        x        x        x        2        2            2            x        x`
	var table [][]string
	for _, line := range strings.Split(strings.TrimSpace(cells), "\n") {
		table = append(table, strings.Fields(line))
	}
	for people := 2; people >= 1; people-- {
		if _, err := r.As("acme", "user:root").People.Set(ctx, PeopleChange{People: people, Reason: "test"}); err != nil {
			t.Fatal(err)
		}
		for action, make := range plans {
			for i, runner := range table[0] {
				want := table[3-people][i]
				if !slices.Contains(money, action) {
					want = "x"
				}
				plan, err := make(casework.WithCaller(ctx, who["user:ada"]))
				if err != nil {
					t.Fatalf("%s: %v", action, err)
				}
				r.mayRun(plan, who[runner], name(runner), want == "x", fmt.Sprintf("%s run by %s, people %d", action, runner, people))
			}
		}
	}
	r.mustAudit()
}

// mayRun checks whether a caller may start a plan, and that one who may not is refused. A plan
// that may start is not started: it would change what the other cells test.
func (r *rig) mayRun(plan Bulk, caller casework.Caller, actor string, runs bool, what string) {
	r.t.Helper()
	ctx := casework.WithCaller(context.Background(), caller)
	by, err := r.plans.newStarter(ctx, "acme", actor, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	kept, err := r.plans.findBulk(ctx, "acme", plan.ID)
	if err != nil {
		r.t.Fatal(err)
	}
	because, err := by.authorize(&kept)
	if err != nil || (because == "") != runs {
		r.t.Errorf("%s: %q, %v", what, because, err)
	}
	if !runs {
		var second *SecondPersonError
		if _, err := r.As("acme", actor).Bulk.Run(ctx, plan.ID, plan.Hash); !errors.As(err, &second) {
			r.t.Errorf("%s: %v", what, err)
		}
	}
}

// Only an approver may start a plan alone for an incident: the receipts say so, and an event
// publishes it.
func TestBreakGlassIsForAnApproverAndLeavesItsTraces(t *testing.T) {
	t.Parallel()
	r := newRig(t).startWorkers()
	ctx := context.Background()
	letter := r.deadLetter(1, func(c escrow.Call) escrow.Answer { r.escrow.pay(c, c.Amount.Minor); return refused() })
	_, operator := r.mustKey("acme", NewKey{Principal: "user:ada", Roles: []access.Role{access.Operator}, Reason: "test"})
	_, approver := r.mustKey("acme", NewKey{Principal: "user:ada", Roles: []access.Role{access.Approver}, Reason: "test"})
	_, err := r.Service.As("acme", "user:ada").DeadLetters.Reconcile(casework.WithCaller(ctx, casework.Caller{Key: operator.Prefix}), letter.Run, paidFinding)
	plan := r.secondPerson(err)
	by := BreakGlass{Reason: "nobody else is awake", Incident: "INC-7"}
	var second *SecondPersonError
	for _, no := range []casework.Caller{{Key: operator.Prefix}, {Key: "gone"}} {
		if _, err := r.As("acme", "user:ada").Bulk.RunBreakGlass(casework.WithCaller(ctx, no), plan.ID, plan.Hash, by); !errors.As(err, &second) {
			t.Errorf("%+v: %v", no, err)
		}
	}
	if _, err := r.As("acme", "service:desk").Bulk.RunBreakGlass(ctx, plan.ID, plan.Hash, by); !errors.As(err, &second) {
		t.Errorf("a program: %v", err)
	}
	for field, bad := range map[string]BreakGlass{"reason": {Incident: "INC-7"}, "break_glass": {Reason: "x"}} {
		var wrong *refusal.FieldError
		if _, err := r.As("acme", "user:ada").Bulk.RunBreakGlass(ctx, plan.ID, plan.Hash, bad); !errors.As(err, &wrong) || wrong.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
	if _, err := r.As("acme", "user:ada").Bulk.RunBreakGlass(casework.WithCaller(ctx, casework.Caller{Key: approver.Prefix}), plan.ID, plan.Hash, by); err != nil {
		t.Fatal(err)
	}
	if b := r.untilPlanDone(plan.ID); b.Progress.Done != 1 || b.Incident != "INC-7" || b.IncidentReason != by.Reason || b.People != 1 || b.SelfDeclared {
		t.Errorf("%+v", b)
	}
	if payloads := r.payloadsOf(letter, receipts.Reconciled); len(payloads) != 1 || payloads[0].BreakGlass != "INC-7" || payloads[0].People != 1 || payloads[0].PlannedBy != "user:ada" || payloads[0].SelfDeclared {
		t.Errorf("%+v", payloads)
	}
	if l, err := r.Health().Levels(ctx); err != nil || l.BrokeGlass != 1 {
		t.Errorf("%+v, %v", l, err)
	}
	r.mustAudit()
	events, _, err := r.Events(ctx, "acme", 0, 1000)
	if err != nil || !slices.ContainsFunc(events, func(e Event) bool {
		return e.Type == receipts.PlanBrokeGlass && e.Data.Incident == "INC-7" && e.Data.Actor == "user:ada" && e.Data.PlanID == plan.ID.String()
	}) {
		t.Errorf("no event says so: %v", err)
	}
}

// The number of people required is set with a receipt, stated in each receipt that one person
// leaves, and audited.
func TestHowManyPeopleItTakesIsSetWithAReceipt(t *testing.T) {
	t.Parallel()
	r := newRig(t).startWorkers()
	ctx := context.Background()
	if p, err := r.As("acme", "").People.Get(ctx); err != nil || p.People != 2 || p.At != nil {
		t.Errorf("%+v, %v", p, err)
	}
	for field, bad := range map[string]struct {
		acting
		PeopleChange
	}{
		"people": {acting{"acme", "user:root"}, PeopleChange{People: 3, Reason: "x"}}, "tenant": {acting{"", "user:root"}, PeopleChange{People: 1, Reason: "x"}},
		"actor": {acting{"acme", ""}, PeopleChange{People: 1, Reason: "x"}}, "reason": {acting{"acme", "user:root"}, PeopleChange{People: 1}},
	} {
		var wrong *refusal.FieldError
		if _, err := r.As(bad.tenant, bad.actor).People.Set(ctx, bad.PeopleChange); !errors.As(err, &wrong) || wrong.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
	one := PeopleChange{People: 1, Reason: "we are one"}
	for range 2 { // the second time it is already set
		if p, err := r.As("acme", "user:root").People.Set(casework.WithCaller(ctx, casework.Caller{SelfDeclared: true}), one); err != nil || p.People != 1 || p.Actor != "user:root" {
			t.Errorf("%+v, %v", p, err)
		}
	}
	letter := r.deadLetter(1, func(c escrow.Call) escrow.Answer { r.escrow.pay(c, c.Amount.Minor); return refused() })
	if c, err := r.Service.As("acme", "user:ada").DeadLetters.Reconcile(ctx, letter.Run, paidFinding); err != nil || c.Progression != settlement.Settled {
		t.Fatalf("%+v, %v", c, err)
	}
	if payloads := r.payloadsOf(letter, receipts.Reconciled); len(payloads) != 1 || payloads[0].People != 1 {
		t.Errorf("%+v", payloads)
	}
	history, err := r.As("acme", "").People.History(ctx, 0, 10)
	if err != nil || len(history) != 1 || history[0].People.People != 1 || !history[0].SelfDeclared || history[0].Reason != "we are one" {
		t.Errorf("%+v, %v", history, err)
	}
	if all, err := r.Health().OnePersonTenants(ctx); err != nil || len(all) != 1 || all[0].Tenant != "acme" {
		t.Errorf("%+v, %v", all, err)
	}
	r.mustAudit()
	r.checkAuditDetects("the number of people", `UPDATE recourse.people SET people = 2`, `UPDATE recourse.people SET people = 1`, "the number of people")
}

// Every action by an unverified name says so in its receipt; other actions do not.
func TestReceiptsSayWhereANameIsSelfDeclared(t *testing.T) {
	t.Parallel()
	r := newRig(t).startWorkers()
	ctx := casework.WithCaller(context.Background(), casework.Caller{SelfDeclared: true})
	const who = "user:typed"
	letters := r.deadLetters(1, 3, func(escrow.Call) escrow.Answer { return refused() })
	rule := Rule{Name: "night", Filter: deadletter.Filter{ErrorType: "none"}, Delay: "PT8H", MaxReplays: 1}
	for what, do := range map[string]func() error{
		"hold": func() error {
			_, err := r.As("acme", who).DeadLetters.Hold(ctx, letters[0].Run, "x")
			return err
		},
		"fork": func() error {
			_, err := r.As("acme", who).DeadLetters.Fork(ctx, letters[1].Run, deadletter.Fork{Reason: "x"})
			return err
		},
		"key": func() error {
			_, k, err := r.As("acme", who).Keys.Create(ctx, NewKey{Principal: "user:ben", Roles: []access.Role{access.Auditor}, Reason: "x"})
			if err == nil {
				_, err = r.As("acme", who).Keys.Revoke(ctx, k.Prefix, "x")
			}
			return err
		},
		"policy": func() error {
			_, err := r.As("acme", who).Policies.Set(ctx, PolicyChange{Family: casework.Family, Reason: "x"})
			return err
		},
		"breaker": func() error {
			_, err := r.As("acme", who).Breakers.Open(ctx, "elsewhere", "x")
			if err == nil {
				_, err = r.As("acme", who).Breakers.Release(ctx, "elsewhere", "x")
			}
			return err
		},
		"rule": func() error {
			_, err := r.As("acme", who).Rules.Set(ctx, RuleChange{Rule: rule, Reason: "x"})
			return err
		},
	} {
		if err := do(); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	r.untilNoneLive()
	const declared = `body::json->'payload'->>'self_declared' = 'true'`
	if n := r.count(`SELECT count(DISTINCT subtype) FROM recourse.receipts WHERE actor = $1 AND `+declared, who); n != 9 {
		t.Errorf("%d subtypes say so", n) // hold-placed, manual-retry-requested and submitted, key-created, key-revoked, policy-changed, breaker-opened, breaker-released, rule-changed
	}
	if n := r.count(`SELECT count(*) FROM recourse.receipts WHERE (actor = $1) <> coalesce(`+declared+`, false)`, who); n != 0 {
		t.Errorf("%d receipts say otherwise", n)
	}
	r.mustAudit()
}
