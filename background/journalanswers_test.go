package background_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/receipts"
)

// answering is a family whose journal gives some answers of its own.
type answering struct {
	background.Family
	answer func(background.Transition) (error, bool) // false: the journal answers
}

func (f answering) Record(ctx context.Context, tr background.Transition) (background.Run, error) {
	if err, own := f.answer(tr); own {
		if errors.Is(err, background.ErrUnreadable) || errors.Is(err, background.ErrBusy) {
			return background.Run{}, err
		}
		return tr.Run, err
	}
	return f.Family.Record(ctx, tr)
}

// startAnswering starts a worker whose journal is asked after answer.
func (h *fixture) startAnswering(answer func(background.Transition) (error, bool)) *worker {
	h.journal.SetReliable(true)
	return h.start(func(c *background.Config) {
		c.Families = []background.Family{answering{h.family, answer}}
	})
}

// A run stays in flight no longer than its delivery, also if the journal can't return the run that it has
// refused: nobody else would deliver it while this process lives.
func TestARunThatCannotBeReadDoesNotStayInFlight(t *testing.T) {
	t.Parallel()
	for _, refusal := range []error{background.ErrRequestAltered, background.ErrUnrecordable} {
		for _, failure := range []error{background.ErrUnreadable, background.ErrNotFound} {
			h := newFixture(t, func(context.Context, background.Attempt) background.Result { return paid })
			var asked atomic.Int32
			w := h.startAnswering(func(tr background.Transition) (error, bool) {
				switch tr.Subtype {
				case receipts.AttemptStarted:
					return refusal, true
				case receipts.DeadLettered:
					asked.Add(1)
					return failure, true
				}
				return nil, false
			})
			r := h.submit(w)
			h.awaitTrue("the dead letter can't be written", func() bool { return asked.Load() > 0 })
			h.awaitTrue("the run is no longer in flight", func() bool { return !background.InFlight(w.Manager, r.ID) })
		}
	}
}

// A run that can't be claimed because of its values is claimed again if it changed meanwhile.
func TestARunThatChangedBeforeItsDeathIsClaimedAgain(t *testing.T) {
	t.Parallel()
	h := newFixture(t, func(context.Context, background.Attempt) background.Result { return paid })
	var refused, conflicted atomic.Bool
	w := h.startAnswering(func(tr background.Transition) (error, bool) {
		switch {
		case tr.Subtype == receipts.AttemptStarted && refused.CompareAndSwap(false, true):
			return background.ErrUnrecordable, true
		case tr.Subtype == receipts.DeadLettered && conflicted.CompareAndSwap(false, true):
			return background.ErrConflict, true
		}
		return nil, false
	})
	h.awaitState(h.submit(w).ID, background.Succeeded)
	if !conflicted.Load() {
		t.Error("the run was not dead-lettered before")
	}
}

// A journal that answers ErrBusy works, whatever failed before: the process may claim other runs.
func TestALockThatIsHeldAfterAFailureBlocksNothing(t *testing.T) {
	t.Parallel()
	h := newFixture(t, func(context.Context, background.Attempt) background.Result { return paid })
	var busy atomic.Pointer[background.RunID]
	var failures, locks atomic.Int32
	var free atomic.Bool
	w := h.startAnswering(func(tr background.Transition) (error, bool) {
		switch id := busy.Load(); {
		case tr.Subtype != receipts.AttemptSucceeded || id == nil || *id != tr.Run.ID || free.Load():
			return nil, false
		case failures.Add(1) == 1:
			return errors.New("connection reset"), true
		}
		locks.Add(1)
		return background.ErrBusy, true
	})
	first := h.journal.Submit(background.Run{Family: family, RetryKey: "tx:release", Queue: w.Queue(family, "tx:release"), NotificationNumber: 1})
	busy.Store(&first.ID)
	if err := w.Notify(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	h.awaitTrue("the lock is held", func() bool { return locks.Load() > 2 })
	h.awaitState(h.submit(w).ID, background.Succeeded)
	free.Store(true)
	h.awaitState(first.ID, background.Succeeded)
}
