package background_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/receipts"
)

func TestCancelOfAWaitingRunEndsTheWaitAtOnce(t *testing.T) {
	t.Parallel()
	h := newFixture(t, func(context.Context, background.Attempt) background.Result { return refused })
	h.journal.SetReliable(true)
	w := h.start()
	r := h.submit(w, func(r *background.Run) { r.Policy.BaseDelay = 950 * time.Millisecond })
	r = h.awaitState(r.ID, background.Scheduled)
	if _, err := h.journal.Record(background.Transition{ID: uuid.New(), Run: r, Subtype: receipts.Cancelled, At: time.Now()}); err != nil {
		t.Fatal(err)
	}
	w.Wake(r.ID)
	h.awaitTrue("no run waits", func() bool { return w.Stats().Waiting == 0 })
	if late := time.Since(r.DueAt); late >= 0 {
		t.Errorf("the wait ended %s after the run was due", late)
	}
	if h.calls.Load() != 1 {
		t.Errorf("%d calls", h.calls.Load())
	}
}

func TestWakeOfAnUnchangedRunDoesNotStartItEarly(t *testing.T) {
	t.Parallel()
	h := newFixture(t, func(context.Context, background.Attempt) background.Result { return refused })
	h.journal.SetReliable(true)
	w := h.start()
	r := h.submit(w, func(r *background.Run) { r.Policy.BaseDelay = 200 * time.Millisecond; r.Policy.MaxRetryAttempts = 2 })
	due := h.awaitState(r.ID, background.Scheduled).DueAt
	w.Wake(r.ID)
	h.awaitState(r.ID, background.DeadLettered)
	if second := h.journal.Transitions(r.ID)[2]; second.Subtype != receipts.AttemptStarted || second.At.Before(due) {
		t.Errorf("attempt 2 began at %s, due at %s", second.At, due)
	}
}

func TestCancelAskedWhileRunningIsHonouredWhenNothingWasPaid(t *testing.T) {
	t.Parallel()
	called, answer := make(chan struct{}), make(chan struct{})
	h := newFixture(t, func(context.Context, background.Attempt) background.Result {
		close(called)
		<-answer
		return refused
	})
	w := h.start()
	r := h.submit(w)
	<-called
	h.journal.RequestCancel(r.ID)
	close(answer)
	r = h.awaitState(r.ID, background.Cancelled)
	if h.calls.Load() != 1 || r.BudgetSpent != 0 {
		t.Errorf("calls %d, run %+v", h.calls.Load(), r)
	}
}

func TestCancelAskedWhileRunningIsNotHonouredWhenItMayHavePaid(t *testing.T) {
	t.Parallel()
	called, answer := make(chan struct{}), make(chan struct{})
	h := newFixture(t, func(_ context.Context, a background.Attempt) background.Result {
		if a.Number == 1 {
			close(called)
			<-answer
			return vague
		}
		return paid
	})
	w := h.start()
	r := h.submit(w)
	<-called
	h.journal.RequestCancel(r.ID)
	close(answer)
	h.awaitState(r.ID, background.Succeeded)
	if h.calls.Load() != 2 {
		t.Errorf("%d calls", h.calls.Load())
	}
}
