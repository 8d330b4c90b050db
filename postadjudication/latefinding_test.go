package postadjudication_test

import (
	"context"
	"errors"
	"testing"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/deadletter"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/internal/rig"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/settlement"
)

// purgedPaidLetter returns a letter that was purged after the escrow service refused, though it
// had paid.
func purgedPaidLetter(r *rig.Rig, n int, minor int64) postadjudication.Submitted {
	r.T.Helper()
	letter := r.DeadLetter(n, func(c escrow.Call) escrow.Answer { r.Escrow.Pay(c, minor); return rig.Refused() })
	r.MustPurge(deadletter.Filter{Transaction: rig.Release(n).TransactionReceiptID}, 1)
	return letter
}

func TestAPaymentIsRecordedAlsoAfterThePurge(t *testing.T) {
	t.Parallel()
	r := rig.New(t).StartWorkers()
	byRun, byCase := purgedPaidLetter(r, 1, 1000), purgedPaidLetter(r, 2, 1000)
	ctx := context.Background()
	var refused *refusal.RefusedError
	nothing := rig.PaidFinding
	nothing.Class, nothing.Moved = escrow.NotExecuted, 0
	if _, err := r.Reconcile(ctx, "acme", byRun.Run, nothing); !errors.As(err, &refused) || refused.Gate != refusal.GateNotOpen || refused.Letter != background.LetterPurged {
		t.Errorf("nothing to clear: %v", err)
	}
	for range 2 { // the second time it is a repetition, and audited again
		if c, err := r.Reconcile(ctx, "acme", byRun.Run, rig.PaidFinding); err != nil || c.Progression != settlement.Settled || c.Released != 1000 || c.Reserved != 0 {
			t.Errorf("%+v, %v", c, err)
		}
	}
	if c, err := r.ReconcileCase(ctx, "acme", "txr_2", rig.PaidFinding); err != nil || c.Progression != settlement.Settled {
		t.Errorf("%+v, %v", c, err)
	}
	for _, letter := range []postadjudication.Submitted{byRun, byCase} {
		if got := r.LetterStatus(letter); got != background.LetterPurged {
			t.Errorf("the letter is %s", got)
		}
	}
	if payloads := r.Payloads(byRun, receipts.Reconciled); len(payloads) != 2 || payloads[0].Finding != string(escrow.Executed) || payloads[0].FindingReference != "stmt-7" || payloads[1].Settlement != nil {
		t.Errorf("%+v", payloads)
	}
	if _, err := r.ReconcileCase(ctx, "", "txr_2", rig.PaidFinding); !errors.Is(err, refusal.ErrNotFound) {
		t.Errorf("no tenant: %v", err)
	}
	r.MustAudit()
}

// A payment is found after a reservation was freed or a run cancelled: two people record it, and the sums are right.
func TestAPaymentIsRecordedAlsoAfterItsReservationWasFreed(t *testing.T) {
	t.Parallel()
	r := rig.New(t).StartWorkers()
	ctx := context.Background()
	lies := func(c escrow.Call) escrow.Answer { r.Escrow.Pay(c, c.Amount.Minor); return rig.Refused() }
	freed, older, forked, superseded := r.DeadLetter(1, lies), r.DeadLetter(2, lies), r.DeadLetter(3, lies), r.DeadLetter(4, lies)
	for _, transaction := range []string{"txr_1", "txr_2"} {
		if b := r.RunPlan(rig.MustPlanFree(r, rig.FreeRequest(transaction))); b.Progress.Done != 1 {
			t.Fatalf("%+v", b.Progress)
		}
	}
	if _, err := r.As("acme", "user:ada").Breakers.Open(ctx, escrow.DefaultTarget, "stop"); err != nil {
		t.Fatal(err)
	}
	higher := rig.Release(2)
	higher.Generation = 2
	waits := r.MustSubmit(higher)
	instead := rig.Release(4)
	instead.Generation = 2
	waitsToo := r.MustSubmit(instead)
	fork, err := r.As("acme", "user:ada").DeadLetters.Fork(ctx, forked.Run, rig.ForkRequest)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := rig.CancelRun(r, rig.AsSubmitted(fork)); err != nil {
		t.Fatal(err)
	}
	nothing := rig.PaidFinding
	nothing.Class, nothing.Moved = escrow.NotExecuted, 0
	var refused *refusal.RefusedError
	if _, err := r.Reconcile(ctx, "acme", freed.Run, nothing); !errors.As(err, &refused) || refused.Gate != refusal.GateNotOpen {
		t.Errorf("nothing to clear: %v", err)
	}
	for _, paid := range []postadjudication.Submitted{freed, older, rig.AsSubmitted(fork), superseded} {
		_, err := r.Service.As("acme", "user:ada").DeadLetters.Reconcile(ctx, paid.Run, rig.PaidFinding)
		if b := r.RunPlan(rig.PlanForSecondPerson(r, err)); b.Progress.Done != 1 {
			t.Errorf("%+v", b.Progress)
		}
		payloads := r.Payloads(paid, receipts.Reconciled)
		if len(payloads) == 0 || payloads[len(payloads)-1].Finding != string(escrow.Executed) || payloads[len(payloads)-1].PlannedBy != "user:ada" {
			t.Errorf("%+v", payloads)
		}
	}
	if c := r.CaseOf(rig.Release(1)); c.Progression != settlement.Settled || c.Released != 1000 || c.Reserved != 0 || c.Committed != 1000 || r.LetterStatus(freed) != background.LetterReconciled {
		t.Errorf("freed: %+v", c)
	}
	if c := r.CaseOf(rig.Release(3)); c.Progression != settlement.Settled || c.Released != 1000 || c.Reserved != 0 || c.Committed != 1000 {
		t.Errorf("the fork: %+v", c)
	}
	if st := r.StatusOf(fork.Run); st.State != background.Cancelled {
		t.Errorf("%+v", st)
	}
	// The newer decision would pay on top: its run is a letter that can't be forked.
	for _, newer := range []struct {
		of  postadjudication.Adjudication
		run postadjudication.Submitted
	}{{higher, waits}, {instead, waitsToo}} {
		if c, st := r.CaseOf(newer.of), r.StatusOf(newer.run.Run); c.Progression != settlement.DisputeReady || c.Released != 1000 || c.Reserved != 0 || st.ReasonCode != postadjudication.ReasonPaidUnderOlderKey {
			t.Errorf("older of %s: %+v, %+v", newer.of.TransactionReceiptID, c, st)
		}
	}
	if _, err := r.Reconcile(ctx, "acme", freed.Run, rig.PaidFinding); !errors.As(err, &refused) || refused.Gate != refusal.GateAlreadyRecorded {
		t.Errorf("known already: %v", err)
	}
	if n := r.CountReceipts(rig.Receipts{Subtype: receipts.ConservationBreach}); n != 0 {
		t.Errorf("no more was paid than was decided, and %d receipts report a breach", n)
	}
	rig.CheckNoBreach(r)
	r.MustAudit()
}

// After a free, a payment is a breach only if more was paid than was decided, payments under
// older keys included.
func TestAPaymentAfterItsReservationWasFreedIsABreachWhenItIsTooMuch(t *testing.T) {
	t.Parallel()
	t.Run("more than was decided", func(t *testing.T) {
		t.Parallel()
		r := rig.New(t).StartWorkers()
		r.AllowOverpaid = true
		letter := r.DeadLetter(1, func(c escrow.Call) escrow.Answer { r.Escrow.Pay(c, 1300); return rig.Refused() })
		if b := r.RunPlan(rig.MustPlanFree(r, rig.FreeRequest("txr_1"))); b.Progress.Done != 1 {
			t.Fatalf("%+v", b.Progress)
		}
		much := rig.PaidFinding
		much.Moved, much.OtherAmount = 1300, true
		if c, err := r.Reconcile(context.Background(), "acme", letter.Run, much); err != nil || c.Excess != 300 || c.Released != 1300 {
			t.Errorf("%+v, %v", c, err)
		}
		r.WaitBreached(300)
		r.MustAudit()
	})
	t.Run("an older key had reduced the reservation", func(t *testing.T) {
		t.Parallel()
		o := newOlderKeyCase(t, func(_ context.Context, r *rig.Rig, c escrow.Call) escrow.Answer {
			r.Escrow.Pay(c, c.Amount.Minor)
			return rig.Refused()
		})
		o.AllowOverpaid = true
		dead := o.MustSubmit(o.higher(2))
		o.WaitLetter(dead.Run)
		o.payOlderKey()
		if b := o.RunPlan(rig.MustPlanFree(o.Rig, rig.FreeRequest("txr_1"))); b.Progress.Done != 1 {
			t.Fatalf("%+v", b.Progress)
		}
		if c, err := o.Reconcile(context.Background(), "acme", dead.Run, rig.PaidFinding); err != nil || c.Released != 1400 || c.Excess != lateMinor {
			t.Errorf("%+v, %v", c, err)
		}
		o.WaitBreached(400)
		o.MustAudit()
	})
	t.Run("an earlier generation was paid in part", func(t *testing.T) {
		t.Parallel()
		r := rig.New(t).StartWorkers()
		r.Escrow.Script(func(_ context.Context, c escrow.Call) escrow.Answer {
			if c.Generation == 1 {
				return r.Escrow.Pay(c, 400)
			}
			r.Escrow.Pay(c, c.Amount.Minor)
			return rig.Refused()
		})
		r.MustSubmit(rig.Release(1))
		r.WaitNoneLive()
		rest := rig.Release(1)
		rest.Generation, rest.Amount = 2, rig.Euros(600)
		letter := r.MustSubmit(rest)
		r.WaitNoneLive()
		if b := r.RunPlan(rig.MustPlanFree(r, rig.FreeRequest("txr_1"))); b.Progress.Done != 1 {
			t.Fatalf("%+v", b.Progress)
		}
		found := rig.PaidFinding
		found.Moved = 600
		if c, err := r.Reconcile(context.Background(), "acme", letter.Run, found); err != nil || c.Progression != settlement.Settled || c.Released != 1000 || c.Excess != 0 {
			t.Errorf("%+v, %v", c, err)
		}
		rig.CheckNoBreach(r)
		r.MustAudit()
	})
}

// A finding can't be taken back: another amount than expected must be confirmed.
func TestAFindingOfAnotherAmountSaysSo(t *testing.T) {
	t.Parallel()
	r := rig.New(t).StartWorkers()
	ctx := context.Background()
	open := r.DeadLetter(1, func(c escrow.Call) escrow.Answer { r.Escrow.Pay(c, 400); return rig.Refused() })
	freed := r.DeadLetter(3, func(c escrow.Call) escrow.Answer { r.Escrow.Pay(c, 400); return rig.Refused() })
	if b := r.RunPlan(rig.MustPlanFree(r, rig.FreeRequest("txr_3"))); b.Progress.Done != 1 {
		t.Fatalf("%+v", b.Progress)
	}
	for _, letter := range []postadjudication.Submitted{open, purgedPaidLetter(r, 2, 400), freed} {
		part := rig.PaidFinding
		part.Moved = 400
		var field *refusal.FieldError
		if _, err := r.Reconcile(ctx, "acme", letter.Run, part); !errors.As(err, &field) || field.Field != "other_amount" {
			t.Errorf("%v", err)
		}
		if payloads := r.Payloads(letter, receipts.Reconciled); len(payloads) != 0 {
			t.Errorf("recorded all the same: %+v", payloads)
		}
		part.OtherAmount = true
		if c, err := r.Reconcile(ctx, "acme", letter.Run, part); err != nil || c.Released != 400 || c.Reserved != 0 {
			t.Errorf("%+v, %v", c, err)
		}
	}
	// For a decision that was replaced by one of another amount, its own amount is expected.
	replaced := r.DeadLetter(4, func(c escrow.Call) escrow.Answer { r.Escrow.Pay(c, 1000); return rig.Refused() })
	if _, err := r.As("acme", "user:ada").Breakers.Open(ctx, escrow.DefaultTarget, "stop"); err != nil {
		t.Fatal(err)
	}
	half := rig.Release(4)
	half.Generation, half.Amount = 2, rig.Euros(500)
	r.MustSubmit(half)
	part := rig.PaidFinding
	part.Moved = 500
	var field *refusal.FieldError
	if _, err := r.Reconcile(ctx, "acme", replaced.Run, part); !errors.As(err, &field) || field.Field != "other_amount" {
		t.Errorf("what the newer one asks for: %v", err)
	}
	if c, err := r.Reconcile(ctx, "acme", replaced.Run, rig.PaidFinding); err != nil || c.Released != 1000 {
		t.Errorf("%+v, %v", c, err)
	}
	r.MustAudit()
}
