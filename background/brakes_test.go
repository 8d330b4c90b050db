package background_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/receipts"
)

// A run that waits in place when its brake is pulled lets go of its delivery, spends
// nothing, and continues when the brake is released.
func TestRunWaitingInPlaceIsParkedAndContinues(t *testing.T) {
	t.Parallel()
	h := newHouse(t, func(_ context.Context, a background.Attempt) background.Result {
		if a.Number == 1 {
			return refused
		}
		return paid
	})
	h.journal.SetCalm(true)
	w := h.start(func(c *background.Config) {
		c.SweepEvery = 50 * time.Millisecond
		c.Brake.Probe = 100 * time.Millisecond
	})
	r := h.submit(w, func(r *background.Run) {
		r.Tenant, r.Target, r.Policy.BaseDelay = "acme", "escrow", 900*time.Millisecond
	})
	h.awaitState(r.ID, background.Scheduled)
	h.awaitTrue("it waits", func() bool { return w.Stats().Waiting == 1 })
	of := background.Target{Tenant: "acme", Family: family, Name: "escrow"}
	move := func(decide func(background.Brake) (background.Brake, bool)) {
		if _, moved, err := w.MoveBrake(t.Context(), of, decide); err != nil || !moved {
			t.Fatal(moved, err)
		}
	}
	at := time.Now().UTC()
	move(func(b background.Brake) (background.Brake, bool) {
		return b.Pull(true, "kim", background.CauseByHand, "why", at)
	})
	h.awaitTrue("it is parked", func() bool { return w.Stats().Parked == 1 && w.Stats().Waiting == 0 })
	if now := h.journal.Run(r.ID); now.State != background.Scheduled || now.BudgetSpent != 1 || h.calls.Load() != 1 {
		t.Errorf("%+v", now)
	}
	move(func(b background.Brake) (background.Brake, bool) {
		return b.Release("kim", background.CauseByHand, "why", at)
	})
	done := h.awaitState(r.ID, background.Succeeded)
	want := []receipts.Subtype{receipts.AttemptStarted, receipts.RetryScheduled, receipts.AttemptStarted, receipts.AttemptSucceeded}
	if got := h.facts(r.ID); !slices.Equal(got, want) || done.Attempt != 2 {
		t.Errorf("facts %v, run %+v", got, done)
	}
	h.awaitTrue("the brake is released", func() bool { return w.Stats().Braked == 0 })
}

// A run that was parked has no task: nobody has removed it.
func TestAParkedRunsTaskIsNotMissed(t *testing.T) {
	t.Parallel()
	h := newHouse(t, func(context.Context, background.Attempt) background.Result { return paid })
	h.journal.SetCalm(true)
	m, err := background.New(h.config())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = m.Close() }()
	parked := h.journal.Submit(background.Run{Tenant: "acme", Target: "escrow", Family: family, RetryKey: "a", Queue: m.Queue(family, "a"), Bell: 1})
	missed := h.journal.Submit(background.Run{Tenant: "acme", Target: "other", Family: family, RetryKey: "b", Queue: m.Queue(family, "b"), Bell: 1})
	pull := func(b background.Brake) (background.Brake, bool) {
		return b.Pull(true, "kim", background.CauseByHand, "why", time.Now().UTC())
	}
	// By another process: this one does not know of it yet.
	if _, moved, err := h.journal.MoveBrake(t.Context(), background.Target{Tenant: "acme", Family: family, Name: "escrow"}, pull); err != nil || !moved {
		t.Fatal(moved, err)
	}
	for _, r := range []background.Run{parked, missed} {
		background.Confirm(t.Context(), m, r, background.BellRemoved)
	}
	if told := h.toldOutOfBand(parked.ID); len(told) != 0 {
		t.Errorf("parked: %v", told)
	}
	if told := h.toldOutOfBand(missed.ID); !slices.Equal(told, []string{background.BellRemoved}) {
		t.Errorf("missed: %v", told)
	}
}
