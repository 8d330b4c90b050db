package postadjudication_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/testkit/poll"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/bulk"
	"github.com/recourse-dev/recourse/postadjudication/casestatus"
	"github.com/recourse-dev/recourse/postadjudication/deadletter"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/internal/rig"
	"github.com/recourse-dev/recourse/postadjudication/internal/rig/taskinspector"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/retrypolicy"
	"github.com/recourse-dev/recourse/settlement"
)

const lateMinor = 400

// olderKeyCase is a case whose first generation was wrongly found not executed: its call is
// still out, and pays when the test lets it.
type olderKeyCase struct {
	*rig.Rig
	letter  postadjudication.Submitted
	payLate chan struct{}
	opened  chan background.RunID // dead letters that the process reported
}

// newOlderKeyCase submits a first generation of lateMinor, which pays late; script answers the
// calls of the others.
func newOlderKeyCase(t *testing.T, script func(context.Context, *rig.Rig, escrow.Call) escrow.Answer, change ...func(*postadjudication.Config)) *olderKeyCase {
	t.Helper()
	opened := make(chan background.RunID, 16)
	quick := func(c *postadjudication.Config) {
		c.TimeLimit = 100 * time.Millisecond
		c.Policy.MaxRetryAttempts = 1
		c.OnLetterOpened = func(letter background.Run) { opened <- letter.ID }
	}
	o := &olderKeyCase{Rig: rig.New(t, append([]func(*postadjudication.Config){quick}, change...)...), payLate: make(chan struct{}), opened: opened}
	o.Escrow.Script(func(ctx context.Context, c escrow.Call) escrow.Answer {
		if c.Generation == 1 {
			<-o.payLate
			return o.Escrow.Pay(c, lateMinor)
		}
		return script(ctx, o.Rig, c)
	})
	first := rig.Release(1)
	first.Amount = rig.Euros(lateMinor)
	o.letter = o.StartWorkers().MustSubmit(first)
	o.WaitLetter(o.letter.Run)
	none := deadletter.Finding{Reason: "the bank says no", Class: escrow.NotExecuted, Reference: "stmt-1", CallOutstanding: true}
	if _, err := o.Reconcile(context.Background(), "acme", o.letter.Run, none); err != nil {
		t.Fatal(err)
	}
	return o
}

// higher returns a generation that pays the whole escrow.
func (o *olderKeyCase) higher(generation int) postadjudication.Adjudication {
	a := rig.Release(1)
	a.Generation = generation
	return a
}

// payOlderKey lets the call of the first generation pay, and waits until that is recorded.
func (o *olderKeyCase) payOlderKey() {
	o.T.Helper()
	close(o.payLate)
	o.WaitReceipt(o.letter.Case, receipts.AnsweredLate)
	if payloads := o.Payloads(o.letter, receipts.AnsweredLate); len(payloads) != 1 || !payloads[0].UnderOlderKey || payloads[0].Moved != lateMinor {
		o.T.Errorf("%+v", payloads)
	}
}

// checkUndercut checks a case of which the older key paid and the current generation nothing,
// and that its letter says so.
func (o *olderKeyCase) checkUndercut(present postadjudication.Submitted, reserved int64) {
	o.T.Helper()
	c := o.CaseOf(rig.Release(1))
	if c.Progression != settlement.DisputeReady || c.Asked != 1000 || c.Moved != 0 || c.Released != lateMinor || c.Reserved != reserved {
		o.T.Errorf("%+v", c.State)
	}
	var refused *refusal.RefusedError
	if _, err := o.As("acme", "user:ada").DeadLetters.Fork(context.Background(), present.Run, rig.ForkRequest); !errors.As(err, &refused) || refused.Gate != refusal.GatePaidUnderOlderKey || !strings.Contains(err.Error(), "higher generation") {
		o.T.Errorf("a fork: %v", err)
	}
	for _, want := range []background.RunID{o.letter.Run, present.Run} {
		if opened := <-o.opened; opened != want {
			o.T.Errorf("the dead letter %s was reported, want %s", opened, want)
		}
	}
	rig.CheckNoBreach(o.Rig)
	o.MustAudit()
	if n := len(o.opened); n > 0 {
		o.T.Errorf("%d more dead letters were reported", n)
	}
}

func neverCalled(_ context.Context, r *rig.Rig, c escrow.Call) escrow.Answer {
	r.T.Errorf("generation %d was called", c.Generation)
	return rig.Refused()
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
	waits := o.MustSubmit(o.higher(2))
	if waits.Reply != postadjudication.Created {
		t.Fatal(waits.Reply)
	}
	o.payOlderKey()
	if st := o.StatusOf(waits.Run); st.State != background.DeadLettered || st.Letter != background.LetterOpen || st.ReasonCode != "paid_under_older_key" || st.Attempts != 0 {
		t.Errorf("%+v", st)
	}
	if _, err := o.As("acme", "user:ada").Breakers.Release(ctx, escrow.DefaultTarget, "go"); err != nil {
		t.Fatal(err)
	}
	o.checkUndercut(waits, 600)
	if found := o.Letters(deadletter.Filter{Status: background.LetterOpen}); len(found) != 1 || found[0].Run != waits.Run || found[0].RefusedBy != refusal.GatePaidUnderOlderKey {
		t.Errorf("the list of letters: %+v", found)
	}
	if plan := o.MustPlan(bulk.Request{Reason: "mended", Action: bulk.Fork, All: true}); plan.Ready != 0 || plan.Refused[refusal.GatePaidUnderOlderKey] != 1 {
		t.Errorf("a plan: %+v", plan)
	}
	inspected, err := o.As("acme", "").DeadLetters.Inspect(ctx, waits.Run)
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range inspected.Actions {
		if (a.Name == refusal.ActionFork || a.Name == refusal.ActionRetry) && (a.Allowed || a.RefusedBy != refusal.GatePaidUnderOlderKey) {
			t.Errorf("%+v", a)
		}
	}
}

// The same when the current generation is a letter already.
func TestAPaymentUnderAnOlderKeyLeavesALetterThatCantBeForked(t *testing.T) {
	t.Parallel()
	o := newOlderKeyCase(t, func(_ context.Context, _ *rig.Rig, c escrow.Call) escrow.Answer { return rig.Refused() })
	dead := o.MustSubmit(o.higher(2))
	o.WaitLetter(dead.Run)
	o.payOlderKey()
	o.checkUndercut(dead, 600)
}

// A running run ends when its attempt finishes, without a further attempt.
func TestAPaymentUnderAnOlderKeyStopsTheRetriesOfARunThatRuns(t *testing.T) {
	t.Parallel()
	called, answer := make(chan struct{}), make(chan struct{})
	o := newOlderKeyCase(t, func(context.Context, *rig.Rig, escrow.Call) escrow.Answer {
		close(called)
		<-answer
		return rig.RateLimited()
	}, func(c *postadjudication.Config) { c.Policy.MaxRetryAttempts = 3; c.TimeLimit = 2 * time.Second })
	runs := o.MustSubmit(o.higher(2))
	<-called
	o.payOlderKey()
	if st := o.StatusOf(runs.Run); st.State != background.Running {
		t.Errorf("%+v", st)
	}
	close(answer)
	o.WaitNoneLive()
	if st := o.StatusOf(runs.Run); st.State != background.DeadLettered || st.ReasonCode != "paid_under_older_key" || st.Attempts != 1 {
		t.Errorf("%+v", st)
	}
	o.checkUndercut(runs, 600)
}

// A second notification of the run that runs, in another process, does not end it: what its call did would be lost.
func TestAPaymentUnderAnOlderKeyLeavesARunThatRunsToItsWorker(t *testing.T) {
	t.Parallel()
	called, answer := make(chan struct{}), make(chan struct{})
	o := newOlderKeyCase(t, func(context.Context, *rig.Rig, escrow.Call) escrow.Answer {
		close(called)
		<-answer
		return rig.NoAnswer()
	}, rig.OneQueue)
	o.Escrow.ScriptLookups(rig.GivesNoAnswer)
	o.StopWorkers() // it still records what its call answers
	o.OtherProcess(rig.OneQueue, func(c *postadjudication.Config) { c.TimeLimit = time.Minute }).StartWorkers()
	runs := o.MustSubmit(o.higher(2))
	<-called
	o.payOlderKey()
	o.OtherProcess(rig.OneQueue).StartWorkers()
	o.WaitClocksMeasured(2)
	for notification := 2; notification < 300; notification++ { // shared by the two processes
		run := runs.AsWritten()
		run.NotificationNumber = notification
		if err := o.Engine().Notify(context.Background(), run); err != nil {
			t.Fatal(err)
		}
	}
	tasks := taskinspector.New(o.Rig)
	poll.Until(t, "all are delivered", func() bool { return tasks.PendingNotifications(t) == 0 })
	close(answer)
	o.WaitNoneLive()
	if st := o.StatusOf(runs.Run); st.State != background.DeadLettered || st.Class != escrow.Unknown {
		t.Errorf("%+v", st)
	}
	o.MustAudit()
}

// A payment beyond what is held is recorded all the same, and is a breach.
func TestBothGenerationsPay(t *testing.T) {
	t.Parallel()
	called, answer := make(chan struct{}), make(chan struct{})
	o := newOlderKeyCase(t, func(_ context.Context, r *rig.Rig, c escrow.Call) escrow.Answer {
		close(called)
		<-answer
		return r.Escrow.Pay(c, c.Amount.Minor)
	}, func(c *postadjudication.Config) { c.TimeLimit = 2 * time.Second })
	o.AllowOverpaid = true
	runs := o.MustSubmit(o.higher(2))
	<-called
	o.payOlderKey()
	close(answer)
	o.WaitNoneLive()
	if c := o.CaseOf(rig.Release(1)); c.Progression != settlement.Settled || c.Moved != 1000 || c.Released != 1400 || c.Reserved != 0 {
		t.Errorf("%+v", c.State)
	}
	if payloads := o.Payloads(runs, receipts.ConservationBreach); len(payloads) != 1 || payloads[0].Excess != lateMinor {
		t.Errorf("%+v", payloads)
	}
	o.WaitBreached(400)
	o.MustAudit()
}

// A payment of an older generation reduces the reservation of the current one: an escrow that
// paid what it holds is not breached.
func TestAnOlderGenerationThatPaysAllIsNoBreach(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	r.StartWorkers()
	letter := purgedPaidLetter(r, 1, 1000)
	r.StopWorkers()
	higher := rig.Refund(1)
	higher.Generation = 2
	waits := r.MustSubmit(higher)
	if waits.Reply != postadjudication.Created {
		t.Fatalf("%+v", waits)
	}
	for range 2 { // the second time it is known
		c, err := r.Reconcile(context.Background(), "acme", letter.Run, rig.PaidFinding)
		if err != nil || c.Progression != settlement.DisputeReady || c.Released != 1000 || c.Reserved != 0 || c.Moved != 0 {
			t.Errorf("%+v, %v", c, err)
		}
	}
	rig.CheckNoBreach(r)
	if n := r.CountReceipts(rig.Receipts{Subtype: receipts.ConservationBreach}); n != 0 {
		t.Errorf("1000 of 1000 was paid, and %d receipts report a breach", n)
	}
	if st := r.StatusOf(waits.Run); st.Letter != background.LetterOpen || st.ReasonCode != "paid_under_older_key" {
		t.Errorf("%+v", st)
	}
	r.MustAudit()
}

// The letter can be closed by a higher generation or by a person's finding.
func TestALetterThatCantBeForkedEnds(t *testing.T) {
	t.Parallel()
	undercut := func(t *testing.T) (*olderKeyCase, postadjudication.Submitted) {
		o := newOlderKeyCase(t, func(_ context.Context, r *rig.Rig, c escrow.Call) escrow.Answer {
			if c.Generation == 2 {
				return rig.Refused()
			}
			return r.Escrow.Pay(c, c.Amount.Minor)
		})
		dead := o.MustSubmit(o.higher(2))
		o.WaitLetter(dead.Run)
		o.payOlderKey()
		return o, dead
	}
	t.Run("by a higher generation", func(t *testing.T) {
		t.Parallel()
		o, dead := undercut(t)
		rest := o.higher(3)
		rest.Amount = rig.Euros(600)
		if s := o.MustSubmit(rest); s.Reply != postadjudication.Created {
			t.Fatal(s.Reply)
		}
		o.WaitNoneLive()
		if c := o.CaseOf(rest); c.Progression != settlement.Settled || c.Released != 1000 || o.LetterStatus(dead) != background.LetterSuperseded {
			t.Errorf("%+v, %s", c.State, o.LetterStatus(dead))
		}
		o.MustAudit()
	})
	t.Run("by a finding", func(t *testing.T) {
		t.Parallel()
		o, dead := undercut(t)
		c, err := o.Reconcile(context.Background(), "acme", dead.Run, deadletter.Finding{Reason: "the 400 was all there was to pay", Class: escrow.NotExecuted, Reference: "stmt-2", CallOutstanding: true})
		if err != nil || c.Progression != settlement.PartiallySettled || c.Released != lateMinor || c.Reserved != 600 || o.LetterStatus(dead) != background.LetterReconciled {
			t.Errorf("%+v, %s, %v", c.State, o.LetterStatus(dead), err)
		}
		if s := o.MustSubmit(o.higher(2)); s.Reply.Accepted() && s.Reply == postadjudication.Created {
			t.Errorf("%+v", s)
		}
		o.MustAudit()
		page, err := o.As("acme", "").Cases.List(context.Background(), casestatus.Filter{Reserved: true}, "", 10)
		if err != nil || len(page.Cases) != 1 || page.Cases[0].WaitsFor != casestatus.WaitsForRestOfPayment || !slices.Equal(page.Cases[0].Actions, []refusal.Action{"reconcile", "free", "adjudicate"}) {
			t.Errorf("the list of cases: %+v, %v", page.Cases, err)
		}
		checkMoneyWithoutLetter(o.Rig)
		plan := rig.MustPlanFree(o.Rig, rig.FreeRequest("txr_1"))
		if plan.Ready != 1 || plan.People != 2 || plan.Money["EUR"] != settlement.SumOf(600) {
			t.Errorf("%+v", plan)
		}
		var second *bulk.SecondPersonError
		if _, err := o.As("acme", "user:ada").Bulk.Run(context.Background(), plan.ID, plan.Hash); !errors.As(err, &second) {
			t.Errorf("alone: %v", err)
		}
		if b := o.RunPlan(plan); b.Progress.Done != 1 {
			t.Errorf("%+v", b.Progress)
		}
		if c := o.CaseOf(rig.Release(1)); c.Progression != settlement.PartiallySettled || c.Reserved != 0 || c.Committed != lateMinor {
			t.Errorf("%+v", c)
		}
		o.MustAudit()
	})
	t.Run("not by a lookup", func(t *testing.T) {
		t.Parallel()
		o, dead := undercut(t)
		if err := o.FindNotExecuted(context.Background(), "acme", background.Run{ID: dead.Run, Attempt: o.StatusOf(dead.Run).Attempts}); err != nil {
			t.Fatal(err)
		}
		o.checkUndercut(dead, 600)
	})
}

// Earlier versions left the run waiting, and freed its reservation: its claim
// ends it.
func TestARunThatWasLeftWithoutItsReservationIsNotCalled(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	r.Escrow.Script(func(ctx context.Context, c escrow.Call) escrow.Answer { return neverCalled(ctx, r, c) })
	s := r.MustSubmit(rig.Release(1))
	if _, err := r.DB.Exec(`UPDATE recourse.cases SET progression = 'partially-settled', moved = 400, reserved = 0, released = 400`); err != nil {
		t.Fatal(err)
	}
	// in another process: this one has the case cached
	opened, ended := make(chan background.RunID, 16), make(chan background.Run, 16)
	rig.Join(t, r.DatabaseURL, r.Redis, r.Escrow, func(c *postadjudication.Config) {
		c.OnLetterOpened = func(letter background.Run) { opened <- letter.ID }
		c.OnTransition = func(_ background.Transition, after background.Run) { ended <- after }
	}).StartWorkers().WaitNoneLive()
	if st := r.StatusOf(s.Run); st.Letter != background.LetterOpen || st.ReasonCode != "paid_under_older_key" {
		t.Errorf("%+v", st)
	}
	if letter := <-opened; letter != s.Run {
		t.Errorf("the dead letter %s was reported", letter)
	}
	if after := <-ended; after.ID != s.Run || after.State != background.DeadLettered {
		t.Errorf("the transition was reported with %+v", after)
	}
	if c := r.CaseOf(rig.Release(1)); c.Progression != settlement.DisputeReady {
		t.Errorf("%+v", c.State)
	}
}

// A dead letter's handler is also created for a run that another run's payment ends.
func TestALetterOfAPaymentUnderAnOlderKeyHasItsHandler(t *testing.T) {
	t.Parallel()
	var seen handlerRecorder
	o := newOlderKeyCase(t, neverCalled, func(c *postadjudication.Config) { c.OnAnyDeath = postadjudication.LetterHandler{Handle: seen.handle} })
	if _, err := o.As("acme", "user:ada").Breakers.Open(context.Background(), escrow.DefaultTarget, "stop"); err != nil {
		t.Fatal(err)
	}
	waits := o.MustSubmit(o.higher(2))
	o.payOlderKey()
	o.Wait("the letter is handled", func() bool {
		return slices.ContainsFunc(seen.all(), func(l postadjudication.DeadLetter) bool {
			return l.Run == waits.Run && l.ReasonCode == "paid_under_older_key"
		})
	})
	if st := o.StatusOf(waits.Run); st.Handler.IsZero() || payloadOf(o.Rig, st, receipts.DeadLettered).NewRun != st.Handler {
		t.Errorf("%+v", st)
	}
	o.MustAudit()
}

// A case that ended while a run was running stays as it is, however the run ends,
// and the receipt of the run's end says so.
func TestARunThatEndsOnAnEndedCaseSaysSo(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		earlier, answer escrow.Answer // of an attempt before the case ended, if there is one, and of the one after
		state           background.State
		subtype         receipts.Subtype
		class           escrow.Class
	}{
		"dead":                             {escrow.Answer{}, rig.Refused(), background.DeadLettered, receipts.DeadLettered, escrow.NotExecuted},
		"cancelled":                        {escrow.Answer{}, rig.RateLimited(), background.Cancelled, receipts.Cancelled, escrow.NotExecuted},
		"it may have paid":                 {escrow.Answer{}, rig.NoAnswer(), background.DeadLettered, receipts.DeadLettered, escrow.Unknown},
		"an earlier attempt may have paid": {rig.NoAnswer(), rig.RateLimited(), background.DeadLettered, receipts.DeadLettered, escrow.Unknown},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := rig.New(t, func(c *postadjudication.Config) {
				c.TimeLimit, c.Policy.MaxRetryAttempts = 2*time.Second, 1
				c.Executor = replayingEscrow{c.Executor.(*rig.Escrow)} // so that the fork has a key of its own
			})
			r.Escrow.ScriptLookups(rig.GivesNoAnswer)
			pays, called, answer := make(chan struct{}), make(chan struct{}, 1), make(chan struct{})
			var parent atomic.Pointer[background.RunID]
			r.Escrow.Script(func(_ context.Context, call escrow.Call) escrow.Answer {
				if parent.CompareAndSwap(nil, &call.Run) || *parent.Load() == call.Run {
					<-pays
					return r.Escrow.Pay(call, call.Amount.Minor)
				}
				if c.earlier.Class != "" && call.Attempt == 1 {
					return c.earlier
				}
				called <- struct{}{}
				<-answer
				return c.answer
			})
			letter := r.StartWorkers().MustSubmit(rig.Release(1))
			r.WaitLetter(letter.Run)
			ctx := context.Background()
			if _, err := r.Reconcile(ctx, "acme", letter.Run, deadletter.Finding{Reason: "the bank says no", Class: escrow.NotExecuted, Reference: "stmt-1", CallOutstanding: true}); err != nil {
				t.Fatal(err)
			}
			q := rig.ForkRequest
			q.Policy = &retrypolicy.Policy{MaxRetryAttempts: 3}
			fork, err := r.As("acme", "user:ada").DeadLetters.Fork(ctx, letter.Run, q)
			if err != nil {
				t.Fatal(err)
			}
			<-called
			close(pays)
			r.WaitSettled(1)
			close(answer)
			r.WaitNoneLive()
			st := r.StatusOf(fork.Run)
			if p := payloadOf(r, st, c.subtype); st.State != c.state || st.Class != c.class || !p.CaseUnmoved || p.Settlement != nil {
				t.Errorf("%+v: %+v", st, p)
			}
			if k := r.CaseOf(rig.Release(1)); k.Progression != settlement.Settled || k.Released != 1000 {
				t.Errorf("%+v", k.State)
			}
			r.MustAudit()
		})
	}
}
