package background_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/receipts"
)

func TestCallOverItsLimitEndsUnknownAndItsLateAnswerIsKept(t *testing.T) {
	t.Parallel()
	answer := make(chan struct{})
	cancelled := make(chan error, 1)
	h := newFixture(t, func(ctx context.Context, a background.Attempt) background.Result {
		if a.Number > 1 {
			return refused
		}
		<-ctx.Done()
		cancelled <- ctx.Err()
		<-answer
		return refused
	})
	h.family.AttemptLimit = 50 * time.Millisecond
	w := h.start()
	r := h.awaitState(h.submit(w).ID, background.DeadLettered)
	if err := <-cancelled; !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the call's context ended with %v", err)
	}
	first := h.journal.Transitions(r.ID)[1]
	if first.Event != receipts.RetryScheduled || first.Result.Class != background.Unknown ||
		first.Result.Failure.Type != background.FailureTimeout || first.Charge != background.ChargeAttempt {
		t.Errorf("the attempt ended as %+v", first)
	}
	if w.Stats().Abandoned != 1 {
		t.Errorf("stats %+v", w.Stats())
	}
	close(answer)
	h.await(r.ID, "answered late", func(background.Run) bool {
		return slices.Contains(h.events(r.ID), receipts.AnsweredLate)
	})
	transitions := h.journal.Transitions(r.ID)
	if late := transitions[len(transitions)-1]; late.Run.Attempt != 1 || late.Result.Failure.Type != refused.Failure.Type {
		t.Errorf("late move %+v", late)
	}
	h.awaitTrue("no call is abandoned", func() bool { return w.Stats().Abandoned == 0 })
}

func TestLateSuccessEndsTheRunThatWaits(t *testing.T) {
	t.Parallel()
	answer := make(chan struct{})
	h := newFixture(t, func(context.Context, background.Attempt) background.Result {
		<-answer
		return paid
	})
	h.family.AttemptLimit = 30 * time.Millisecond
	w := h.start()
	r := h.submit(w, func(r *background.Run) { r.Policy.BaseDelay = 900 * time.Millisecond })
	h.awaitState(r.ID, background.Scheduled)
	close(answer)
	r = h.awaitState(r.ID, background.Succeeded)
	if h.calls.Load() != 1 || r.Class != background.Executed {
		t.Errorf("calls %d, run %+v", h.calls.Load(), r)
	}
	want := []receipts.Subtype{receipts.AttemptStarted, receipts.RetryScheduled, receipts.AnsweredLate, receipts.Reconciled}
	if got := h.events(r.ID); !slices.Equal(got, want) {
		t.Errorf("facts %v", got)
	}
	h.awaitTrue("nobody waits", func() bool { return w.Stats().Waiting == 0 })
}

func TestLateSuccessClosesTheLetter(t *testing.T) {
	t.Parallel()
	answer := make(chan struct{})
	h := newFixture(t, func(context.Context, background.Attempt) background.Result {
		<-answer
		return paid
	})
	h.family.AttemptLimit = 30 * time.Millisecond
	w := h.start()
	r := h.submit(w, func(r *background.Run) { r.Policy.MaxRetryAttempts = 1 })
	h.awaitState(r.ID, background.DeadLettered)
	close(answer)
	h.await(r.ID, "reconciled", func(r background.Run) bool { return r.Letter == background.LetterReconciled })
}
