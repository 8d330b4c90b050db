package postadjudication

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication/casestatus"
	"github.com/recourse-dev/recourse/postadjudication/deadletter"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/internal/casework"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/retrypolicy"
	"github.com/recourse-dev/recourse/settlement"
)

const lateMinor = 400

// olderKeyCase is a case whose first generation was wrongly found not executed: its call is
// still out, and pays when the test lets it.
type olderKeyCase struct {
	*rig
	letter  Submitted
	payLate chan struct{}
}

// newOlderKeyCase submits a first generation of lateMinor, which pays late; script answers the
// calls of the others.
func newOlderKeyCase(t *testing.T, script func(context.Context, *rig, escrow.Call) escrow.Answer, change ...func(*Config)) *olderKeyCase {
	t.Helper()
	quick := func(c *Config) { c.TimeLimit = 100 * time.Millisecond; c.Policy.MaxRetryAttempts = 1 }
	o := &olderKeyCase{rig: newRig(t, append([]func(*Config){quick}, change...)...), payLate: make(chan struct{})}
	o.escrow.script = func(ctx context.Context, c escrow.Call) escrow.Answer {
		if c.Generation == 1 {
			<-o.payLate
			return o.escrow.pay(c, lateMinor)
		}
		return script(ctx, o.rig, c)
	}
	first := release(1)
	first.Amount = euros(lateMinor)
	o.letter = o.startWorkers().mustSubmit(first)
	o.until("the first generation is a dead letter", `SELECT EXISTS (SELECT FROM recourse.runs WHERE letter = 'open')`)
	none := casework.Finding{Reason: "the bank says no", Class: escrow.NotExecuted, Reference: "stmt-1", CallOutstanding: true}
	if _, err := o.Reconcile(context.Background(), "acme", o.letter.Run, none); err != nil {
		t.Fatal(err)
	}
	return o
}

// higher returns a generation that pays the whole escrow.
func (o *olderKeyCase) higher(generation int) Adjudication {
	a := release(1)
	a.Generation = generation
	return a
}

// payOlderKey lets the call of the first generation pay, and waits until that is recorded.
func (o *olderKeyCase) payOlderKey() {
	o.t.Helper()
	close(o.payLate)
	o.until("the late payment is recorded", `SELECT EXISTS (SELECT FROM recourse.receipts WHERE subtype = 'answered-late')`)
	if payloads := o.payloadsOf(o.letter, receipts.AnsweredLate); len(payloads) != 1 || !payloads[0].UnderOlderKey || payloads[0].Moved != lateMinor {
		o.t.Errorf("%+v", payloads)
	}
}

// checkUndercut checks a case of which the older key paid and the current generation nothing,
// and that its letter says so.
func (o *olderKeyCase) checkUndercut(present Submitted, reserved int64) {
	o.t.Helper()
	c := o.caseOf(release(1))
	if c.Progression != settlement.DisputeReady || c.Asked != 1000 || c.Moved != 0 || c.Released != lateMinor || c.Reserved != reserved {
		o.t.Errorf("%+v", c.State)
	}
	var refused *refusal.RefusedError
	if _, err := o.As("acme", "user:ada").DeadLetters.Fork(context.Background(), present.Run, forkRequest); !errors.As(err, &refused) || refused.Gate != refusal.GatePaidUnderOlderKey || !strings.Contains(err.Error(), "higher generation") {
		o.t.Errorf("a fork: %v", err)
	}
	o.checkNoBreach()
	o.mustAudit()
}

// checkNoBreach checks, with all deltas, that no escrow has committed more than it holds.
func (r *rig) checkNoBreach() {
	r.t.Helper()
	if _, err := r.journal.Escrows.FoldDeltas(context.Background()); err != nil {
		r.t.Fatal(err)
	}
	if n := r.count(`SELECT sum(breached) FROM recourse.escrows`); n != 0 {
		r.t.Errorf("breached by %d", n)
	}
}

func neverCalled(_ context.Context, r *rig, c escrow.Call) escrow.Answer {
	r.t.Errorf("generation %d was called", c.Generation)
	return refused()
}

// A run that waits when an older generation is found to have paid would pay on top: it ends as a
// dead letter, and its reservation is reduced by the payment.
func TestAPaymentUnderAnOlderKeyEndsTheRunThatWaits(t *testing.T) {
	t.Parallel()
	o := newOlderKeyCase(t, neverCalled)
	ctx := context.Background()
	if _, err := o.As("acme", "user:ada").Breakers.Open(ctx, escrow.DefaultTarget, "stop"); err != nil {
		t.Fatal(err)
	}
	waits := o.mustSubmit(o.higher(2))
	if waits.Reply != Created {
		t.Fatal(waits.Reply)
	}
	o.payOlderKey()
	if st := o.status(waits.Run); st.State != background.DeadLettered || st.Letter != background.LetterOpen || st.ReasonCode != "paid_under_older_key" || st.Attempts != 0 {
		t.Errorf("%+v", st)
	}
	if _, err := o.As("acme", "user:ada").Breakers.Release(ctx, escrow.DefaultTarget, "go"); err != nil {
		t.Fatal(err)
	}
	o.checkUndercut(waits, 600)
	if found := o.letters(deadletter.Filter{Status: background.LetterOpen}); len(found) != 1 || found[0].Run != waits.Run || found[0].RefusedBy != refusal.GatePaidUnderOlderKey {
		t.Errorf("the list of letters: %+v", found)
	}
	if plan := o.mustPlan(BulkRequest{Reason: "mended", Action: BulkFork, All: true}); plan.Ready != 0 || plan.Refused[refusal.GatePaidUnderOlderKey] != 1 {
		t.Errorf("a plan: %+v", plan)
	}
	inspected, err := o.As("acme", "").DeadLetters.Inspect(ctx, waits.Run)
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range inspected.Actions {
		if (a.Name == deadletter.ActionFork || a.Name == deadletter.ActionRetry) && (a.Allowed || a.RefusedBy != refusal.GatePaidUnderOlderKey) {
			t.Errorf("%+v", a)
		}
	}
}

// The same when the current generation is a letter already.
func TestAPaymentUnderAnOlderKeyLeavesALetterThatCantBeForked(t *testing.T) {
	t.Parallel()
	o := newOlderKeyCase(t, func(_ context.Context, _ *rig, c escrow.Call) escrow.Answer { return refused() })
	dead := o.mustSubmit(o.higher(2))
	o.until("the second letter", `SELECT EXISTS (SELECT FROM recourse.runs WHERE id = $1 AND letter = 'open')`, dead.Run.String())
	o.payOlderKey()
	o.checkUndercut(dead, 600)
}

// A running run ends when its attempt finishes, without a further attempt.
func TestAPaymentUnderAnOlderKeyStopsTheRetriesOfARunThatRuns(t *testing.T) {
	t.Parallel()
	called, answer := make(chan struct{}), make(chan struct{})
	o := newOlderKeyCase(t, func(context.Context, *rig, escrow.Call) escrow.Answer {
		close(called)
		<-answer
		return busy429()
	}, func(c *Config) { c.Policy.MaxRetryAttempts = 3; c.TimeLimit = 2 * time.Second })
	runs := o.mustSubmit(o.higher(2))
	<-called
	o.payOlderKey()
	if st := o.status(runs.Run); st.State != background.Running {
		t.Errorf("%+v", st)
	}
	close(answer)
	o.untilNoneLive()
	if st := o.status(runs.Run); st.State != background.DeadLettered || st.ReasonCode != "paid_under_older_key" || st.Attempts != 1 {
		t.Errorf("%+v", st)
	}
	o.checkUndercut(runs, 600)
}

// A payment beyond what is held is recorded all the same, and is a breach.
func TestBothGenerationsPay(t *testing.T) {
	t.Parallel()
	called, answer := make(chan struct{}), make(chan struct{})
	o := newOlderKeyCase(t, func(_ context.Context, r *rig, c escrow.Call) escrow.Answer {
		close(called)
		<-answer
		return r.escrow.pay(c, c.Amount.Minor)
	}, func(c *Config) { c.TimeLimit = 2 * time.Second })
	o.allowOverpaid = true
	runs := o.mustSubmit(o.higher(2))
	<-called
	o.payOlderKey()
	close(answer)
	o.untilNoneLive()
	if c := o.caseOf(release(1)); c.Progression != settlement.Settled || c.Moved != 1000 || c.Released != 1400 || c.Reserved != 0 {
		t.Errorf("%+v", c.State)
	}
	if payloads := o.payloadsOf(runs, receipts.ConservationBreach); len(payloads) != 1 || payloads[0].Excess != lateMinor {
		t.Errorf("%+v", payloads)
	}
	o.until("the escrow is breached", `SELECT breached = 400 FROM recourse.escrows`)
	o.mustAudit()
}

// A payment of an older generation reduces the reservation of the current one: an escrow that
// paid what it holds is not breached.
func TestAnOlderGenerationThatPaysAllIsNoBreach(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.startWorkers()
	letter := r.purgedPaidLetter(1, 1000)
	r.stopWork()
	higher := refund(1)
	higher.Generation = 2
	waits := r.mustSubmit(higher)
	if waits.Reply != Created {
		t.Fatalf("%+v", waits)
	}
	for range 2 { // the second time it is known
		c, err := r.Reconcile(context.Background(), "acme", letter.Run, paidFinding)
		if err != nil || c.Progression != settlement.DisputeReady || c.Released != 1000 || c.Reserved != 0 || c.Moved != 0 {
			t.Errorf("%+v, %v", c, err)
		}
	}
	r.checkNoBreach()
	if n := r.count(`SELECT count(*) FROM recourse.receipts WHERE subtype = 'conservation-breach'`); n != 0 {
		t.Errorf("1000 of 1000 was paid, and %d receipts report a breach", n)
	}
	if st := r.status(waits.Run); st.Letter != background.LetterOpen || st.ReasonCode != "paid_under_older_key" {
		t.Errorf("%+v", st)
	}
	r.mustAudit()
}

// The letter can be closed by a higher generation or by a person's finding.
func TestALetterThatCantBeForkedEnds(t *testing.T) {
	t.Parallel()
	undercut := func(t *testing.T) (*olderKeyCase, Submitted) {
		o := newOlderKeyCase(t, func(_ context.Context, r *rig, c escrow.Call) escrow.Answer {
			if c.Generation == 2 {
				return refused()
			}
			return r.escrow.pay(c, c.Amount.Minor)
		})
		dead := o.mustSubmit(o.higher(2))
		o.until("the second letter", `SELECT EXISTS (SELECT FROM recourse.runs WHERE id = $1 AND letter = 'open')`, dead.Run.String())
		o.payOlderKey()
		return o, dead
	}
	t.Run("by a higher generation", func(t *testing.T) {
		t.Parallel()
		o, dead := undercut(t)
		rest := o.higher(3)
		rest.Amount = euros(600)
		if s := o.mustSubmit(rest); s.Reply != Created {
			t.Fatal(s.Reply)
		}
		o.untilNoneLive()
		if c := o.caseOf(rest); c.Progression != settlement.Settled || c.Released != 1000 || o.letterStatus(dead) != background.LetterSuperseded {
			t.Errorf("%+v, %s", c.State, o.letterStatus(dead))
		}
		o.mustAudit()
	})
	t.Run("by a finding", func(t *testing.T) {
		t.Parallel()
		o, dead := undercut(t)
		c, err := o.Reconcile(context.Background(), "acme", dead.Run, casework.Finding{Reason: "the 400 was all there was to pay", Class: escrow.NotExecuted, Reference: "stmt-2", CallOutstanding: true})
		if err != nil || c.Progression != settlement.PartiallySettled || c.Released != lateMinor || c.Reserved != 600 || o.letterStatus(dead) != background.LetterReconciled {
			t.Errorf("%+v, %s, %v", c.State, o.letterStatus(dead), err)
		}
		if s := o.mustSubmit(o.higher(2)); s.Reply.Accepted() && s.Reply == Created {
			t.Errorf("%+v", s)
		}
		o.mustAudit()
		page, err := o.As("acme", "").Cases.List(context.Background(), casestatus.Filter{Reserved: true}, "", 10)
		if err != nil || len(page.Cases) != 1 || page.Cases[0].WaitsFor != casestatus.WaitsForRestOfPayment || !slices.Equal(page.Cases[0].Actions, []string{"free", "adjudicate"}) {
			t.Errorf("the list of cases: %+v, %v", page.Cases, err)
		}
		plan := o.mustPlanFree(freeRequest("txr_1"))
		if plan.Ready != 1 || plan.People != 2 || plan.Money["EUR"] != 600 {
			t.Errorf("%+v", plan)
		}
		var second *SecondPersonError
		if _, err := o.As("acme", "user:ada").Bulk.Run(context.Background(), plan.ID, plan.Hash); !errors.As(err, &second) {
			t.Errorf("alone: %v", err)
		}
		if b := o.runPlan(plan); b.Progress.Done != 1 {
			t.Errorf("%+v", b.Progress)
		}
		if c := o.caseOf(release(1)); c.Progression != settlement.PartiallySettled || c.Reserved != 0 || c.Committed != lateMinor {
			t.Errorf("%+v", c)
		}
		o.mustAudit()
	})
	t.Run("not by a lookup", func(t *testing.T) {
		t.Parallel()
		o, dead := undercut(t)
		if _, err := o.cases.Reconcile(context.Background(), "acme", dead.Run, "user:ada", casework.Finding{Class: escrow.NotExecuted}, casework.LookupSource{Class: escrow.NotExecuted, Attempt: o.status(dead.Run).Attempts}, casework.Guard{}); err != nil {
			t.Fatal(err)
		}
		o.checkUndercut(dead, 600)
	})
}

// Earlier versions left the run waiting, and freed its reservation: its claim
// ends it.
func TestARunThatWasLeftWithoutItsReservationIsNotCalled(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.escrow.script = func(ctx context.Context, c escrow.Call) escrow.Answer { return neverCalled(ctx, r, c) }
	s := r.mustSubmit(release(1))
	if _, err := r.db.Exec(`UPDATE recourse.cases SET progression = 'partially-settled', moved = 400, reserved = 0, released = 400`); err != nil {
		t.Fatal(err)
	}
	// in another process: this one has the case cached
	joinRig(t, r.url, r.redis, r.escrow).startWorkers().untilNoneLive()
	if st := r.status(s.Run); st.Letter != background.LetterOpen || st.ReasonCode != "paid_under_older_key" {
		t.Errorf("%+v", st)
	}
	if c := r.caseOf(release(1)); c.Progression != settlement.DisputeReady {
		t.Errorf("%+v", c.State)
	}
}

// A dead letter's handler is also created for a run that another run's payment ends.
func TestALetterOfAPaymentUnderAnOlderKeyHasItsHandler(t *testing.T) {
	t.Parallel()
	var seen handlerRecorder
	o := newOlderKeyCase(t, neverCalled, func(c *Config) { c.OnAnyDeath = LetterHandler{Handle: seen.handle} })
	if _, err := o.As("acme", "user:ada").Breakers.Open(context.Background(), escrow.DefaultTarget, "stop"); err != nil {
		t.Fatal(err)
	}
	waits := o.mustSubmit(o.higher(2))
	o.payOlderKey()
	o.untilTrue("the letter is handled", func() bool {
		return slices.ContainsFunc(seen.all(), func(l DeadLetter) bool { return l.Run == waits.Run && l.ReasonCode == "paid_under_older_key" })
	})
	if st := o.status(waits.Run); st.Handler.IsZero() || o.payloadOf(st, receipts.DeadLettered).NewRun != st.Handler {
		t.Errorf("%+v", st)
	}
	o.mustAudit()
}

// A case that ended while a run was running stays as it is, however the run ends,
// and the receipt of the run's end says so.
func TestARunThatEndsOnAnEndedCaseSaysSo(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answer  escrow.Answer
		state   background.State
		subtype receipts.Subtype
	}{
		"dead":      {refused(), background.DeadLettered, receipts.DeadLettered},
		"cancelled": {busy429(), background.Cancelled, receipts.Cancelled},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, func(c *Config) {
				c.TimeLimit, c.Policy.MaxRetryAttempts = 2*time.Second, 1
				c.Executor = replayingEscrow{c.Executor.(*scriptedEscrow)} // so that the fork has a key of its own
			})
			pays, called, answer := make(chan struct{}), make(chan struct{}, 1), make(chan struct{})
			var parent atomic.Pointer[background.RunID]
			r.escrow.script = func(_ context.Context, call escrow.Call) escrow.Answer {
				if parent.CompareAndSwap(nil, &call.Run) || *parent.Load() == call.Run {
					<-pays
					return r.escrow.pay(call, call.Amount.Minor)
				}
				called <- struct{}{}
				<-answer
				return c.answer
			}
			letter := r.startWorkers().mustSubmit(release(1))
			r.until("letter", `SELECT EXISTS (SELECT FROM recourse.runs WHERE letter = 'open')`)
			ctx := context.Background()
			if _, err := r.Reconcile(ctx, "acme", letter.Run, casework.Finding{Reason: "the bank says no", Class: escrow.NotExecuted, Reference: "stmt-1", CallOutstanding: true}); err != nil {
				t.Fatal(err)
			}
			q := forkRequest
			q.Policy = &retrypolicy.Policy{MaxRetryAttempts: 3}
			fork, err := r.As("acme", "user:ada").DeadLetters.Fork(ctx, letter.Run, q)
			if err != nil {
				t.Fatal(err)
			}
			<-called
			close(pays)
			r.until("the case settles", `SELECT EXISTS (SELECT FROM recourse.cases WHERE progression = 'settled')`)
			close(answer)
			r.untilNoneLive()
			st := r.status(fork.Run)
			if p := r.payloadOf(st, c.subtype); st.State != c.state || !p.CaseUnmoved || p.Settlement != nil {
				t.Errorf("%+v: %+v", st, p)
			}
			if k := r.caseOf(release(1)); k.Progression != settlement.Settled || k.Released != 1000 {
				t.Errorf("%+v", k.State)
			}
			r.mustAudit()
		})
	}
}
