package postadjudication

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication/casestatus"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/settlement"
)

// cancelledFork creates a fork of a dead letter that was cancelled before its first call by the
// person who forked it.
func (r *rig) cancelledFork(n int) Submitted {
	r.t.Helper()
	ctx := context.Background()
	letter := r.deadLetter(n, func(escrow.Call) escrow.Answer { return refused() })
	if _, err := r.As("acme", "user:ada").Breakers.Open(ctx, escrow.DefaultTarget, "stop"); err != nil {
		r.t.Fatal(err)
	}
	fork, err := r.As("acme", "user:ada").DeadLetters.Fork(ctx, letter.Run, forkRequest)
	if err != nil {
		r.t.Fatal(err)
	}
	if st, err := r.cancel(asSubmitted(fork)); err != nil || st.State != background.Cancelled {
		r.t.Fatalf("%+v, %v", st, err)
	}
	if _, err := r.As("acme", "user:ada").Breakers.Release(ctx, escrow.DefaultTarget, "go"); err != nil {
		r.t.Fatal(err)
	}
	return asSubmitted(fork)
}

// checkReservationKept checks that the reservation of a case exists and that the list of cases
// shows it.
func (r *rig) checkReservationKept(a Adjudication, fork Submitted, reserved int64) {
	r.t.Helper()
	if c := r.caseOf(a); c.Progression != settlement.ReviewNeeded || c.ReasonCode != settlement.RequestRevision || c.Reserved != reserved {
		r.t.Errorf("%+v", c.State)
	}
	payloads := r.payloadsOf(fork, receipts.Cancelled)
	if len(payloads) != 1 || !payloads[0].ReservationKept || payloads[0].Settlement == nil || payloads[0].Settlement.Reserved != reserved {
		r.t.Errorf("%+v", payloads)
	}
	page, err := r.As("acme", "").Cases.List(context.Background(), casestatus.Filter{Reserved: true, Transaction: a.TransactionReceiptID}, "", 10)
	if err != nil || len(page.Cases) != 1 {
		r.t.Fatalf("%+v, %v", page, err)
	}
	if row := page.Cases[0]; row.WaitsFor != casestatus.WaitsForFreeing || row.Reserved != reserved || row.Run != fork.Run || !slices.Equal(row.Actions, []string{"free", "adjudicate"}) {
		r.t.Errorf("%+v", row)
	}
}

// The reservation of a dead letter stays when its fork is cancelled: two people free it.
func TestACancelOfAForkFreesNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t).startWorkers()
	ctx := context.Background()
	fork := r.cancelledFork(1)
	r.checkReservationKept(release(1), fork, 1000)
	r.mustAudit()
	if s := r.mustSubmit(release(1)); s.Reply != Cancelled || s.Actor != "user:ada" {
		t.Errorf("the same again: %+v", s)
	}
	plan := r.mustPlanFree(freeRequest("txr_1"))
	if plan.Items != 1 || plan.Ready != 1 || plan.People != 2 || plan.Money["EUR"] != 1000 {
		t.Errorf("%+v", plan)
	}
	var second *SecondPersonError
	if _, err := r.As("acme", "user:ada").Bulk.Run(ctx, plan.ID, plan.Hash); !errors.As(err, &second) {
		t.Errorf("alone: %v", err)
	}
	if b := r.runPlan(plan); b.Progress.Done != 1 || b.Progress.Money["EUR"] != 1000 {
		t.Errorf("%+v", b.Progress)
	}
	if c := r.caseOf(release(1)); c.Progression != settlement.ReviewNeeded || c.Reserved != 0 || c.Committed != 0 {
		t.Errorf("%+v", c)
	}
	if st := r.status(fork.Run); st.State != background.Cancelled || st.Letter != background.NoLetter {
		t.Errorf("%+v", st)
	}
	r.mustAudit()
}

// A higher generation takes over the reservation, as it does that of an open letter.
func TestAHigherGenerationTakesOverWhatACancelledForkKept(t *testing.T) {
	t.Parallel()
	r := newRig(t).startWorkers()
	r.cancelledFork(1)
	next := release(1)
	next.Generation = 2
	next.Amount = euros(600)
	s := r.mustSubmit(next)
	if s.Reply != Created {
		t.Fatalf("%+v", s)
	}
	if payloads := r.payloadsOf(s, receipts.Submitted); len(payloads) != 3 || payloads[2].Generation != 2 || payloads[2].Settlement.Reserved != 600 || payloads[2].Freed != 400 || payloads[0].Freed != 0 || payloads[1].Freed != 0 {
		t.Errorf("%+v", payloads)
	}
	r.untilNoneLive()
	if c := r.caseOf(next); c.Progression != settlement.Settled || c.Released != 600 || c.Committed != 600 {
		t.Errorf("%+v", c)
	}
	r.mustAudit()
}

// The same holds for a fork cancelled during its call, for a fork of a fork, and where one
// person is enough.
func TestACancelOfARunningForkFreesNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t).startWorkers()
	ctx := context.Background()
	if _, err := r.As("acme", "user:root").People.Set(ctx, PeopleChange{People: 1, Reason: "one person only"}); err != nil {
		t.Fatal(err)
	}
	letter := r.deadLetter(1, func(escrow.Call) escrow.Answer { return refused() })
	r.escrow.mu.Lock()
	r.escrow.script = func(context.Context, escrow.Call) escrow.Answer { return refused() }
	r.escrow.mu.Unlock()
	first, err := r.As("acme", "user:ada").DeadLetters.Fork(ctx, letter.Run, forkRequest)
	if err != nil {
		t.Fatal(err)
	}
	r.untilNoneLive()
	called, answer := make(chan struct{}, 1), make(chan struct{})
	r.escrow.mu.Lock()
	r.escrow.script = func(context.Context, escrow.Call) escrow.Answer {
		called <- struct{}{}
		<-answer
		return busy429()
	}
	r.escrow.mu.Unlock()
	fork, err := r.As("acme", "user:ada").DeadLetters.Fork(ctx, first.Run, forkRequest)
	if err != nil {
		t.Fatal(err)
	}
	<-called
	if st, err := r.cancel(asSubmitted(fork)); err != nil || !st.CancelAsked {
		t.Errorf("%+v, %v", st, err)
	}
	close(answer)
	r.untilNoneLive()
	r.checkReservationKept(release(1), asSubmitted(fork), 1000)
	if b := r.runPlan(r.mustPlanFree(freeRequest("txr_1"))); b.Progress.Done != 1 || b.People != 1 {
		t.Errorf("%+v", b)
	}
	r.mustAudit()
}
