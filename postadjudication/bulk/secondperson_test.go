package bulk_test

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
	"github.com/recourse-dev/recourse/internal/testkit"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/audit"
	"github.com/recourse-dev/recourse/postadjudication/bulk"
	"github.com/recourse-dev/recourse/postadjudication/casestatus"
	"github.com/recourse-dev/recourse/postadjudication/deadletter"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/internal/rig"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/postadjudication/replay"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/receipts/events"
	"github.com/recourse-dev/recourse/settlement"
)

// A person who states alone that money was moved has only planned it; another one starts it, and
// the receipt names both.
func TestAFindingOfExecutedTakesTwoPeople(t *testing.T) {
	t.Parallel()
	r := rig.New(t).StartWorkers()
	ctx := context.Background()
	letter := r.DeadLetter(1, func(c escrow.Call) escrow.Answer { r.Escrow.Pay(c, c.Amount.Minor); return rig.Refused() })
	before := r.Head(letter.Case)
	_, err := r.Service.As("acme", "user:ada").DeadLetters.Reconcile(ctx, letter.Run, rig.PaidFinding)
	plan := rig.PlanForSecondPerson(r, err)
	if f := plan.Spec.Finding; f != nil {
		if !strings.HasPrefix(f.Contradicts, "attempt 1 ended as not_executed at ") {
			t.Errorf("the plan does not say what it contradicts: %q", f.Contradicts)
		}
		f.Contradicts = ""
	}
	if f := plan.Spec.Finding; plan.Action != bulk.Finding || f == nil || *f != (bulk.PlannedFinding{Class: escrow.Executed, Moved: 1000, Currency: "EUR", Reference: "stmt-7", Transaction: rig.Release(1).TransactionReceiptID}) || plan.Items != 1 || plan.Ready != 1 || plan.Money["EUR"] != settlement.SumOf(1000) {
		t.Errorf("%+v", plan)
	}
	var second *bulk.SecondPersonError
	if _, err := r.As("acme", "user:ada").Bulk.Run(ctx, plan.ID, plan.Hash); !errors.As(err, &second) || second.Because == "" {
		t.Errorf("the author starts it: %v", err)
	}
	if now := r.Head(letter.Case); now != before {
		t.Errorf("the case has %d receipts, and had %d", now, before)
	}
	if b := r.RunPlan(plan); b.Progress.Done != 1 || b.People != 2 || !b.SelfDeclared {
		t.Errorf("%+v", b)
	}
	if c := r.CaseOf(rig.Release(1)); c.Progression != settlement.Settled || c.Released != 1000 || c.Reserved != 0 {
		t.Errorf("%+v", c)
	}
	payloads := r.Payloads(letter, receipts.Reconciled)
	if len(payloads) != 1 || payloads[0].PlannedBy != "user:ada" || payloads[0].Bulk != plan.ID.String() || !payloads[0].SelfDeclared || payloads[0].People != 0 || payloads[0].FindingReference != "stmt-7" || payloads[0].Moved != 1000 {
		t.Errorf("%+v", payloads)
	}
	checkReceiptNamesPlan(r, letter, plan, receipts.Reconciled)
	checkPlanReceipts(r, plan, "user:ada none to planned", "user:bob planned to running", "system:bulk running to done")
	r.MustAudit()
}

// A plan of a case that has changed since is not executed.
func TestAFindingIsStaleOnceItsCaseHasMoved(t *testing.T) {
	t.Parallel()
	r := rig.New(t).StartWorkers()
	ctx := context.Background()
	letter := r.DeadLetter(1, rig.Refuses)
	_, err := r.Service.As("acme", "user:ada").DeadLetters.Reconcile(ctx, letter.Run, rig.PaidFinding)
	plan := rig.PlanForSecondPerson(r, err)
	if _, err := r.As("acme", "user:ada").DeadLetters.Hold(ctx, letter.Run, "the auditors asked for it"); err != nil {
		t.Fatal(err)
	}
	if b := r.RunPlan(plan); b.Progress.PlanStale != 1 {
		t.Errorf("%+v", b.Progress)
	}
	if c := r.CaseOf(rig.Release(1)); c.Progression != settlement.DisputeReady || c.Reserved != 1000 {
		t.Errorf("%+v", c)
	}
	r.MustAudit()
}

// An invalid finding is refused when it is planned.
func TestAFindingThatMakesNoSenseIsNotPlanned(t *testing.T) {
	t.Parallel()
	r := rig.New(t).StartWorkers()
	ctx := context.Background()
	letter := r.DeadLetter(1, rig.Refuses)
	other, nothing := rig.PaidFinding, rig.PaidFinding
	other.Moved, nothing.Class, nothing.Moved = 999, escrow.NotExecuted, 0
	var wrong *refusal.FieldError
	if _, err := r.As("acme", "user:ada").Bulk.PlanFinding(ctx, letter.Run, other); !errors.As(err, &wrong) || wrong.Field != "other_amount" {
		t.Errorf("another amount: %v", err)
	}
	if _, err := r.As("acme", "user:ada").Bulk.PlanFinding(ctx, letter.Run, nothing); !errors.As(err, &wrong) || wrong.Field != "finding" {
		t.Errorf("not executed: %v", err)
	}
	if _, err := r.As("other", "user:ada").Bulk.PlanFinding(ctx, letter.Run, rig.PaidFinding); !errors.Is(err, refusal.ErrNotFound) {
		t.Errorf("another tenant: %v", err)
	}
	if n := r.CountRows("bulks"); n != 0 {
		t.Errorf("%d plans", n)
	}
}

// A purge of settlements is planned, whoever asks; letters of plain tasks take one person.
func TestAPurgeOfSettlementsTakesTwoPeople(t *testing.T) {
	t.Parallel()
	r := rig.New(t).StartWorkers()
	ctx := context.Background()
	letter := r.DeadLetter(1, rig.Refuses)
	plan := r.MustPlan(refusedLetters())
	if _, err := r.As("acme", "user:ada").Bulk.RunHere(ctx, plan.ID, plan.Hash); rig.PlanForSecondPerson(r, err).ID != plan.ID {
		t.Errorf("alone: %v", err)
	}
	if _, err := r.As("acme", "system:cron").Bulk.RunHere(ctx, plan.ID, plan.Hash); rig.PlanForSecondPerson(r, err).ID != plan.ID {
		t.Errorf("a program: %v", err)
	}
	if got := r.LetterStatus(letter); got != background.LetterOpen {
		t.Fatalf("the letter is %s", got)
	}
	if b := r.RunPlan(plan); b.Progress.Done != 1 {
		t.Errorf("%+v", b.Progress)
	}
	if payloads := r.Payloads(letter, receipts.Purged); len(payloads) != 1 || payloads[0].PlannedBy != "user:ada" || payloads[0].Bulk != plan.ID.String() {
		t.Errorf("%+v", payloads)
	}
	r.MustAudit()
}

// A hundred callers start one plan at once, its author among them: one of the others succeeds, once.
func TestOfManyWhoRunOnePlanOneActsAndNeverItsPlanner(t *testing.T) {
	t.Parallel()
	r := rig.New(t).StartWorkers()
	ctx := context.Background()
	letter := r.DeadLetter(1, func(c escrow.Call) escrow.Answer { r.Escrow.Pay(c, c.Amount.Minor); return rig.Refused() })
	_, err := r.Service.As("acme", "user:ada").DeadLetters.Reconcile(ctx, letter.Run, rig.PaidFinding)
	plan := rig.PlanForSecondPerson(r, err)
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
			var second *bulk.SecondPersonError
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
	r.WaitPlan(plan.ID)
	if n := r.CountReceipts(rig.Receipts{Subtype: receipts.Reconciled}); n != 1 {
		t.Errorf("%d findings are recorded", n)
	}
	if n := r.CountReceipts(rig.Receipts{Subtype: receipts.BulkChanged, Payload: map[string]any{"changes": "planned to running"}}); n != 1 {
		t.Errorf("it was started %d times", n)
	}
	r.MustAudit()
}

// Every cell: who starts another's plan, with which key, where how many people are required. x: it
// starts; 2: a second person is required.
func TestWhoMayRunWhatAnotherPlanned(t *testing.T) {
	t.Parallel()
	r := rig.New(t, func(c *postadjudication.Config) {
		c.Families = []postadjudication.PlainFamily{{Name: "chores", Handle: func(context.Context, background.Attempt) background.Result {
			return background.Result{Class: escrow.NotExecuted, Failure: &background.Failure{Type: "chore.refused"}}
		}}}
	}).StartWorkers()
	ctx := context.Background()
	key := func(principal, maker string, roles ...access.Role) string {
		_, k, err := r.As("acme", maker).Keys.Create(ctx, postadjudication.NewKey{Principal: principal, Roles: roles, Reason: "test"})
		if err != nil {
			t.Fatal(err)
		}
		return k.Prefix
	}
	both := []access.Role{access.Operator, access.Approver}
	who := map[string]postadjudication.Caller{
		"user:zoe":     {Key: key("user:zoe", "root", access.Approver)},
		"user:ada":     {Key: key("user:ada", "user:zoe", both...)},
		"user:ben":     {Key: key("user:ben", "user:root", access.Approver)},
		"user:cem":     {Key: key("user:cem", "user:ada", access.Approver)},
		"user:dee":     {Key: key("user:dee", "user:cem", access.Approver)},
		"user:eve":     {Key: key("user:eve", "user:root", access.Submitter)},
		"service:desk": {Key: key("service:desk", "user:root", access.Approver)}, "rule:nightly": {}, "user:fay": {}, "local": {NoKeys: true},
		"user:own": {Key: key("user:ada", "user:ada", both...)}, "user:Ada": {Key: key("user:Ada", "user:root", both...)}, "robot:ada": {Key: key("robot:ada", "user:root", access.Approver)},
		"user:gus": {Key: key("user:gus", "user:zoe", access.Approver)},
	}
	name := func(of string) string {
		if of == "user:own" { // another key of ada's
			return "user:ada"
		}
		return of
	}
	letters := r.DeadLetters(0, 3, rig.Refuses)
	if _, err := r.SubmitTask(ctx, postadjudication.Task{Tenant: "acme", Family: "chores", Payload: []byte(`{}`)}); err != nil {
		t.Fatal(err)
	}
	r.WaitNoneLive()
	plans := map[string]func(context.Context) (bulk.Plan, error){
		"finding": func(ctx context.Context) (bulk.Plan, error) {
			return r.As("acme", "user:ada").Bulk.PlanFinding(ctx, letters[0].Run, rig.PaidFinding)
		},
		"free": func(ctx context.Context) (bulk.Plan, error) {
			return r.As("acme", "user:ada").Bulk.PlanFree(ctx, bulk.FreeRequest{Filter: casestatus.Filter{Transaction: "txr_1"}, Reason: "withdrawn", Reference: "mail 3"})
		},
	}
	for _, a := range bulk.Actions {
		for _, family := range []string{postadjudication.Family, "chores"} {
			q := bulk.Request{Filter: deadletter.Filter{Family: family}, Action: a, Reason: "test"}
			if a == bulk.Mark {
				q.Reprocess = new(bool)
			}
			plans[string(a)+" "+family] = func(ctx context.Context) (bulk.Plan, error) {
				return r.As("acme", "user:ada").Bulk.Plan(ctx, q)
			}
		}
	}
	money := []string{"finding", "free", "fork " + postadjudication.Family, "purge " + postadjudication.Family}
	const cells = `
user:ada user:own user:Ada user:zoe user:gus user:ben user:cem user:dee user:eve service:desk robot:ada rule:nightly user:fay local
2        2        2        2        2        x        2        2        2        2            2         2            x        x
x        x        x        x        x        x        x        x        2        2            2         2            x        x`
	var table [][]string
	for _, line := range strings.Split(strings.TrimSpace(cells), "\n") {
		table = append(table, strings.Fields(line))
	}
	for people := 2; people >= 1; people-- {
		if people == 1 {
			r.OnePerson("test")
		}
		for action, make := range plans {
			for i, runner := range table[0] {
				want := table[3-people][i]
				if !slices.Contains(money, action) {
					want = "x"
				}
				plan, err := make(postadjudication.WithCaller(ctx, who["user:ada"]))
				if err != nil {
					t.Fatalf("%s: %v", action, err)
				}
				mayRun(r, plan, who[runner], name(runner), want == "x", fmt.Sprintf("%s run by %s, people %d", action, runner, people))
			}
		}
	}
	r.MustAudit()
}

// mayRun checks whether a caller may start a plan, and that one who may not is refused. A plan
// that may start is not started: it would change what the other cells test.
func mayRun(r *rig.Rig, plan bulk.Plan, caller postadjudication.Caller, actor string, runs bool, what string) {
	r.T.Helper()
	ctx := postadjudication.WithCaller(context.Background(), caller)
	because, err := r.As("acme", actor).Bulk.WhyNotStart(ctx, plan.ID)
	if err != nil || (because == "") != runs {
		r.T.Errorf("%s: %q, %v", what, because, err)
	}
	if !runs {
		var second *bulk.SecondPersonError
		if _, err := r.As("acme", actor).Bulk.Run(ctx, plan.ID, plan.Hash); !errors.As(err, &second) {
			r.T.Errorf("%s: %v", what, err)
		}
	}
}

// Only an approver may start a plan alone for an incident: the receipts say so, and an event
// publishes it.
func TestBreakGlassIsForAnApproverAndLeavesItsTraces(t *testing.T) {
	t.Parallel()
	r := rig.New(t).StartWorkers()
	ctx := context.Background()
	letter := r.DeadLetter(1, func(c escrow.Call) escrow.Answer { r.Escrow.Pay(c, c.Amount.Minor); return rig.Refused() })
	_, operator := rig.MustKey(r, "acme", postadjudication.NewKey{Principal: "user:ada", Roles: []access.Role{access.Operator}, Reason: "test"})
	_, approver := rig.MustKey(r, "acme", postadjudication.NewKey{Principal: "user:ada", Roles: []access.Role{access.Approver}, Reason: "test"})
	_, err := r.Service.As("acme", "user:ada").DeadLetters.Reconcile(postadjudication.WithCaller(ctx, postadjudication.Caller{Key: operator.Prefix}), letter.Run, rig.PaidFinding)
	plan := rig.PlanForSecondPerson(r, err)
	by := bulk.BreakGlass{Reason: "nobody else is awake", Incident: "INC-7"}
	var second *bulk.SecondPersonError
	for _, no := range []postadjudication.Caller{{Key: operator.Prefix}, {Key: "gone"}} {
		if _, err := r.As("acme", "user:ada").Bulk.RunBreakGlass(postadjudication.WithCaller(ctx, no), plan.ID, plan.Hash, by); !errors.As(err, &second) {
			t.Errorf("%+v: %v", no, err)
		}
	}
	var needless *refusal.FieldError
	if _, err := r.As("acme", "user:ben").Bulk.RunBreakGlass(ctx, plan.ID, plan.Hash, by); !errors.As(err, &needless) || needless.Field != "break_glass" {
		t.Errorf("another person: %v", err)
	}
	if _, err := r.As("acme", "ada").Bulk.Run(ctx, plan.ID, plan.Hash); !errors.As(err, &second) {
		t.Errorf("the planner by a bare name: %v", err)
	}
	if _, err := r.As("acme", "service:desk").Bulk.RunBreakGlass(ctx, plan.ID, plan.Hash, by); !errors.As(err, &second) {
		t.Errorf("a program: %v", err)
	}
	for field, bad := range map[string]bulk.BreakGlass{"reason": {Incident: "INC-7"}, "break_glass": {Reason: "x"}} {
		var wrong *refusal.FieldError
		if _, err := r.As("acme", "user:ada").Bulk.RunBreakGlass(ctx, plan.ID, plan.Hash, bad); !errors.As(err, &wrong) || wrong.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
	if _, err := r.As("acme", "user:ada").Bulk.RunBreakGlass(postadjudication.WithCaller(ctx, postadjudication.Caller{Key: approver.Prefix}), plan.ID, plan.Hash, by); err != nil {
		t.Fatal(err)
	}
	if b := r.WaitPlan(plan.ID); b.Progress.Done != 1 || b.Incident != "INC-7" || b.IncidentReason != by.Reason || b.People != 1 || b.SelfDeclared {
		t.Errorf("%+v", b)
	}
	if payloads := r.Payloads(letter, receipts.Reconciled); len(payloads) != 1 || payloads[0].BreakGlass != "INC-7" || payloads[0].People != 1 || payloads[0].PlannedBy != "user:ada" || payloads[0].SelfDeclared {
		t.Errorf("%+v", payloads)
	}
	if l, err := r.Health().Levels(ctx); err != nil || l.BrokeGlass != 1 {
		t.Errorf("%+v, %v", l, err)
	}
	r.MustAudit()
	for word, harm := range map[string]string{"incident": `incident = ''`, "reason of the start": `started_why = 'framed'`, "one person": `people = 2`} {
		testkit.Tamper(t, r.DB, `CREATE TABLE kept AS TABLE recourse.bulks`, `UPDATE recourse.bulks SET `+harm)
		if a, err := r.Audit(ctx); err != nil || !strings.Contains(a.Broken[audit.InvariantFold], "stored "+word) && !strings.Contains(a.Broken[audit.InvariantFold], "took "+word) {
			t.Errorf("%s: the audit found %v, %v", harm, a.Broken, err)
		}
		testkit.Tamper(t, r.DB, `UPDATE recourse.bulks b SET incident = k.incident, started_why = k.started_why, people = k.people FROM kept k WHERE k.id = b.id`, `DROP TABLE kept`)
	}
	r.MustAudit()
	found, _, err := r.Events(ctx, "acme", 0, 1000)
	if err != nil || !slices.ContainsFunc(found, func(e postadjudication.Event) bool {
		return e.Type == events.PlanBrokeGlass && e.Data.Incident == "INC-7" && e.Data.Actor == "user:ada" && e.Data.PlanID == plan.ID.String()
	}) {
		t.Errorf("no event says so: %v", err)
	}
}

// The number of people required is set with a receipt, stated in each receipt that one person
// leaves, and audited.
func TestHowManyPeopleItTakesIsSetWithAReceipt(t *testing.T) {
	t.Parallel()
	r := rig.New(t).StartWorkers()
	ctx := context.Background()
	if p, err := r.As("acme", "").People.Get(ctx); err != nil || p.People != 2 || p.At != nil {
		t.Errorf("%+v, %v", p, err)
	}
	for field, bad := range map[string]struct {
		acting
		postadjudication.PeopleChange
	}{
		"people": {acting{"acme", "user:root"}, postadjudication.PeopleChange{People: 3, Reason: "x"}}, "tenant": {acting{"", "user:root"}, postadjudication.PeopleChange{People: 1, Reason: "x"}},
		"actor": {acting{"acme", ""}, postadjudication.PeopleChange{People: 1, Reason: "x"}}, "reason": {acting{"acme", "user:root"}, postadjudication.PeopleChange{People: 1}},
	} {
		var wrong *refusal.FieldError
		if _, err := r.As(bad.tenant, bad.actor).People.Set(ctx, bad.PeopleChange); !errors.As(err, &wrong) || wrong.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
	declared := postadjudication.WithCaller(ctx, postadjudication.Caller{SelfDeclared: true})
	_, err := r.As("acme", "user:root").People.Set(declared, postadjudication.PeopleChange{People: 1, Reason: "we are one"})
	plan := rig.PlanForSecondPerson(r, err)
	var second *bulk.SecondPersonError
	if _, err := r.As("acme", "user:root").Bulk.Run(declared, plan.ID, plan.Hash); !errors.As(err, &second) || second.Because == "" {
		t.Errorf("who planned it runs it: %v", err)
	}
	var wrong *refusal.FieldError
	if _, err := r.As("acme", "user:root").Bulk.RunBreakGlass(declared, plan.ID, plan.Hash, bulk.BreakGlass{Reason: "alone", Incident: "INC-7"}); !errors.As(err, &wrong) || wrong.Field != "break_glass" {
		t.Errorf("for an incident: %v", err)
	}
	if p, err := r.As("acme", "").People.Get(ctx); err != nil || p.People != 2 {
		t.Errorf("%+v, %v", p, err)
	}
	for range 2 { // the second time it is done
		if b, err := r.As("acme", "user:bob").Bulk.Run(declared, plan.ID, plan.Hash); err != nil || b.State != bulk.Done || b.People != 2 {
			t.Errorf("%+v, %v", b, err)
		}
	}
	if p, err := r.As("acme", "user:root").People.Set(ctx, postadjudication.PeopleChange{People: 1, Reason: "it is 1"}); err != nil || p.People != 1 || p.Actor != "user:bob" {
		t.Errorf("%+v, %v", p, err)
	}
	letter := r.DeadLetter(1, func(c escrow.Call) escrow.Answer { r.Escrow.Pay(c, c.Amount.Minor); return rig.Refused() })
	if c, err := r.Service.As("acme", "user:ada").DeadLetters.Reconcile(ctx, letter.Run, rig.PaidFinding); err != nil || c.Progression != settlement.Settled {
		t.Fatalf("%+v, %v", c, err)
	}
	if payloads := r.Payloads(letter, receipts.Reconciled); len(payloads) != 1 || payloads[0].People != 1 {
		t.Errorf("%+v", payloads)
	}
	history, err := r.As("acme", "").People.History(ctx, 0, 10)
	if err != nil || len(history) != 1 || history[0].People.People != 1 || history[0].PlannedBy != "user:root" || history[0].Actor != "user:bob" || !history[0].SelfDeclared || history[0].Reason != "we are one" {
		t.Errorf("%+v, %v", history, err)
	}
	if all, err := r.Health().OnePersonTenants(ctx); err != nil || len(all) != 1 || all[0].Tenant != "acme" {
		t.Errorf("%+v, %v", all, err)
	}
	r.MustAudit()
	rig.CheckAuditDetects(r, "the number of people", `UPDATE recourse.people SET people = 2`, `UPDATE recourse.people SET people = 1`, "the number of people")
}

// Every action by an unverified name says so in its receipt; other actions do not.
func TestReceiptsSayWhereANameIsSelfDeclared(t *testing.T) {
	t.Parallel()
	r := rig.New(t).StartWorkers()
	ctx := postadjudication.WithCaller(context.Background(), postadjudication.Caller{SelfDeclared: true})
	const who = "user:typed"
	letters := r.DeadLetters(1, 3, rig.Refuses)
	rule := replay.Rule{Name: "night", Filter: deadletter.Filter{ErrorType: "none"}, Delay: "PT8H", MaxReplays: 1}
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
			_, k, err := r.As("acme", who).Keys.Create(ctx, postadjudication.NewKey{Principal: "user:ben", Roles: []access.Role{access.Auditor}, Reason: "x"})
			if err == nil {
				_, err = r.As("acme", who).Keys.Revoke(ctx, k.Prefix, "x")
			}
			return err
		},
		"policy": func() error {
			_, err := r.As("acme", who).Policies.Set(ctx, postadjudication.PolicyChange{Family: postadjudication.Family, Reason: "x"})
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
			_, err := r.As("acme", who).Rules.Set(ctx, replay.Change{Rule: rule, Reason: "x"})
			return err
		},
	} {
		if err := do(); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	r.WaitNoneLive()
	const declared = `body::json->'payload'->>'self_declared' = 'true'`
	if n := r.Count(`SELECT count(DISTINCT subtype) FROM recourse.receipts WHERE actor = $1 AND `+declared, who); n != 9 {
		t.Errorf("%d subtypes say so", n) // hold-placed, manual-retry-requested and submitted, key-created, key-revoked, policy-changed, breaker-opened, breaker-released, rule-changed
	}
	if n := r.Count(`SELECT count(*) FROM recourse.receipts WHERE (actor = $1) <> coalesce(`+declared+`, false)`, who); n != 0 {
		t.Errorf("%d receipts say otherwise", n)
	}
	r.MustAudit()
}

// Who asks for the number that is in force changes nothing, also while somebody raises it.
func TestTheNumberInForceIsNotWrittenOverOneThatIsBeingRaised(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	ctx := context.Background()
	r.OnePerson("we are one")
	tx, err := r.DB.BeginTx(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.ExecContext(ctx, `UPDATE recourse.people SET people = 2 WHERE tenant = 'acme'`); err != nil {
		t.Fatal(err)
	}
	_, err = r.As("acme", "user:root").People.Set(ctx, postadjudication.PeopleChange{People: 1, Reason: "it is 1"})
	if err := errors.Join(err, tx.Rollback()); err != nil {
		t.Errorf("it waits for the row: %v", err)
	}
}
