package postadjudication_test

import (
	"context"
	"errors"
	"testing"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/casestatus"
	"github.com/recourse-dev/recourse/postadjudication/deadletter"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/internal/rig"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/settlement"
)

// forkedPaidLetter creates a letter whose attempt was refused by the escrow service though it
// had paid, and its fork, which waits behind a breaker.
func forkedPaidLetter(r *rig.Rig, minor int64) (letter, fork postadjudication.Submitted) {
	r.T.Helper()
	letter = r.DeadLetter(1, func(c escrow.Call) escrow.Answer { r.Escrow.Pay(c, minor); return rig.Refused() })
	if _, err := r.As("acme", "user:ada").Breakers.Open(context.Background(), escrow.DefaultTarget, "stop"); err != nil {
		r.T.Fatal(err)
	}
	return letter, r.MustFork(letter)
}

// findPaid records with two people that a run was paid.
func findPaid(r *rig.Rig, s postadjudication.Submitted, f deadletter.Finding) {
	r.T.Helper()
	_, err := r.Service.As("acme", "user:ada").DeadLetters.Reconcile(context.Background(), s.Run, f)
	if b := r.RunPlan(rig.PlanForSecondPerson(r, err)); b.Progress.Done != 1 {
		r.T.Errorf("%+v", b.Progress)
	}
}

// checkPaid checks the case of a forked letter that was found to be paid in full.
func checkPaid(r *rig.Rig, letter postadjudication.Submitted) {
	r.T.Helper()
	if c := r.CaseOf(rig.Release(1)); c.Progression != settlement.Settled || c.Released != 1000 || c.Reserved != 0 || c.Committed != 1000 || c.UnknownOpen != 0 || c.Excess != 0 {
		r.T.Errorf("%+v", c)
	}
	if got := r.LetterStatus(letter); got != background.LetterForked {
		r.T.Errorf("the letter is %s", got)
	}
	rig.CheckNoBreach(r)
	r.MustAudit()
}

// The fork has the operation key of its letter: a payment under the key is the fork's payment
// too, and no further call is made.
func TestAFindingOfAForkedLetterEndsTheForkThatWaits(t *testing.T) {
	t.Parallel()
	r := rig.New(t).StartWorkers()
	letter, fork := forkedPaidLetter(r, 1000)
	calls := r.Escrow.TotalCalls()
	findPaid(r, letter, rig.PaidFinding)
	if st := r.StatusOf(fork.Run); st.State != background.Succeeded || st.Class != escrow.Executed || st.Attempts != 0 {
		t.Errorf("%+v", st)
	}
	if _, err := r.As("acme", "user:ada").Breakers.Release(context.Background(), escrow.DefaultTarget, "go"); err != nil {
		t.Fatal(err)
	}
	r.WaitNoneLive()
	if n := r.Escrow.TotalCalls(); n != calls {
		t.Errorf("%d calls after the finding", n-calls)
	}
	payloads := r.Payloads(letter, receipts.Reconciled)
	if len(payloads) != 2 || payloads[0].FindingReference != "stmt-7" || payloads[0].PlannedBy != "user:ada" || !payloads[1].Ended || payloads[1].PlannedBy != "user:ada" {
		t.Errorf("%+v", payloads)
	}
	checkPaid(r, letter)
}

// A fork during its call ends with that attempt, whatever the answer.
func TestAFindingOfAForkedLetterStopsTheRetriesOfAForkThatRuns(t *testing.T) {
	t.Parallel()
	r := rig.New(t).StartWorkers()
	letter := r.DeadLetter(1, func(c escrow.Call) escrow.Answer { r.Escrow.Pay(c, 1000); return rig.Refused() })
	called, answer := make(chan struct{}), make(chan struct{})
	r.Escrow.Script(func(context.Context, escrow.Call) escrow.Answer {
		close(called) // a second call panics
		<-answer
		return rig.NoAnswer()
	})
	fork := r.MustFork(letter)
	<-called
	findPaid(r, letter, rig.PaidFinding)
	if st := r.StatusOf(fork.Run); st.State != background.Running {
		t.Errorf("%+v", st)
	}
	close(answer)
	r.WaitNoneLive()
	if st := r.StatusOf(fork.Run); st.State != background.Succeeded || st.Class != escrow.Executed || st.Attempts != 1 {
		t.Errorf("%+v", st)
	}
	checkPaid(r, letter)
}

// A fork with its own key would pay again. If everything was paid it is cancelled; if a part
// was, a person decides about the rest.
func TestAFindingOfAForkedLetterEndsAForkOfAnotherKey(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		paid   int64
		state  background.State
		reason string
	}{
		"all":    {1000, background.Cancelled, ""},
		"a part": {400, background.DeadLettered, postadjudication.ReasonPaidUnderOlderKey},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := rig.New(t, func(c *postadjudication.Config) { c.Executor = replayingEscrow{c.Executor.(*rig.Escrow)} }).StartWorkers()
			letter, fork := forkedPaidLetter(r, c.paid)
			calls := r.Escrow.TotalCalls()
			found := rig.PaidFinding
			found.Moved, found.OtherAmount = c.paid, c.paid != 1000
			findPaid(r, letter, found)
			if st := r.StatusOf(fork.Run); st.State != c.state || st.ReasonCode != c.reason || st.Attempts != 0 {
				t.Errorf("%+v", st)
			}
			if _, err := r.As("acme", "user:ada").Breakers.Release(context.Background(), escrow.DefaultTarget, "go"); err != nil {
				t.Fatal(err)
			}
			r.WaitNoneLive()
			if k := r.CaseOf(rig.Release(1)); k.Released != c.paid || k.Reserved != 0 || k.Excess != 0 || r.Escrow.TotalCalls() != calls {
				t.Errorf("%+v, %d calls", k, r.Escrow.TotalCalls()-calls)
			}
			r.MustAudit()
		})
	}
}

// A fork that ended unpaid does not hide the payment, and its open letter is closed.
func TestAFindingOfAForkedLetterIsTakenAfterItsForkHasEnded(t *testing.T) {
	t.Parallel()
	t.Run("as a letter", func(t *testing.T) {
		t.Parallel()
		r := rig.New(t).StartWorkers()
		letter := r.DeadLetter(1, func(c escrow.Call) escrow.Answer { r.Escrow.Pay(c, 1000); return rig.Refused() })
		r.Escrow.Answer(rig.Refuses)
		fork := r.MustFork(letter)
		r.WaitNoneLive()
		findPaid(r, letter, rig.PaidFinding)
		if got := r.LetterStatus(fork); got != background.LetterReconciled {
			t.Errorf("the fork's letter is %s", got)
		}
		checkPaid(r, letter)
	})
	t.Run("cancelled", func(t *testing.T) {
		t.Parallel()
		r := rig.New(t).StartWorkers()
		letter, fork := forkedPaidLetter(r, 1000)
		if _, err := rig.CancelRun(r, fork); err != nil {
			t.Fatal(err)
		}
		findPaid(r, letter, rig.PaidFinding)
		if st := r.StatusOf(fork.Run); st.State != background.Cancelled {
			t.Errorf("%+v", st)
		}
		checkPaid(r, letter)
	})
}

// A payment known from the fork is not recorded again for its letter, and a finding that
// nothing was paid is refused.
func TestAForkedLetterWhoseForkWasPaidTakesNoFinding(t *testing.T) {
	t.Parallel()
	r := rig.New(t).StartWorkers()
	ctx := context.Background()
	letter := r.DeadLetter(1, rig.Refuses)
	_, err := r.Service.As("acme", "user:ada").DeadLetters.Reconcile(ctx, letter.Run, rig.PaidFinding)
	plan := rig.PlanForSecondPerson(r, err)
	r.MustFork(letter)
	r.WaitNoneLive()
	var refused *refusal.RefusedError
	if _, err := r.Service.As("acme", "user:ada").DeadLetters.Reconcile(ctx, letter.Run, rig.PaidFinding); !errors.As(err, &refused) || refused.Gate != refusal.GateAlreadyRecorded || refused.Letter != background.LetterForked {
		t.Errorf("%v", err)
	}
	nothing := rig.PaidFinding
	nothing.Class, nothing.Moved = escrow.NotExecuted, 0
	if _, err := r.Reconcile(ctx, "acme", letter.Run, nothing); !errors.As(err, &refused) || refused.Gate != refusal.GateNotOpen {
		t.Errorf("%v", err)
	}
	if b := r.RunPlan(plan); b.Progress.PlanStale != 1 {
		t.Errorf("planned before the fork: %+v", b.Progress)
	}
	if payloads := r.Payloads(letter, receipts.Reconciled); len(payloads) != 0 {
		t.Errorf("%+v", payloads)
	}
	checkPaid(r, letter)
}

// A fork with its own key whose call may have paid is not cancelled by the payment of its letter: a person has to
// find out whether both paid.
func TestAFindingOfAForkedLetterLeavesAForkThatMayHavePaidToAPerson(t *testing.T) {
	t.Parallel()
	r := rig.New(t, withDailyRetries, func(c *postadjudication.Config) { c.Executor = replayingEscrow{c.Executor.(*rig.Escrow)} }).StartWorkers()
	r.AllowOverpaid = true
	letter := r.DeadLetter(1, func(c escrow.Call) escrow.Answer { r.Escrow.Pay(c, 1000); return rig.Refused() })
	r.Escrow.Answer(func(c escrow.Call) escrow.Answer { r.Escrow.Pay(c, 1000); return rig.NoAnswer() })
	fork := r.MustFork(letter)
	r.WaitStatus("it waits, its outcome unknown", fork.Run, func(s casestatus.Status) bool {
		return s.State == background.Scheduled && s.Class == escrow.Unknown
	})
	findPaid(r, letter, rig.PaidFinding)
	if st := r.StatusOf(fork.Run); st.State != background.DeadLettered || st.Letter != background.LetterOpen || st.Class != escrow.Unknown || st.ReasonCode != "case_ended" {
		t.Errorf("%+v", st)
	}
	if c := r.CaseOf(rig.Release(1)); c.Progression != settlement.Settled || c.UnknownOpen != 1 {
		t.Errorf("%+v", c)
	}
	if _, err := r.As("acme", "user:ada").DeadLetters.Lookup(context.Background(), fork.Run); err != nil {
		t.Error(err)
	}
	if c := r.CaseOf(rig.Release(1)); c.Released != 2000 || c.UnknownOpen != 0 {
		t.Errorf("%+v", c)
	}
	r.MustAudit()
}
