package bulk_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/bulk"
	"github.com/recourse-dev/recourse/postadjudication/casestatus"
	"github.com/recourse-dev/recourse/postadjudication/deadletter"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/internal/rig"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/settlement"
)

// A plan that another person starts frees the reservation of a dead letter, whether the letter
// is open or purged. Then a higher generation can start a new run.
func TestReservedMoneyIsFreedByAPlan(t *testing.T) {
	t.Parallel()
	r := rig.New(t).StartWorkers()
	ctx := context.Background()
	letters := r.DeadLetters(1, 3, rig.Refuses)
	r.MustPurge(deadletter.Filter{Transaction: "txr_2"}, 1)
	for n, letter := range letters {
		plan := rig.MustPlanFree(r, rig.FreeRequest([]string{"txr_1", "txr_2"}[n]))
		if plan.Action != bulk.Free || plan.Items != 1 || plan.Ready != 1 || plan.People != 2 || plan.Money["EUR"] != settlement.SumOf(1000) || plan.Spec.Reference != "mail 3" {
			t.Errorf("%+v", plan)
		}
		var second *bulk.SecondPersonError
		if _, err := r.As("acme", "user:ada").Bulk.Run(ctx, plan.ID, plan.Hash); !errors.As(err, &second) {
			t.Errorf("alone: %v", err)
		}
		if b := r.RunPlan(plan); b.Progress.Done != 1 || b.Progress.Money["EUR"] != settlement.SumOf(1000) {
			t.Errorf("%+v", b.Progress)
		}
		payloads := r.Payloads(letter, receipts.ReservationFreed)
		if len(payloads) != 1 || payloads[0].Freed != 1000 || payloads[0].PlannedBy != "user:ada" || payloads[0].FindingReference != "mail 3" || payloads[0].Reason != "both sides withdrew" || payloads[0].Bulk != plan.ID.String() {
			t.Errorf("%+v", payloads)
		}
		if c := r.CaseOf(rig.Release(n + 1)); c.Progression != settlement.ReviewNeeded || c.ReasonCode != settlement.RequestRevision || c.Reserved != 0 || c.Committed != 0 {
			t.Errorf("%+v", c)
		}
		if got := r.LetterStatus(letter); got != []background.LetterStatus{background.LetterReconciled, background.LetterPurged}[n] {
			t.Errorf("the letter is %s", got)
		}
		r.MustAudit()
		if _, err := r.As("acme", "user:ada").DeadLetters.Fork(ctx, letter.Run, rig.ForkRequest); err == nil {
			t.Error("a freed letter was forked")
		}
		if s := r.MustSubmit(rig.Release(n + 1)); s.Reply != postadjudication.Cancelled || s.Actor != "user:bob" || s.Reason != "both sides withdrew" {
			t.Errorf("the same again: %+v", s)
		}
		next := rig.Release(n + 1)
		next.Generation = 2
		if s := r.MustSubmit(next); s.Reply != postadjudication.Created {
			t.Errorf("a higher generation: %+v", s)
		}
	}
	r.WaitNoneLive()
	for n := range letters {
		if c := r.CaseOf(rig.Release(n + 1)); c.Progression != settlement.Settled || c.Released != 1000 {
			t.Errorf("%+v", c)
		}
	}
	r.MustAudit()
}

// Nothing is freed while money may still move: while it is unknown, a run is live, or the
// letter is held; nor if nothing is reserved.
func TestReservedMoneyIsNotFreedWhileItMayMove(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	r.Escrow.ScriptLookups(rig.GivesNoAnswer)
	r.StartWorkers()
	ctx := context.Background()
	r.DeadLetters(1, 2, func(c escrow.Call) escrow.Answer { r.Escrow.Pay(c, c.Amount.Minor); return rig.NoAnswer() })
	held, moved := r.DeadLetter(2, rig.Refuses), r.DeadLetter(3, rig.Refuses)
	r.MustSubmit(rig.Release(4))
	r.WaitNoneLive()
	if _, err := r.As("acme", "user:ada").DeadLetters.Hold(ctx, held.Run, "the auditors asked for it"); err != nil {
		t.Fatal(err)
	}
	for transaction, gate := range map[string]refusal.Gate{"txr_1": refusal.GateReconcileFirst, "txr_2": refusal.GateHeld} {
		plan := rig.MustPlanFree(r, rig.FreeRequest(transaction))
		if plan.Ready != 0 || plan.Refused[gate] != 1 {
			t.Errorf("%s: %+v", transaction, plan)
		}
		if b := r.RunPlan(plan); b.Progress.Refused != 1 || b.Progress.ByGate[gate] != 1 {
			t.Errorf("%s: %+v", transaction, b.Progress)
		}
	}
	plan := rig.MustPlanFree(r, rig.FreeRequest("txr_3"))
	if _, err := r.As("acme", "user:ada").DeadLetters.Fork(ctx, moved.Run, rig.ForkRequest); err != nil {
		t.Fatal(err)
	}
	if b := r.RunPlan(plan); b.Progress.PlanStale != 1 {
		t.Errorf("forked meanwhile: %+v", b.Progress)
	}
	var refused *refusal.RefusedError
	if plan, err := r.As("acme", "user:ada").Bulk.PlanFree(ctx, rig.FreeRequest("txr_4")); !errors.As(err, &refused) || refused.Gate != refusal.GateNothingReserved {
		t.Errorf("settled: %+v, %v", plan, err)
	}
	if n := r.CountReceipts(rig.Receipts{Subtype: receipts.ReservationFreed}); n != 0 {
		t.Errorf("%d were freed", n)
	}
	r.WaitNoneLive()
	r.MustAudit()
}

// With a limit a plan holds the oldest cases. A refusal to start the plan leaves a receipt, by
// every method.
func TestAFreeTakesALimitAndItsRefusalLeavesAReceipt(t *testing.T) {
	t.Parallel()
	r := rig.New(t).StartWorkers()
	ctx := context.Background()
	letters := r.DeadLetters(1, 4, rig.Refuses)
	q := rig.FreeRequest("")
	q.All, q.Limit = true, 2
	plan := rig.MustPlanFree(r, q)
	if plan.Items != 2 || plan.Spec.Limit != 2 {
		t.Errorf("%+v", plan)
	}
	var second *bulk.SecondPersonError
	if _, err := r.As("acme", "user:ada").Bulk.Run(ctx, plan.ID, plan.Hash); !errors.As(err, &second) {
		t.Errorf("alone: %v", err)
	}
	if n := r.CountReceipts(rig.Receipts{Subtype: receipts.AccessRefused, Actor: "user:ada", Payload: map[string]any{"refused_by": "second_person_required"}}); n != 1 {
		t.Errorf("%d receipts", n)
	}
	if b := r.RunPlan(plan); b.Progress.Done != 2 {
		t.Errorf("%+v", b.Progress)
	}
	if got := r.LetterStatus(letters[2]); got != background.LetterOpen {
		t.Errorf("the third letter is %s", got)
	}
	r.MustAudit()
}

// Older cases that can't be freed do not count towards the limit: those of unknown money, with
// a held letter, or with a live run.
func TestTheLimitOfAFreeCountsOnlyWhatCanBeFreed(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	r.Escrow.ScriptLookups(rig.GivesNoAnswer)
	r.StartWorkers()
	ctx := context.Background()
	r.DeadLetters(1, 2, func(c escrow.Call) escrow.Answer { r.Escrow.Pay(c, c.Amount.Minor); return rig.NoAnswer() })
	held, live := r.DeadLetter(2, rig.Refuses), r.DeadLetter(3, rig.Refuses)
	letters := r.DeadLetters(4, 7, rig.Refuses)
	if _, err := r.As("acme", "user:ada").DeadLetters.Hold(ctx, held.Run, "the auditors asked for it"); err != nil {
		t.Fatal(err)
	}
	answer := make(chan struct{})
	r.Escrow.Script(func(_ context.Context, c escrow.Call) escrow.Answer {
		<-answer
		return r.Escrow.Pay(c, c.Amount.Minor)
	})
	if _, err := r.As("acme", "user:ada").DeadLetters.Fork(ctx, live.Run, rig.ForkRequest); err != nil {
		t.Fatal(err)
	}
	q := rig.FreeRequest("")
	q.All, q.Limit = true, 2
	plan := rig.MustPlanFree(r, q)
	if plan.Items != 2 || plan.Ready != 2 || plan.Spec.Limit != 2 {
		t.Fatalf("%+v", plan)
	}
	for i, item := range r.BulkItems(plan.ID, "") {
		if item.Run != letters[i].Run {
			t.Errorf("item %d is run %s", i, item.Run)
		}
	}
	close(answer)
	r.WaitNoneLive()
	r.MustAudit()
}

func TestAFreeThatDoesNotSayWhatOrWhyIsRefused(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	for field, spoil := range map[string]func(*acting, *bulk.FreeRequest){
		"tenant": func(who *acting, q *bulk.FreeRequest) { who.tenant = "" }, "actor": func(who *acting, q *bulk.FreeRequest) { who.actor = "" }, "reason": func(who *acting, q *bulk.FreeRequest) { q.Reason = " " },
		"reference": func(who *acting, q *bulk.FreeRequest) { q.Reference = "" }, "filter": func(who *acting, q *bulk.FreeRequest) { q.Filter = casestatus.Filter{} },
		"state": func(who *acting, q *bulk.FreeRequest) { q.Filter.States = []string{"closed"} },
		"limit": func(who *acting, q *bulk.FreeRequest) { q.Limit = 1001 },
	} {
		q := rig.FreeRequest("txr_1")
		who := acting{"acme", "user:ada"}
		spoil(&who, &q)
		var wrong *refusal.FieldError
		if _, err := r.As(who.tenant, who.actor).Bulk.PlanFree(context.Background(), q); !errors.As(err, &wrong) || wrong.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
}

// An empty plan would look like success to a person who mistyped a transaction.
func TestAFreeOfATransactionThatIsNotThereSaysSo(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	if b, err := r.As("acme", "user:ada").Bulk.PlanFree(context.Background(), rig.FreeRequest("txr_2")); !errors.Is(err, refusal.ErrNotFound) {
		t.Errorf("%+v, %v", b, err)
	}
	if n := r.CountRows("bulks"); n != 0 {
		t.Errorf("%d plans were stored", n)
	}
}

// Cases are listed by state and reservation, including those whose letter was purged, with what
// they wait for and the allowed actions.
func TestCasesAreListedAlsoWithoutALetter(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	r.Escrow.ScriptLookups(rig.GivesNoAnswer)
	r.StartWorkers()
	ctx := context.Background()
	r.DeadLetters(1, 2, func(c escrow.Call) escrow.Answer { r.Escrow.Pay(c, c.Amount.Minor); return rig.NoAnswer() })
	r.DeadLetters(2, 4, rig.Refuses)
	r.MustSubmit(rig.Release(4))
	r.WaitNoneLive()
	r.MustPurge(deadletter.Filter{Transaction: "txr_3"}, 1)
	all, err := r.As("acme", "").Cases.List(ctx, casestatus.Filter{}, "", 100)
	if err != nil || all.Total != 4 || len(all.Cases) != 4 || all.More || all.Money["EUR"] != (casestatus.Money{Cases: 4, Reserved: settlement.SumOf(3000), Released: settlement.SumOf(1000)}) {
		t.Fatalf("%+v, %v", all, err)
	}
	for i, want := range []casestatus.Row{
		{Transaction: "txr_1", WaitsFor: casestatus.WaitsForFinding, Actions: []refusal.Action{"fork", "lookup", "reconcile", "hold"}},
		{Transaction: "txr_2", WaitsFor: casestatus.WaitsForLetter, Actions: []refusal.Action{"fork", "lookup", "reconcile", "hold", "purge", "free", "adjudicate"}},
		{Transaction: "txr_3", WaitsFor: casestatus.WaitsForPurgedLetter, Actions: []refusal.Action{"reconcile", "free", "adjudicate"}},
		{Transaction: "txr_4", Actions: []refusal.Action{"reconcile"}},
	} {
		got := all.Cases[i]
		if got.Transaction != want.Transaction || got.WaitsFor != want.WaitsFor || len(got.Actions) != len(want.Actions) {
			t.Errorf("%+v", got)
			continue
		}
		for n := range want.Actions {
			if got.Actions[n] != want.Actions[n] {
				t.Errorf("%s may %v", got.Transaction, got.Actions)
			}
		}
	}
	if _, err := r.As("acme", "user:ada").DeadLetters.Hold(ctx, all.Cases[1].Run, "in court"); err != nil {
		t.Fatal(err)
	}
	held, err := r.As("acme", "").Cases.List(ctx, casestatus.Filter{Transaction: "txr_2"}, "", 1)
	if err != nil || fmt.Sprint(held.Cases[0].Actions) != "[fork lookup reconcile release adjudicate]" {
		t.Errorf("a held letter: %+v, %v", held, err)
	}
	reserved, err := r.As("acme", "").Cases.List(ctx, casestatus.Filter{Reserved: true, States: []string{"dispute-ready"}}, "", 2)
	if err != nil || reserved.Total != 3 || len(reserved.Cases) != 2 || !reserved.More || reserved.Money["EUR"].Reserved != settlement.SumOf(3000) {
		t.Fatalf("%+v, %v", reserved, err)
	}
	rest, err := r.As("acme", "").Cases.List(ctx, casestatus.Filter{Reserved: true}, reserved.Next, 2)
	if err != nil || len(rest.Cases) != 1 || rest.More || rest.Next != "" || rest.Cases[0].Transaction != "txr_3" || rest.Cases[0].Reserved != 1000 {
		t.Errorf("%+v, %v", rest, err)
	}
	if none, err := r.As("other", "").Cases.List(ctx, casestatus.Filter{}, "", 2); err != nil || none.Total != 0 || len(none.Cases) != 0 {
		t.Errorf("%+v, %v", none, err)
	}
	var wrong *refusal.FieldError
	for field, ask := range map[string]func() error{
		"tenant": func() error { _, err := r.As("", "").Cases.List(ctx, casestatus.Filter{}, "", 2); return err },
		"limit": func() error {
			_, err := r.As("acme", "").Cases.List(ctx, casestatus.Filter{}, "", 0)
			return err
		},
		"cursor": func() error {
			_, err := r.As("acme", "").Cases.List(ctx, casestatus.Filter{}, "x", 2)
			return err
		},
		"state": func() error {
			_, err := r.As("acme", "").Cases.List(ctx, casestatus.Filter{States: []string{"x"}}, "", 2)
			return err
		},
	} {
		if err := ask(); !errors.As(err, &wrong) || wrong.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
}

// Several processes that all act as the holder of one plan record a finding once and free a
// reservation once.
func TestManyWhoWorkOnAPlanOfOneDoItOnce(t *testing.T) {
	t.Parallel()
	r := rig.New(t).StartWorkers()
	ctx := context.Background()
	letters := []postadjudication.Submitted{
		r.DeadLetter(1, func(c escrow.Call) escrow.Answer { r.Escrow.Pay(c, c.Amount.Minor); return rig.Refused() }),
		r.DeadLetter(2, rig.Refuses),
	}
	r.StopWorkers()
	finding, err := r.As("acme", "user:ada").Bulk.PlanFinding(ctx, letters[0].Run, rig.PaidFinding)
	if err != nil {
		t.Fatal(err)
	}
	for _, plan := range []bulk.Plan{finding, rig.MustPlanFree(r, rig.FreeRequest("txr_2"))} {
		b, err := r.As("acme", "user:bob").Bulk.Run(ctx, plan.ID, plan.Hash)
		checkBulkState(r, b, err, bulk.Running)
		var all sync.WaitGroup
		for range 4 {
			other := rig.Join(t, r.DatabaseURL, r.Redis, r.Escrow)
			all.Go(func() { mustWorkBulk(other, plan) })
		}
		all.Wait()
		if b := r.WaitPlan(plan.ID); b.Progress.Done != 1 {
			t.Errorf("%s: %+v", plan.Action, b.Progress)
		}
	}
	for subtype, letter := range map[receipts.Subtype]postadjudication.Submitted{receipts.Reconciled: letters[0], receipts.ReservationFreed: letters[1]} {
		if payloads := r.Payloads(letter, subtype); len(payloads) != 1 {
			t.Errorf("%s: %+v", subtype, payloads)
		}
	}
	r.MustAudit()
}

// A reservation stays while a call of any run of the case is in flight, whatever the finding
// about its last run: that call may still pay.
func TestNothingIsFreedWhileACallOfTheParentIsOut(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	r := rig.New(t, func(c *postadjudication.Config) { c.TimeLimit, c.Policy.MaxRetryAttempts = 100*time.Millisecond, 1 })
	answer, hangs := make(chan struct{}), r.MustSubmit(rig.Release(1))
	r.Escrow.Script(func(_ context.Context, c escrow.Call) escrow.Answer {
		if c.Run != hangs.Run {
			return rig.Refused()
		}
		<-answer
		return r.Escrow.Pay(c, c.Amount.Minor)
	})
	r.StartWorkers()
	r.WaitLetter(hangs.Run)
	fork, err := r.As("acme", "user:ada").DeadLetters.Fork(ctx, hangs.Run, rig.ForkRequest)
	if err != nil {
		t.Fatal(err)
	}
	r.WaitLetter(fork.Run)
	found := deadletter.Finding{Reason: "the bank's statement", Class: escrow.NotExecuted, Reference: "stmt-7", CallOutstanding: true}
	if _, err := r.Reconcile(ctx, "acme", fork.Run, found); err != nil {
		t.Fatal(err)
	}
	plan := rig.MustPlanFree(r, rig.FreeRequest("txr_1"))
	if plan.Ready != 0 || plan.Refused[refusal.GateCallOutstanding] != 1 {
		t.Errorf("planned: %+v", plan)
	}
	if b := r.RunPlan(plan); b.Progress.Refused != 1 || b.Progress.ByGate[refusal.GateCallOutstanding] != 1 {
		t.Errorf("run: %+v", b.Progress)
	}
	close(answer)
	r.WaitReceipt(hangs.Case, receipts.AnsweredLate)
	if c := r.CaseOf(rig.Release(1)); c.Progression != settlement.Settled || c.Released != 1000 || c.Excess != 0 {
		t.Errorf("%+v", c)
	}
	r.MustAudit()
}
