package background_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/receipts"
)

func TestShutdownLeavesAWaitingRunScheduledForAnotherProcess(t *testing.T) {
	t.Parallel()
	h := newFixture(t, func(_ context.Context, a background.Attempt) background.Result {
		if a.Number == 1 {
			return refused
		}
		return paid
	})
	first := h.start()
	r := h.submit(first, func(r *background.Run) { r.Policy.BaseDelay = 950 * time.Millisecond })
	h.awaitState(r.ID, background.Scheduled)
	h.awaitTrue("the run waits in place", func() bool { return first.Stats().Waiting == 1 })
	first.stop()
	due := h.journal.Run(r.ID)
	if late := time.Since(due.DueAt); late >= 0 {
		t.Errorf("shutdown ended %s after the run was due: it waited for the run", late)
	}
	if due.State != background.Scheduled || h.calls.Load() != 1 {
		t.Fatalf("calls %d, run %+v", h.calls.Load(), due)
	}
	h.start()
	h.awaitState(r.ID, background.Succeeded)
	if second := h.journal.Transitions(r.ID)[2]; second.At.Before(due.DueAt) {
		t.Errorf("attempt 2 began %s early", due.DueAt.Sub(second.At))
	}
}

func TestShutdownGivesAnAttemptItsGrace(t *testing.T) {
	t.Parallel()
	called, answer := make(chan struct{}), make(chan struct{})
	h := newFixture(t, func(context.Context, background.Attempt) background.Result {
		close(called)
		<-answer
		return paid
	})
	w := h.start()
	r := h.submit(w)
	<-called
	stopped := make(chan struct{})
	go func() { w.stop(); close(stopped) }()
	time.AfterFunc(100*time.Millisecond, func() { close(answer) })
	<-stopped
	if r := h.journal.Run(r.ID); r.State != background.Succeeded {
		t.Errorf("run %+v", r)
	}
}

func TestAttemptPastTheGraceIsInterruptedWithoutSpendingABudget(t *testing.T) {
	t.Parallel()
	called, ended := make(chan struct{}), make(chan error, 1)
	h := newFixture(t, func(ctx context.Context, a background.Attempt) background.Result {
		if a.Number > 1 {
			return paid
		}
		close(called)
		<-ctx.Done()
		ended <- ctx.Err()
		return vague
	})
	w := h.start(func(c *background.Config) { c.Grace = 50 * time.Millisecond })
	r := h.submit(w)
	<-called
	w.stop()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("the call's context ended with %v", err)
	}
	interrupted := h.journal.Transitions(r.ID)[1]
	if interrupted.Subtype != receipts.AttemptInterrupted || interrupted.Charge != background.ChargeNothing || interrupted.Result.Class != background.Unknown {
		t.Errorf("transition %+v", interrupted)
	}
	if now := h.journal.Run(r.ID); now.State != background.Scheduled || now.BudgetSpent != 0 || now.DueAt.After(time.Now()) {
		t.Errorf("run %+v", now)
	}
	h.start()
	h.awaitState(r.ID, background.Succeeded)
}

func TestRunStartsOnce(t *testing.T) {
	t.Parallel()
	h := newFixture(t, func(context.Context, background.Attempt) background.Result { return paid })
	w := h.start()
	h.awaitState(h.submit(w).ID, background.Succeeded)
	if err := w.Run(t.Context()); !errors.Is(err, background.ErrStarted) {
		t.Errorf("a second Run: %v", err)
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
	if err := w.Close(); err != nil {
		t.Error("a second Close: ", err)
	}
}

func TestCloseBeforeRunRefusesRun(t *testing.T) {
	t.Parallel()
	h := newFixture(t, func(context.Context, background.Attempt) background.Result { return paid })
	m, err := background.New(h.config())
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Close(); err != nil {
		t.Error(err)
	}
	if err := m.Run(t.Context()); !errors.Is(err, background.ErrStarted) {
		t.Errorf("Run after Close: %v", err)
	}
}

// A process that lost a Redis reply shortly before its end keeps its session to be marked lost,
// so that others search for lost deliveries.
func TestAProcessThatLostAnAnswerAtItsEndIsFoundLost(t *testing.T) {
	t.Parallel()
	for _, lose := range []bool{true, false} {
		h := newFixture(t, func(context.Context, background.Attempt) background.Result { return paid })
		breaks := &breakingRedis{redis: h.redis}
		w := h.start(func(c *background.Config) { c.Redis = breaks })
		h.awaitState(h.submit(w).ID, background.Succeeded)
		breaks.breakNext.Store(lose)
		h.awaitTrue("a reply is lost", func() bool { return !breaks.breakNext.Load() })
		w.stop()
		left, err := h.journal.Sessions(t.Context())
		if err != nil || (len(left) == 1) != lose {
			t.Errorf("lost: %v; sessions left: %v, %v", lose, left, err)
		}
	}
}
