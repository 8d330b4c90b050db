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

// asleep starts a worker whose machine can be suspended.
func (h *house) asleep(by *atomic.Int64, change ...func(*background.Config)) *worker {
	h.t.Helper()
	cfg := h.config()
	for _, c := range change {
		c(&cfg)
	}
	m, err := background.New(cfg)
	if err != nil {
		h.t.Fatal(err)
	}
	background.Suspend(m, by)
	return h.run(m)
}

var staleThenPaid = []receipts.Subtype{receipts.AttemptStarted, receipts.AttemptInterrupted, receipts.AttemptStarted, receipts.AttemptSucceeded}

// spentNothing checks an attempt that ended before its call had left.
func (h *house) spentNothing(w *worker, id background.RunID) {
	h.t.Helper()
	cut, run := h.journal.Moves(id)[1], h.journal.Run(id)
	if cut.Spend != background.SpendNothing || cut.CallGoesOn || cut.Result.Class != background.NotExecuted || cut.Result.Failure.Type != background.FailureStale {
		h.t.Errorf("move %+v", cut)
	}
	if run.BudgetSpent != 0 || run.Recoveries != 0 || run.UnknownOpen != 0 || run.CallIsOut() {
		h.t.Errorf("run %+v", run)
	}
	if n := w.Stats().StaleClaims; n != 1 {
		h.t.Errorf("%d stale claims counted", n)
	}
}

// A machine that stood still right behind the claim, longer than its call may be old,
// calls nobody; nothing is spent, and the run goes on.
func TestAClaimThatGrewOldIsNotCalledOn(t *testing.T) {
	t.Parallel()
	h := newHouse(t, func(context.Context, background.Attempt) background.Result { return paid })
	h.journal.SetCalm(true)
	var by atomic.Int64
	w := h.asleep(&by, func(c *background.Config) {
		c.OnMove = func(m background.Move, _ background.Run) {
			if m.Fact == receipts.AttemptStarted && m.Run.Attempt == 0 {
				by.Store(int64(background.CallBound(15 * time.Second)))
			}
		}
	})
	r := h.submit(w)
	h.awaitState(r.ID, background.Succeeded)
	if got := h.facts(r.ID); !slices.Equal(got, staleThenPaid) || h.calls.Load() != 1 {
		t.Errorf("%d calls, moves %v", h.calls.Load(), got)
	}
	h.spentNothing(w, r.ID)
}

// A handler that is refused when it asks has done nothing, whatever it calls that.
func TestAHandlerThatIsRefusedSpendsNothing(t *testing.T) {
	t.Parallel()
	var by atomic.Int64
	h := newHouse(t, func(_ context.Context, a background.Attempt) background.Result {
		if a.Number > 1 {
			return paid
		}
		if a.NotAfter.Sub(a.StartedAt) != background.CallBound(15*time.Second)+5*time.Second {
			t.Errorf("not after %s of %s", a.NotAfter, a.StartedAt)
		}
		by.Store(int64(time.Hour))
		if err := a.Fresh(); !errors.Is(err, background.ErrStale) {
			t.Errorf("after an hour: %v", err)
		}
		by.Store(0) // a clock that is set back does not make it fresh
		return background.Result{Class: background.NotExecuted, Failure: &background.Failure{Type: "http.refused"}}
	})
	h.journal.SetCalm(true)
	w := h.asleep(&by)
	r := h.submit(w)
	h.awaitState(r.ID, background.Succeeded)
	if got := h.facts(r.ID); !slices.Equal(got, staleThenPaid) {
		t.Errorf("moves %v", got)
	}
	h.spentNothing(w, r.ID)
}

// What the other side said counts: of a request that had left before another was
// refused, and of a handler that went on though it was refused.
func TestAnAnswerIsNotTakenForAStaleClaim(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		asks   int // before the claim grows old
		answer background.Result
		ends   background.State
	}{
		"refused for good":   {1, background.Result{Class: background.NotExecuted, Failure: &background.Failure{Type: "http.refused"}}, background.DeadLettered},
		"paid all the same":  {0, paid, background.Succeeded},
		"nobody can tell it": {0, background.Result{Class: background.Unknown, Failure: &background.Failure{Type: "http.no_answer"}}, background.DeadLettered},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var by atomic.Int64
			h := newHouse(t, func(_ context.Context, a background.Attempt) background.Result {
				for range c.asks {
					if err := a.Fresh(); err != nil {
						t.Error(err)
					}
				}
				by.Store(int64(time.Hour))
				if a.Fresh() == nil {
					t.Error("fresh after an hour")
				}
				return c.answer
			})
			h.journal.SetCalm(true)
			w := h.asleep(&by)
			r := h.submit(w)
			h.awaitState(r.ID, c.ends)
			if h.calls.Load() != 1 || slices.Contains(h.facts(r.ID), receipts.AttemptInterrupted) {
				t.Errorf("%d calls, moves %v", h.calls.Load(), h.facts(r.ID))
			}
		})
	}
}

// A process that was declared lost between its claim and its call says so when it
// wakes: nothing of its call can be on the way.
func TestAProcessThatWakesTellsThatItSentNothing(t *testing.T) {
	t.Parallel()
	called, wakes := make(chan struct{}), make(chan struct{})
	var by atomic.Int64
	h := newHouse(t, func(_ context.Context, a background.Attempt) background.Result {
		if a.Number > 1 {
			return paid
		}
		close(called)
		<-wakes
		by.Store(int64(time.Hour))
		if a.Fresh() == nil {
			t.Error("fresh after an hour")
		}
		return refused
	})
	h.journal.SetCalm(true)
	lost := &frozen{Journal: h.journal}
	w := h.asleep(&by, quick, func(c *background.Config) { c.Ledger = lost })
	r := h.submit(w)
	<-called
	lost.still.Store(true)
	h.start(quick)
	if got := h.awaitState(r.ID, background.Succeeded); !slices.Equal(got.OutstandingCalls, []int{1}) {
		t.Errorf("while the first call may be out: %+v", got)
	}
	close(wakes)
	if got := h.await(r.ID, "told", func(r background.Run) bool { return !r.CallIsOut() }); got.State != background.Succeeded {
		t.Errorf("run %+v", got)
	}
	all := h.journal.Moves(r.ID)
	if last := all[len(all)-1]; last.Fact != receipts.AnsweredLate || last.Result.Class != background.NotExecuted || last.Result.Failure.Type != background.FailureStale {
		t.Errorf("move %+v", last)
	}
}

// A handler that comes to send when its attempt has ended is refused: others may have
// gone on by then.
func TestAnAttemptThatHasEndedLetsNothingLeave(t *testing.T) {
	t.Parallel()
	asked := make(chan error, 1)
	h := newHouse(t, func(ctx context.Context, a background.Attempt) background.Result {
		if a.Number > 1 {
			return paid
		}
		<-ctx.Done()
		asked <- a.Fresh()
		return refused
	})
	h.family.Limit = 50 * time.Millisecond
	h.awaitState(h.submit(h.start()).ID, background.Succeeded)
	if err := <-asked; !errors.Is(err, background.ErrStale) {
		t.Errorf("after the end: %v", err)
	}
}

// A process of which a claim grew old claims nothing for at least a second: what made it
// slow would have the next end like it.
func TestAProcessWhoseClaimsGrowOldPausesItsClaims(t *testing.T) {
	t.Parallel()
	h := newHouse(t, func(context.Context, background.Attempt) background.Result { return paid })
	h.journal.SetCalm(true)
	var by atomic.Int64
	w := h.asleep(&by, func(c *background.Config) {
		c.OnMove = func(m background.Move, _ background.Run) {
			if m.Fact == receipts.AttemptStarted && m.Run.Attempt == 0 {
				by.Store(int64(time.Minute))
			}
		}
	})
	r := h.submit(w)
	h.awaitState(r.ID, background.Succeeded)
	moves := h.journal.Moves(r.ID)
	if pause := moves[2].At.Sub(moves[1].At); moves[1].Fact != receipts.AttemptInterrupted || pause < time.Second {
		t.Errorf("it claims again after %s: %+v", pause, moves)
	}
}
