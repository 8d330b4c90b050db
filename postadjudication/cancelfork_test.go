package postadjudication_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/bulk"
	"github.com/recourse-dev/recourse/postadjudication/casestatus"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/internal/rig"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/settlement"
)

// cancelledFork creates a fork of a dead letter that was cancelled before its first call by the
// person who forked it.
func cancelledFork(r *rig.Rig, n int) postadjudication.Submitted {
	r.T.Helper()
	ctx := context.Background()
	letter := r.DeadLetter(n, rig.Refuses)
	if _, err := r.As("acme", "user:ada").Breakers.Open(ctx, escrow.DefaultTarget, "stop"); err != nil {
		r.T.Fatal(err)
	}
	fork, err := r.As("acme", "user:ada").DeadLetters.Fork(ctx, letter.Run, rig.ForkRequest)
	if err != nil {
		r.T.Fatal(err)
	}
	if st, err := rig.CancelRun(r, rig.AsSubmitted(fork)); err != nil || st.State != background.Cancelled {
		r.T.Fatalf("%+v, %v", st, err)
	}
	if _, err := r.As("acme", "user:ada").Breakers.Release(ctx, escrow.DefaultTarget, "go"); err != nil {
		r.T.Fatal(err)
	}
	return rig.AsSubmitted(fork)
}

// checkReservationKept checks that the reservation of a case exists and that the list of cases
// shows it.
func checkReservationKept(r *rig.Rig, a postadjudication.Adjudication, fork postadjudication.Submitted, reserved int64) {
	r.T.Helper()
	if c := r.CaseOf(a); c.Progression != settlement.ReviewNeeded || c.ReasonCode != settlement.RequestRevision || c.Reserved != reserved {
		r.T.Errorf("%+v", c.State)
	}
	payloads := r.Payloads(fork, receipts.Cancelled)
	if len(payloads) != 1 || !payloads[0].ReservationKept || payloads[0].Settlement == nil || payloads[0].Settlement.Reserved != reserved {
		r.T.Errorf("%+v", payloads)
	}
	page, err := r.As("acme", "").Cases.List(context.Background(), casestatus.Filter{Reserved: true, Transaction: a.TransactionReceiptID}, "", 10)
	if err != nil || len(page.Cases) != 1 {
		r.T.Fatalf("%+v, %v", page, err)
	}
	if row := page.Cases[0]; row.WaitsFor != casestatus.WaitsForFreeing || row.Reserved != reserved || row.Run != fork.Run || !slices.Equal(row.Actions, []refusal.Action{"reconcile", "free", "adjudicate"}) || !slices.Equal(row.Findings, []escrow.Class{escrow.Executed}) {
		r.T.Errorf("%+v", row)
	}
}

// The reservation of a dead letter stays when its fork is cancelled: two people free it.
func TestACancelOfAForkFreesNothing(t *testing.T) {
	t.Parallel()
	r := rig.New(t).StartWorkers()
	ctx := context.Background()
	fork := cancelledFork(r, 1)
	checkReservationKept(r, rig.Release(1), fork, 1000)
	r.MustAudit()
	if s := r.MustSubmit(rig.Release(1)); s.Reply != postadjudication.Cancelled || s.Actor != "user:ada" {
		t.Errorf("the same again: %+v", s)
	}
	plan := rig.MustPlanFree(r, rig.FreeRequest("txr_1"))
	if plan.Items != 1 || plan.Ready != 1 || plan.People != 2 || plan.Money["EUR"] != settlement.SumOf(1000) {
		t.Errorf("%+v", plan)
	}
	var second *bulk.SecondPersonError
	if _, err := r.As("acme", "user:ada").Bulk.Run(ctx, plan.ID, plan.Hash); !errors.As(err, &second) {
		t.Errorf("alone: %v", err)
	}
	if b := r.RunPlan(plan); b.Progress.Done != 1 || b.Progress.Money["EUR"] != settlement.SumOf(1000) {
		t.Errorf("%+v", b.Progress)
	}
	if c := r.CaseOf(rig.Release(1)); c.Progression != settlement.ReviewNeeded || c.Reserved != 0 || c.Committed != 0 {
		t.Errorf("%+v", c)
	}
	if st := r.StatusOf(fork.Run); st.State != background.Cancelled || st.Letter != background.NoLetter {
		t.Errorf("%+v", st)
	}
	r.MustAudit()
}

// A higher generation takes over the reservation, as it does that of an open letter.
func TestAHigherGenerationTakesOverWhatACancelledForkKept(t *testing.T) {
	t.Parallel()
	r := rig.New(t).StartWorkers()
	cancelledFork(r, 1)
	next := rig.Release(1)
	next.Generation = 2
	next.Amount = rig.Euros(600)
	s := r.MustSubmit(next)
	if s.Reply != postadjudication.Created {
		t.Fatalf("%+v", s)
	}
	if payloads := r.Payloads(s, receipts.Submitted); len(payloads) != 3 || payloads[2].Generation != 2 || payloads[2].Settlement.Reserved != 600 || payloads[2].Freed != 400 || payloads[0].Freed != 0 || payloads[1].Freed != 0 {
		t.Errorf("%+v", payloads)
	}
	r.WaitNoneLive()
	if c := r.CaseOf(next); c.Progression != settlement.Settled || c.Released != 600 || c.Committed != 600 {
		t.Errorf("%+v", c)
	}
	r.MustAudit()
}

// The same holds for a fork cancelled during its call, for a fork of a fork, and where one
// person is enough.
func TestACancelOfARunningForkFreesNothing(t *testing.T) {
	t.Parallel()
	r := rig.New(t).StartWorkers()
	ctx := context.Background()
	r.OnePerson("one person only")
	letter := r.DeadLetter(1, rig.Refuses)
	r.Escrow.Answer(rig.Refuses)
	first, err := r.As("acme", "user:ada").DeadLetters.Fork(ctx, letter.Run, rig.ForkRequest)
	if err != nil {
		t.Fatal(err)
	}
	r.WaitNoneLive()
	called, answer := make(chan struct{}, 1), make(chan struct{})
	r.Escrow.Script(func(context.Context, escrow.Call) escrow.Answer {
		called <- struct{}{}
		<-answer
		return rig.RateLimited()
	})
	fork, err := r.As("acme", "user:ada").DeadLetters.Fork(ctx, first.Run, rig.ForkRequest)
	if err != nil {
		t.Fatal(err)
	}
	<-called
	if st, err := rig.CancelRun(r, rig.AsSubmitted(fork)); err != nil || !st.CancelRequested {
		t.Errorf("%+v, %v", st, err)
	}
	close(answer)
	r.WaitNoneLive()
	checkReservationKept(r, rig.Release(1), rig.AsSubmitted(fork), 1000)
	if b := r.RunPlan(rig.MustPlanFree(r, rig.FreeRequest("txr_1"))); b.Progress.Done != 1 || b.People != 1 {
		t.Errorf("%+v", b)
	}
	r.MustAudit()
}
