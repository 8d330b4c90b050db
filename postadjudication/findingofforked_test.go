package postadjudication

import (
	"context"
	"errors"
	"testing"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/internal/casework"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/settlement"
)

// forkedPaidLetter creates a letter whose attempt was refused by the escrow service though it
// had paid, and its fork, which waits behind a breaker.
func (r *rig) forkedPaidLetter(minor int64) (letter, fork Submitted) {
	r.t.Helper()
	letter = r.deadLetter(1, func(c escrow.Call) escrow.Answer { r.escrow.pay(c, minor); return refused() })
	if _, err := r.As("acme", "user:ada").Breakers.Open(context.Background(), escrow.DefaultTarget, "stop"); err != nil {
		r.t.Fatal(err)
	}
	return letter, r.mustFork(letter)
}

// findPaid records with two people that a run was paid.
func (r *rig) findPaid(s Submitted, f casework.Finding) {
	r.t.Helper()
	_, err := r.Service.As("acme", "user:ada").DeadLetters.Reconcile(context.Background(), s.Run, f)
	if b := r.runPlan(r.secondPerson(err)); b.Progress.Done != 1 {
		r.t.Errorf("%+v", b.Progress)
	}
}

// checkPaid checks the case of a forked letter that was found to be paid in full.
func (r *rig) checkPaid(letter Submitted) {
	r.t.Helper()
	if c := r.caseOf(release(1)); c.Progression != settlement.Settled || c.Released != 1000 || c.Reserved != 0 || c.Committed != 1000 || c.UnknownOpen != 0 || c.Excess != 0 {
		r.t.Errorf("%+v", c)
	}
	if got := r.letterStatus(letter); got != background.LetterForked {
		r.t.Errorf("the letter is %s", got)
	}
	r.checkNoBreach()
	r.mustAudit()
}

// The fork has the operation key of its letter: a payment under the key is the fork's payment
// too, and no further call is made.
func TestAFindingOfAForkedLetterEndsTheForkThatWaits(t *testing.T) {
	t.Parallel()
	r := newRig(t).startWorkers()
	letter, fork := r.forkedPaidLetter(1000)
	calls := r.escrow.totalCalls()
	r.findPaid(letter, paidFinding)
	if st := r.status(fork.Run); st.State != background.Succeeded || st.Class != escrow.Executed || st.Attempts != 0 {
		t.Errorf("%+v", st)
	}
	if _, err := r.As("acme", "user:ada").Breakers.Release(context.Background(), escrow.DefaultTarget, "go"); err != nil {
		t.Fatal(err)
	}
	r.untilNoneLive()
	if n := r.escrow.totalCalls(); n != calls {
		t.Errorf("%d calls after the finding", n-calls)
	}
	payloads := r.payloadsOf(letter, receipts.Reconciled)
	if len(payloads) != 2 || payloads[0].FindingReference != "stmt-7" || payloads[0].PlannedBy != "user:ada" || !payloads[1].Ended || payloads[1].PlannedBy != "user:ada" {
		t.Errorf("%+v", payloads)
	}
	r.checkPaid(letter)
}

// A fork during its call ends with that attempt, whatever the answer.
func TestAFindingOfAForkedLetterStopsTheRetriesOfAForkThatRuns(t *testing.T) {
	t.Parallel()
	r := newRig(t).startWorkers()
	letter := r.deadLetter(1, func(c escrow.Call) escrow.Answer { r.escrow.pay(c, 1000); return refused() })
	called, answer := make(chan struct{}), make(chan struct{})
	r.escrow.mu.Lock()
	r.escrow.script = func(context.Context, escrow.Call) escrow.Answer {
		close(called) // a second call panics
		<-answer
		return noAnswer()
	}
	r.escrow.mu.Unlock()
	fork := r.mustFork(letter)
	<-called
	r.findPaid(letter, paidFinding)
	if st := r.status(fork.Run); st.State != background.Running {
		t.Errorf("%+v", st)
	}
	close(answer)
	r.untilNoneLive()
	if st := r.status(fork.Run); st.State != background.Succeeded || st.Class != escrow.Executed || st.Attempts != 1 {
		t.Errorf("%+v", st)
	}
	r.checkPaid(letter)
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
		"a part": {400, background.DeadLettered, casework.ReasonPaidUnderOlderKey},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, func(c *Config) { c.Executor = replayingEscrow{c.Executor.(*scriptedEscrow)} }).startWorkers()
			letter, fork := r.forkedPaidLetter(c.paid)
			calls := r.escrow.totalCalls()
			found := paidFinding
			found.Moved, found.OtherAmount = c.paid, c.paid != 1000
			r.findPaid(letter, found)
			if st := r.status(fork.Run); st.State != c.state || st.ReasonCode != c.reason || st.Attempts != 0 {
				t.Errorf("%+v", st)
			}
			if _, err := r.As("acme", "user:ada").Breakers.Release(context.Background(), escrow.DefaultTarget, "go"); err != nil {
				t.Fatal(err)
			}
			r.untilNoneLive()
			if k := r.caseOf(release(1)); k.Released != c.paid || k.Reserved != 0 || k.Excess != 0 || r.escrow.totalCalls() != calls {
				t.Errorf("%+v, %d calls", k, r.escrow.totalCalls()-calls)
			}
			r.mustAudit()
		})
	}
}

// A fork that ended unpaid does not hide the payment, and its open letter is closed.
func TestAFindingOfAForkedLetterIsTakenAfterItsForkHasEnded(t *testing.T) {
	t.Parallel()
	t.Run("as a letter", func(t *testing.T) {
		t.Parallel()
		r := newRig(t).startWorkers()
		letter := r.deadLetter(1, func(c escrow.Call) escrow.Answer { r.escrow.pay(c, 1000); return refused() })
		r.escrow.mu.Lock()
		r.escrow.script = func(context.Context, escrow.Call) escrow.Answer { return refused() }
		r.escrow.mu.Unlock()
		fork := r.mustFork(letter)
		r.untilNoneLive()
		r.findPaid(letter, paidFinding)
		if got := r.letterStatus(fork); got != background.LetterReconciled {
			t.Errorf("the fork's letter is %s", got)
		}
		r.checkPaid(letter)
	})
	t.Run("cancelled", func(t *testing.T) {
		t.Parallel()
		r := newRig(t).startWorkers()
		letter, fork := r.forkedPaidLetter(1000)
		if _, err := r.cancel(fork); err != nil {
			t.Fatal(err)
		}
		r.findPaid(letter, paidFinding)
		if st := r.status(fork.Run); st.State != background.Cancelled {
			t.Errorf("%+v", st)
		}
		r.checkPaid(letter)
	})
}

// A payment known from the fork is not recorded again for its letter, and a finding that
// nothing was paid is refused.
func TestAForkedLetterWhoseForkWasPaidTakesNoFinding(t *testing.T) {
	t.Parallel()
	r := newRig(t).startWorkers()
	ctx := context.Background()
	letter := r.deadLetter(1, func(escrow.Call) escrow.Answer { return refused() })
	_, err := r.Service.As("acme", "user:ada").DeadLetters.Reconcile(ctx, letter.Run, paidFinding)
	plan := r.secondPerson(err)
	r.mustFork(letter)
	r.untilNoneLive()
	var refused *refusal.RefusedError
	if _, err := r.Service.As("acme", "user:ada").DeadLetters.Reconcile(ctx, letter.Run, paidFinding); !errors.As(err, &refused) || refused.Gate != refusal.GateNotOpen || refused.Letter != background.LetterForked || refused.Because == "" {
		t.Errorf("%v", err)
	}
	nothing := paidFinding
	nothing.Class, nothing.Moved = escrow.NotExecuted, 0
	if _, err := r.Reconcile(ctx, "acme", letter.Run, nothing); !errors.As(err, &refused) || refused.Gate != refusal.GateNotOpen {
		t.Errorf("%v", err)
	}
	if b := r.runPlan(plan); b.Progress.PlanStale != 1 {
		t.Errorf("planned before the fork: %+v", b.Progress)
	}
	if payloads := r.payloadsOf(letter, receipts.Reconciled); len(payloads) != 0 {
		t.Errorf("%+v", payloads)
	}
	r.checkPaid(letter)
}
