package background_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/receipts"
)

// startSuspendable starts a worker whose machine can be suspended.
func (h *fixture) startSuspendable(suspendedFor *atomic.Int64, change ...func(*background.Config)) *worker {
	h.t.Helper()
	cfg := h.config()
	for _, c := range change {
		c(&cfg)
	}
	m, err := background.New(cfg)
	if err != nil {
		h.t.Fatal(err)
	}
	background.Suspend(m, suspendedFor)
	return h.run(m)
}

var staleThenPaid = []receipts.Subtype{receipts.AttemptStarted, receipts.AttemptInterrupted, receipts.AttemptStarted, receipts.AttemptSucceeded}

// checkNothingCharged checks an attempt that ended before its request was sent.
func (h *fixture) checkNothingCharged(w *worker, id background.RunID) {
	h.t.Helper()
	interrupted, run := h.journal.Transitions(id)[1], h.journal.Run(id)
	if interrupted.Charge != background.ChargeNothing || interrupted.LeavesCallOutstanding || interrupted.Result.Class != background.NotExecuted || interrupted.Result.Failure.Type != background.FailureStaleClaim {
		h.t.Errorf("transition %+v", interrupted)
	}
	if run.BudgetSpent != 0 || run.Recoveries != 0 || run.UnknownOpen != 0 || run.HasOutstandingCall() {
		h.t.Errorf("run %+v", run)
	}
	if n := w.Stats().StaleClaims; n != 1 {
		h.t.Errorf("%d stale claims counted", n)
	}
}

// A machine that is suspended right after the claim, longer than MaxClaimAge, calls no handler.
// No budget is spent, and the run continues.
func TestAStaleClaimIsNotCalled(t *testing.T) {
	t.Parallel()
	h := newFixture(t, func(context.Context, background.Attempt) background.Result { return paid })
	h.journal.SetReliable(true)
	var suspendedFor atomic.Int64
	w := h.startSuspendable(&suspendedFor, func(c *background.Config) {
		c.OnTransition = func(m background.Transition, _ background.Run) {
			if m.Subtype == receipts.AttemptStarted && m.Run.Attempt == 0 {
				suspendedFor.Store(int64(background.MaxClaimAge(15 * time.Second)))
			}
		}
	})
	r := h.submit(w)
	h.awaitState(r.ID, background.Succeeded)
	if got := h.events(r.ID); !slices.Equal(got, staleThenPaid) || h.calls.Load() != 1 {
		t.Errorf("%d calls, events %v", h.calls.Load(), got)
	}
	h.checkNothingCharged(w, r.ID)
}

// A handler that is refused when it checks Fresh has done nothing, whatever its result.
func TestAHandlerRefusedAsStaleSpendsNothing(t *testing.T) {
	t.Parallel()
	var suspendedFor atomic.Int64
	h := newFixture(t, func(_ context.Context, a background.Attempt) background.Result {
		if a.Number > 1 {
			return paid
		}
		if a.NotAfter.Sub(a.StartedAt) != background.MaxClaimAge(15*time.Second)+5*time.Second {
			t.Errorf("not after %s of %s", a.NotAfter, a.StartedAt)
		}
		suspendedFor.Store(int64(time.Hour))
		if err := a.Fresh(); !errors.Is(err, background.ErrStaleClaim) {
			t.Errorf("after an hour: %v", err)
		}
		suspendedFor.Store(0) // setting a clock back does not make the claim fresh
		return background.Result{Class: background.NotExecuted, Failure: &background.Failure{Type: "http.refused"}}
	})
	h.journal.SetReliable(true)
	w := h.startSuspendable(&suspendedFor)
	r := h.submit(w)
	h.awaitState(r.ID, background.Succeeded)
	if got := h.events(r.ID); !slices.Equal(got, staleThenPaid) {
		t.Errorf("events %v", got)
	}
	h.checkNothingCharged(w, r.ID)
}

// An answer of the called service counts: to a request sent before another was refused, and to
// a handler that continued though it was refused.
func TestAnAnswerIsNotTakenForAStaleClaim(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		asks   int // Fresh calls before the claim is stale
		answer background.Result
		ends   background.State
	}{
		"refused for good":  {1, background.Result{Class: background.NotExecuted, Failure: &background.Failure{Type: "http.refused"}}, background.DeadLettered},
		"paid all the same": {0, paid, background.Succeeded},
		"outcome unknown":   {0, background.Result{Class: background.Unknown, Failure: &background.Failure{Type: "http.no_answer"}}, background.DeadLettered},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var suspendedFor atomic.Int64
			h := newFixture(t, func(_ context.Context, a background.Attempt) background.Result {
				for range c.asks {
					if err := a.Fresh(); err != nil {
						t.Error(err)
					}
				}
				suspendedFor.Store(int64(time.Hour))
				if a.Fresh() == nil {
					t.Error("fresh after an hour")
				}
				return c.answer
			})
			h.journal.SetReliable(true)
			w := h.startSuspendable(&suspendedFor)
			r := h.submit(w)
			h.awaitState(r.ID, c.ends)
			if h.calls.Load() != 1 || slices.Contains(h.events(r.ID), receipts.AttemptInterrupted) {
				t.Errorf("%d calls, events %v", h.calls.Load(), h.events(r.ID))
			}
		})
	}
}

// A process that was declared lost between its claim and its call records that nothing was sent
// when it resumes.
func TestAResumedProcessRecordsThatItSentNothing(t *testing.T) {
	t.Parallel()
	called, wakes := make(chan struct{}), make(chan struct{})
	var suspendedFor atomic.Int64
	h := newFixture(t, func(_ context.Context, a background.Attempt) background.Result {
		if a.Number > 1 {
			return paid
		}
		close(called)
		<-wakes
		suspendedFor.Store(int64(time.Hour))
		if a.Fresh() == nil {
			t.Error("fresh after an hour")
		}
		return refused
	})
	h.journal.SetReliable(true)
	h.family.AttemptLimit = time.Minute // the loss ends the attempt, not its limit
	lost := &frozenStore{Journal: h.journal}
	w := h.startSuspendable(&suspendedFor, lost.configure)
	r := h.submit(w)
	<-called
	lost.frozen.Store(true)
	h.start(lossIntervals)
	if got := h.awaitState(r.ID, background.Succeeded); !slices.Equal(got.OutstandingCalls, []int{1}) {
		t.Errorf("while the first call may be outstanding: %+v", got)
	}
	close(wakes)
	if got := h.await(r.ID, "answered", func(r background.Run) bool { return !r.HasOutstandingCall() }); got.State != background.Succeeded {
		t.Errorf("run %+v", got)
	}
	all := h.journal.Transitions(r.ID)
	if last := all[len(all)-1]; last.Subtype != receipts.AnsweredLate || last.Result.Class != background.NotExecuted || last.Result.Failure.Type != background.FailureStaleClaim {
		t.Errorf("transition %+v", last)
	}
}

// A handler that checks Fresh after its attempt has ended is refused: another process may have
// continued.
func TestAnEndedAttemptSendsNothing(t *testing.T) {
	t.Parallel()
	asked := make(chan error, 1)
	h := newFixture(t, func(ctx context.Context, a background.Attempt) background.Result {
		if a.Number > 1 {
			return paid
		}
		<-ctx.Done()
		asked <- a.Fresh()
		return refused
	})
	h.family.AttemptLimit = 50 * time.Millisecond
	h.awaitState(h.submit(h.start()).ID, background.Succeeded)
	if err := <-asked; !errors.Is(err, background.ErrStaleClaim) {
		t.Errorf("after the end: %v", err)
	}
}

// A process with a stale claim claims nothing for at least a second: the cause would make the
// next claim stale too.
func TestStaleClaimsPauseClaiming(t *testing.T) {
	t.Parallel()
	h := newFixture(t, func(context.Context, background.Attempt) background.Result { return paid })
	h.journal.SetReliable(true)
	var suspendedFor atomic.Int64
	w := h.startSuspendable(&suspendedFor, func(c *background.Config) {
		c.OnTransition = func(m background.Transition, _ background.Run) {
			if m.Subtype == receipts.AttemptStarted && m.Run.Attempt == 0 {
				suspendedFor.Store(int64(time.Minute))
			}
		}
	})
	r := h.submit(w)
	h.awaitState(r.ID, background.Succeeded)
	transitions := h.journal.Transitions(r.ID)
	if pause := transitions[2].At.Sub(transitions[1].At); transitions[1].Subtype != receipts.AttemptInterrupted || pause < time.Second {
		t.Errorf("it claims again after %s: %+v", pause, transitions)
	}
}
