package background_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/background/circuit"
	"github.com/recourse-dev/recourse/receipts"
)

// A run that waits in place when its circuit breaker opens ends its delivery, spends no budget,
// and continues when the breaker closes.
func TestRunWaitingInPlaceIsPausedAndContinues(t *testing.T) {
	t.Parallel()
	h := newFixture(t, func(_ context.Context, a background.Attempt) background.Result {
		if a.Number == 1 {
			return refused
		}
		return paid
	})
	h.journal.SetReliable(true)
	w := h.start(func(c *background.Config) {
		c.SweepEvery = 50 * time.Millisecond
		c.Breaker = circuit.Rule{LeaderTimeout: 100 * time.Millisecond}
	})
	r := h.submit(w, func(r *background.Run) {
		r.Tenant, r.Target, r.Policy.BaseDelay = "acme", "escrow", 900*time.Millisecond
	})
	h.awaitState(r.ID, background.Scheduled)
	h.awaitTrue("it waits", func() bool { return w.Stats().Waiting == 1 })
	of := circuit.Scope{Tenant: "acme", Family: family, Name: "escrow"}
	move := func(decide func(circuit.Breaker) (circuit.Breaker, bool)) {
		if _, moved, err := w.UpdateBreaker(t.Context(), of, decide); err != nil || !moved {
			t.Fatal(moved, err)
		}
	}
	at := time.Now().UTC()
	move(func(b circuit.Breaker) (circuit.Breaker, bool) {
		return b.Open(true, "kim", circuit.CauseManual, "why", at)
	})
	h.awaitTrue("it is paused", func() bool { return w.Stats().PausedDeliveries == 1 && w.Stats().Waiting == 0 })
	if now := h.journal.Run(r.ID); now.State != background.Scheduled || now.BudgetSpent != 1 || h.calls.Load() != 1 {
		t.Errorf("%+v", now)
	}
	move(func(b circuit.Breaker) (circuit.Breaker, bool) {
		return b.Release("kim", circuit.CauseManual, "why", at)
	})
	done := h.awaitState(r.ID, background.Succeeded)
	want := []receipts.Subtype{receipts.AttemptStarted, receipts.RetryScheduled, receipts.AttemptStarted, receipts.AttemptSucceeded}
	if got := h.events(r.ID); !slices.Equal(got, want) || done.Attempt != 2 {
		t.Errorf("events %v, run %+v", got, done)
	}
	h.awaitTrue("the circuit breaker is closed", func() bool { return w.Stats().BreakersNotClosed == 0 })
}

// A run that is or was paused has no task: its absence is no tampering.
func TestAPausedRunsTaskIsNotReportedRemoved(t *testing.T) {
	t.Parallel()
	h := newFixture(t, func(context.Context, background.Attempt) background.Result { return paid })
	h.journal.SetReliable(true)
	m, err := background.New(h.config())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = m.Close() }()
	paused := h.journal.Submit(background.Run{Tenant: "acme", Target: "escrow", Family: family, RetryKey: "a", Queue: m.Queue(family, "a"), NotificationNumber: 1})
	resumed := h.journal.Submit(background.Run{Tenant: "acme", Target: "third", Family: family, RetryKey: "c", Queue: m.Queue(family, "c"), NotificationNumber: 1})
	missed := h.journal.Submit(background.Run{Tenant: "acme", Target: "other", Family: family, RetryKey: "b", Queue: m.Queue(family, "b"), NotificationNumber: 1})
	open := func(b circuit.Breaker) (circuit.Breaker, bool) {
		return b.Open(true, "kim", circuit.CauseManual, "why", time.Now().UTC())
	}
	// Opened by another process: this one has not read it yet.
	if _, moved, err := h.journal.UpdateBreaker(t.Context(), circuit.Scope{Tenant: "acme", Family: family, Name: "escrow"}, open); err != nil || !moved {
		t.Fatal(moved, err)
	}
	over := circuit.Scope{Family: family, Name: "third"}
	release := func(b circuit.Breaker) (circuit.Breaker, bool) {
		return b.Release("kim", circuit.CauseManual, "why", time.Now().UTC())
	}
	for _, step := range []func(circuit.Breaker) (circuit.Breaker, bool){open, release, release} {
		if now, moved, err := h.journal.UpdateBreaker(t.Context(), over, step); err != nil || !moved {
			t.Fatal(now, moved, err)
		}
	}
	for _, r := range []background.Run{paused, resumed, missed} {
		background.VerifyTampering(t.Context(), m, r, background.TaskRemoved)
	}
	if tampering := h.recordedTampering(paused.ID); len(tampering) != 0 {
		t.Errorf("paused: %v", tampering)
	}
	if tampering := h.recordedTampering(resumed.ID); len(tampering) != 0 {
		t.Errorf("paused and released between two reads: %v", tampering)
	}
	if tampering := h.recordedTampering(missed.ID); !slices.Equal(tampering, []string{background.TaskRemoved}) {
		t.Errorf("not recorded: %v", tampering)
	}
}
