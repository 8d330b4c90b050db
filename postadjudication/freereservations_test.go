package postadjudication

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication/casestatus"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/internal/casework"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/settlement"
)

func freeRequest(transactions string) FreeRequest {
	return FreeRequest{Filter: casestatus.Filter{Transaction: transactions}, Reason: "both sides withdrew", Reference: "mail 3"}
}

func (r *rig) mustPlanFree(q FreeRequest) Bulk {
	r.t.Helper()
	b, err := r.As("acme", "user:ada").Bulk.PlanFree(context.Background(), q)
	if err != nil {
		r.t.Fatal(err)
	}
	return b
}

// A plan that another person starts frees the reservation of a dead letter, whether the letter
// is open or purged. Then a higher generation can start a new run.
func TestReservedMoneyIsFreedByAPlan(t *testing.T) {
	t.Parallel()
	r := newRig(t).startWorkers()
	ctx := context.Background()
	letters := r.deadLetters(1, 3, func(escrow.Call) escrow.Answer { return refused() })
	q := refusedLetters()
	q.Filter.Transaction, q.Confirm = "txr_2", "1"
	if done, err := r.Purge(ctx, "acme", q); err != nil || done.Letters != 1 {
		t.Fatalf("%+v, %v", done, err)
	}
	for n, letter := range letters {
		plan := r.mustPlanFree(freeRequest([]string{"txr_1", "txr_2"}[n]))
		if plan.Action != BulkFree || plan.Items != 1 || plan.Ready != 1 || plan.People != 2 || plan.Money["EUR"] != 1000 || plan.Spec.Reference != "mail 3" {
			t.Errorf("%+v", plan)
		}
		var second *SecondPersonError
		if _, err := r.As("acme", "user:ada").Bulk.Run(ctx, plan.ID, plan.Hash); !errors.As(err, &second) {
			t.Errorf("alone: %v", err)
		}
		if b := r.runPlan(plan); b.Progress.Done != 1 || b.Progress.Money["EUR"] != 1000 {
			t.Errorf("%+v", b.Progress)
		}
		payloads := r.payloadsOf(letter, receipts.ReservationFreed)
		if len(payloads) != 1 || payloads[0].Freed != 1000 || payloads[0].PlannedBy != "user:ada" || payloads[0].FindingReference != "mail 3" || payloads[0].Reason != "both sides withdrew" || payloads[0].Bulk != plan.ID.String() {
			t.Errorf("%+v", payloads)
		}
		if c := r.caseOf(release(n + 1)); c.Progression != settlement.ReviewNeeded || c.ReasonCode != settlement.RequestRevision || c.Reserved != 0 || c.Committed != 0 {
			t.Errorf("%+v", c)
		}
		if got := r.letterStatus(letter); got != []background.LetterStatus{background.LetterReconciled, background.LetterPurged}[n] {
			t.Errorf("the letter is %s", got)
		}
		r.mustAudit()
		if _, err := r.As("acme", "user:ada").DeadLetters.Fork(ctx, letter.Run, forkRequest); err == nil {
			t.Error("a freed letter was forked")
		}
		if s := r.mustSubmit(release(n + 1)); s.Reply != Cancelled || s.Actor != "user:bob" || s.Reason != "both sides withdrew" {
			t.Errorf("the same again: %+v", s)
		}
		next := release(n + 1)
		next.Generation = 2
		if s := r.mustSubmit(next); s.Reply != Created {
			t.Errorf("a higher generation: %+v", s)
		}
	}
	r.untilNoneLive()
	for n := range letters {
		if c := r.caseOf(release(n + 1)); c.Progression != settlement.Settled || c.Released != 1000 {
			t.Errorf("%+v", c)
		}
	}
	r.mustAudit()
}

// Nothing is freed while money may still move: while it is unknown, a run is live, or the
// letter is held; nor if nothing is reserved.
func TestReservedMoneyIsNotFreedWhileItMayMove(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.escrow.lookup = func(escrow.Call) escrow.Answer { return noAnswer() }
	r.startWorkers()
	ctx := context.Background()
	r.deadLetters(1, 2, func(c escrow.Call) escrow.Answer { r.escrow.pay(c, c.Amount.Minor); return noAnswer() })
	held, moved := r.deadLetter(2, func(escrow.Call) escrow.Answer { return refused() }), r.deadLetter(3, func(escrow.Call) escrow.Answer { return refused() })
	r.mustSubmit(release(4))
	r.untilNoneLive()
	if _, err := r.As("acme", "user:ada").DeadLetters.Hold(ctx, held.Run, holdReason); err != nil {
		t.Fatal(err)
	}
	for transaction, gate := range map[string]refusal.Gate{"txr_1": refusal.GateReconcileFirst, "txr_2": refusal.GateHeld} {
		plan := r.mustPlanFree(freeRequest(transaction))
		if plan.Ready != 0 || plan.Refused[gate] != 1 {
			t.Errorf("%s: %+v", transaction, plan)
		}
		if b := r.runPlan(plan); b.Progress.Refused != 1 || b.Progress.ByGate[gate] != 1 {
			t.Errorf("%s: %+v", transaction, b.Progress)
		}
	}
	plan := r.mustPlanFree(freeRequest("txr_3"))
	if _, err := r.As("acme", "user:ada").DeadLetters.Fork(ctx, moved.Run, forkRequest); err != nil {
		t.Fatal(err)
	}
	if b := r.runPlan(plan); b.Progress.PlanStale != 1 {
		t.Errorf("forked meanwhile: %+v", b.Progress)
	}
	var refused *refusal.RefusedError
	if plan, err := r.As("acme", "user:ada").Bulk.PlanFree(ctx, freeRequest("txr_4")); !errors.As(err, &refused) || refused.Gate != refusal.GateNothingReserved {
		t.Errorf("settled: %+v, %v", plan, err)
	}
	if n := r.count(`SELECT count(*) FROM recourse.receipts WHERE subtype = 'reservation-freed'`); n != 0 {
		t.Errorf("%d were freed", n)
	}
	r.untilNoneLive()
	r.mustAudit()
}

// With a limit a plan holds the oldest cases. A refusal to start the plan leaves a receipt, by
// every method.
func TestAFreeTakesALimitAndItsRefusalLeavesAReceipt(t *testing.T) {
	t.Parallel()
	r := newRig(t).startWorkers()
	ctx := context.Background()
	letters := r.deadLetters(1, 4, func(escrow.Call) escrow.Answer { return refused() })
	q := freeRequest("")
	q.All, q.Limit = true, 2
	plan := r.mustPlanFree(q)
	if plan.Items != 2 || plan.Spec.Limit != 2 {
		t.Errorf("%+v", plan)
	}
	var second *SecondPersonError
	if _, err := r.As("acme", "user:ada").Bulk.Run(ctx, plan.ID, plan.Hash); !errors.As(err, &second) {
		t.Errorf("alone: %v", err)
	}
	if n := r.count(`SELECT count(*) FROM recourse.receipts WHERE subtype = 'access-refused' AND actor = 'user:ada' AND body::json->'payload'->>'refused_by' = 'second_person_required'`); n != 1 {
		t.Errorf("%d receipts", n)
	}
	if b := r.runPlan(plan); b.Progress.Done != 2 {
		t.Errorf("%+v", b.Progress)
	}
	if got := r.letterStatus(letters[2]); got != background.LetterOpen {
		t.Errorf("the third letter is %s", got)
	}
	r.mustAudit()
}

// Older cases that can't be freed do not count towards the limit: those of unknown money, with
// a held letter, or with a live run.
func TestTheLimitOfAFreeCountsOnlyWhatCanBeFreed(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.escrow.lookup = func(escrow.Call) escrow.Answer { return noAnswer() }
	r.startWorkers()
	ctx := context.Background()
	r.deadLetters(1, 2, func(c escrow.Call) escrow.Answer { r.escrow.pay(c, c.Amount.Minor); return noAnswer() })
	held, live := r.deadLetter(2, func(escrow.Call) escrow.Answer { return refused() }), r.deadLetter(3, func(escrow.Call) escrow.Answer { return refused() })
	letters := r.deadLetters(4, 7, func(escrow.Call) escrow.Answer { return refused() })
	if _, err := r.As("acme", "user:ada").DeadLetters.Hold(ctx, held.Run, holdReason); err != nil {
		t.Fatal(err)
	}
	answer := make(chan struct{})
	r.escrow.mu.Lock()
	r.escrow.script = func(_ context.Context, c escrow.Call) escrow.Answer {
		<-answer
		return r.escrow.pay(c, c.Amount.Minor)
	}
	r.escrow.mu.Unlock()
	if _, err := r.As("acme", "user:ada").DeadLetters.Fork(ctx, live.Run, forkRequest); err != nil {
		t.Fatal(err)
	}
	q := freeRequest("")
	q.All, q.Limit = true, 2
	plan := r.mustPlanFree(q)
	if plan.Items != 2 || plan.Ready != 2 || plan.Spec.Limit != 2 {
		t.Fatalf("%+v", plan)
	}
	for i, item := range r.bulkItems(plan.ID, "") {
		if item.Run != letters[i].Run {
			t.Errorf("item %d is run %s", i, item.Run)
		}
	}
	close(answer)
	r.untilNoneLive()
	r.mustAudit()
}

func TestAFreeThatDoesNotSayWhatOrWhyIsRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for field, spoil := range map[string]func(*acting, *FreeRequest){
		"tenant": func(who *acting, q *FreeRequest) { who.tenant = "" }, "actor": func(who *acting, q *FreeRequest) { who.actor = "" }, "reason": func(who *acting, q *FreeRequest) { q.Reason = " " },
		"reference": func(who *acting, q *FreeRequest) { q.Reference = "" }, "filter": func(who *acting, q *FreeRequest) { q.Filter = casestatus.Filter{} },
		"state": func(who *acting, q *FreeRequest) { q.Filter.States = []string{"closed"} },
		"limit": func(who *acting, q *FreeRequest) { q.Limit = 1001 },
	} {
		q := freeRequest("txr_1")
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
	r := newRig(t)
	if b, err := r.As("acme", "user:ada").Bulk.PlanFree(context.Background(), freeRequest("txr_2")); !errors.Is(err, refusal.ErrNotFound) {
		t.Errorf("%+v, %v", b, err)
	}
	if n := r.count(`SELECT count(*) FROM recourse.bulks`); n != 0 {
		t.Errorf("%d plans were stored", n)
	}
}

// Cases are listed by state and reservation, including those whose letter was purged, with what
// they wait for and the allowed actions.
func TestCasesAreListedAlsoWithoutALetter(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.escrow.lookup = func(escrow.Call) escrow.Answer { return noAnswer() }
	r.startWorkers()
	ctx := context.Background()
	r.deadLetters(1, 2, func(c escrow.Call) escrow.Answer { r.escrow.pay(c, c.Amount.Minor); return noAnswer() })
	r.deadLetters(2, 4, func(escrow.Call) escrow.Answer { return refused() })
	r.mustSubmit(release(4))
	r.untilNoneLive()
	q := refusedLetters()
	q.Filter.Transaction, q.Confirm = "txr_3", "1"
	if _, err := r.Purge(ctx, "acme", q); err != nil {
		t.Fatal(err)
	}
	all, err := r.As("acme", "").Cases.List(ctx, casestatus.Filter{}, "", 100)
	if err != nil || all.Total != 4 || len(all.Cases) != 4 || all.More || all.Money["EUR"] != (casestatus.Money{Cases: 4, Reserved: 3000, Released: 1000}) {
		t.Fatalf("%+v, %v", all, err)
	}
	for i, want := range []casestatus.Row{
		{Transaction: "txr_1", WaitsFor: casestatus.WaitsForFinding, Actions: []string{"lookup", "reconcile", "hold"}},
		{Transaction: "txr_2", WaitsFor: casestatus.WaitsForLetter, Actions: []string{"fork", "reconcile", "hold", "purge", "free", "adjudicate"}},
		{Transaction: "txr_3", WaitsFor: casestatus.WaitsForPurgedLetter, Actions: []string{"free", "adjudicate"}},
		{Transaction: "txr_4", Actions: []string{}},
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
	reserved, err := r.As("acme", "").Cases.List(ctx, casestatus.Filter{Reserved: true, States: []string{"dispute-ready"}}, "", 2)
	if err != nil || reserved.Total != 3 || len(reserved.Cases) != 2 || !reserved.More || reserved.Money["EUR"].Reserved != 3000 {
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
		"limit":  func() error { _, err := r.As("acme", "").Cases.List(ctx, casestatus.Filter{}, "", 0); return err },
		"cursor": func() error { _, err := r.As("acme", "").Cases.List(ctx, casestatus.Filter{}, "x", 2); return err },
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
	r := newRig(t).startWorkers()
	ctx := context.Background()
	letters := []Submitted{
		r.deadLetter(1, func(c escrow.Call) escrow.Answer { r.escrow.pay(c, c.Amount.Minor); return refused() }),
		r.deadLetter(2, func(escrow.Call) escrow.Answer { return refused() }),
	}
	r.stopWork()
	finding, err := r.As("acme", "user:ada").Bulk.PlanFinding(ctx, letters[0].Run, paidFinding)
	if err != nil {
		t.Fatal(err)
	}
	for _, plan := range []Bulk{finding, r.mustPlanFree(freeRequest("txr_2"))} {
		b, err := r.As("acme", "user:bob").Bulk.Run(ctx, plan.ID, plan.Hash)
		r.checkBulkState(b, err, BulkRunning)
		var all sync.WaitGroup
		for range 4 {
			other := joinRig(t, r.url, r.redis, r.escrow)
			all.Go(func() { other.mustWorkBulk(plan) })
		}
		all.Wait()
		if b := r.untilPlanDone(plan.ID); b.Progress.Done != 1 {
			t.Errorf("%s: %+v", plan.Action, b.Progress)
		}
	}
	for subtype, letter := range map[receipts.Subtype]Submitted{receipts.Reconciled: letters[0], receipts.ReservationFreed: letters[1]} {
		if payloads := r.payloadsOf(letter, subtype); len(payloads) != 1 {
			t.Errorf("%s: %+v", subtype, payloads)
		}
	}
	r.mustAudit()
}

// A reservation stays while a call of any run of the case is in flight, whatever the finding
// about its last run: that call may still pay.
func TestNothingIsFreedWhileACallOfTheParentIsOut(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	r := newRig(t, func(c *Config) { c.TimeLimit, c.Policy.MaxRetryAttempts = 100*time.Millisecond, 1 })
	answer, hangs := make(chan struct{}), r.mustSubmit(release(1))
	r.escrow.script = func(_ context.Context, c escrow.Call) escrow.Answer {
		if c.Run != hangs.Run {
			return refused()
		}
		<-answer
		return r.escrow.pay(c, c.Amount.Minor)
	}
	r.startWorkers()
	letter := func(s Submitted) {
		t.Helper()
		r.until("it is a letter", `SELECT EXISTS (SELECT FROM recourse.runs WHERE id = $1 AND letter = 'open')`, s.Run.String())
	}
	letter(hangs)
	fork, err := r.As("acme", "user:ada").DeadLetters.Fork(ctx, hangs.Run, forkRequest)
	if err != nil {
		t.Fatal(err)
	}
	letter(asSubmitted(fork))
	found := casework.Finding{Reason: "the bank's statement", Class: escrow.NotExecuted, Reference: "stmt-7", CallOutstanding: true}
	if _, err := r.Reconcile(ctx, "acme", fork.Run, found); err != nil {
		t.Fatal(err)
	}
	plan := r.mustPlanFree(freeRequest("txr_1"))
	if plan.Ready != 0 || plan.Refused[refusal.GateCallOutstanding] != 1 {
		t.Errorf("planned: %+v", plan)
	}
	if b := r.runPlan(plan); b.Progress.Refused != 1 || b.Progress.ByGate[refusal.GateCallOutstanding] != 1 {
		t.Errorf("run: %+v", b.Progress)
	}
	close(answer)
	r.until("the late payment is recorded", `SELECT EXISTS (SELECT FROM recourse.receipts WHERE subtype = 'answered-late')`)
	if c := r.caseOf(release(1)); c.Progression != settlement.Settled || c.Released != 1000 || c.Excess != 0 {
		t.Errorf("%+v", c)
	}
	r.mustAudit()
}
