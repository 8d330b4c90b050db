package background_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/receipts"
)

func TestRunThatSucceedsIsCalledOnceAndAcknowledged(t *testing.T) {
	t.Parallel()
	h := newFixture(t, func(context.Context, background.Attempt) background.Result { return paid })
	w := h.start()
	r := h.awaitState(h.submit(w).ID, background.Succeeded)
	if h.calls.Load() != 1 || r.Attempt != 1 || r.BudgetSpent != 0 || r.Class != background.Executed {
		t.Errorf("calls %d, run %+v", h.calls.Load(), r)
	}
	transitions := h.journal.Transitions(r.ID)
	if got := h.events(r.ID); !slices.Equal(got, []receipts.Subtype{receipts.AttemptStarted, receipts.AttemptSucceeded}) {
		t.Errorf("events %v", got)
	}
	if last := transitions[len(transitions)-1]; last.Result.Moved != 100 || last.Result.Reference != "ref" {
		t.Errorf("result %+v", last.Result)
	}
	i := h.inspector()
	h.awaitTrue("the task is acknowledged", func() bool {
		_, err := i.GetTaskInfo(r.Queue, r.ID.String()+".1")
		return err != nil
	})
}

func TestThreeFailuresMakeADeadLetterArchivedWithItsErrorType(t *testing.T) {
	t.Parallel()
	h := newFixture(t, func(context.Context, background.Attempt) background.Result { return refused })
	w := h.start()
	r := h.awaitState(h.submit(w).ID, background.DeadLettered)
	if r.Attempt != 3 || r.BudgetSpent != 3 || r.Letter != background.LetterOpen || r.Reason != background.ReasonRetryExhausted {
		t.Errorf("run %+v", r)
	}
	if h.calls.Load() != 3 {
		t.Errorf("%d calls", h.calls.Load())
	}
	want := []receipts.Subtype{
		receipts.AttemptStarted, receipts.RetryScheduled, receipts.AttemptStarted, receipts.RetryScheduled,
		receipts.AttemptStarted, receipts.DeadLettered,
	}
	if got := h.events(r.ID); !slices.Equal(got, want) {
		t.Errorf("events %v", got)
	}
	i := h.inspector()
	h.awaitTrue("the archived task", func() bool {
		info, err := i.GetTaskInfo(r.Queue, r.ID.String()+".1")
		return err == nil && info.State == asynq.TaskStateArchived &&
			info.LastErr == "retry_exhausted: http.refused"
	})
}

func TestNoAttemptStartsBeforeItsTime(t *testing.T) {
	t.Parallel()
	h := newFixture(t, func(context.Context, background.Attempt) background.Result { return refused })
	w := h.start()
	var ids []background.RunID
	for range 20 {
		ids = append(ids, h.submit(w).ID)
	}
	for _, id := range ids {
		h.awaitState(id, background.DeadLettered)
		var due time.Time
		for _, m := range h.journal.Transitions(id) {
			if m.Subtype == receipts.AttemptStarted && m.At.Before(due) {
				t.Errorf("attempt %s early", due.Sub(m.At))
			}
			due = m.NextRetryAt
		}
	}
}

func TestPanicSpendsTheBudgetAndKeepsItsStack(t *testing.T) {
	t.Parallel()
	h := newFixture(t, func(context.Context, background.Attempt) background.Result { panic("boom") })
	w := h.start()
	r := h.awaitState(h.submit(w).ID, background.DeadLettered)
	if r.Attempt != 3 || r.BudgetSpent != 3 || r.Class != background.Unknown {
		t.Errorf("run %+v", r)
	}
	if r.Failure.Type != background.FailurePanic || r.Failure.Message != "boom" || !strings.Contains(r.Failure.Stack, "attempt_test.go") {
		t.Errorf("failure %+v", r.Failure)
	}
}

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
	if first.Subtype != receipts.RetryScheduled || first.Result.Class != background.Unknown ||
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
		t.Errorf("late transition %+v", late)
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
		t.Errorf("events %v", got)
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

func answers(r background.Result) func(context.Context, background.Run) background.Result {
	return func(context.Context, background.Run) background.Result { return r }
}

func TestUnknownIsLookedUpBeforeItsLetterIsOpened(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		looks  func(context.Context, background.Run) background.Result
		state  background.State
		class  background.Class
		lookup background.Class
	}{
		"executed":     {answers(paid), background.Succeeded, background.Executed, background.Executed},
		"not executed": {answers(refused), background.DeadLettered, background.NotExecuted, background.NotExecuted},
		"unknown":      {answers(vague), background.DeadLettered, background.Unknown, background.Unknown},
		"panics": {func(context.Context, background.Run) background.Result { panic("no") },
			background.DeadLettered, background.Unknown, background.Unknown},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newFixture(t, func(context.Context, background.Attempt) background.Result { return vague })
			h.family.LookupFunc = c.looks
			w := h.start()
			r := h.submit(w)
			r = h.await(r.ID, "ended", func(r background.Run) bool { return !r.State.Live() })
			transitions := h.journal.Transitions(r.ID)
			last := transitions[len(transitions)-1]
			if r.State != c.state || r.Class != c.class || last.Lookup != c.lookup || h.calls.Load() != 3 {
				t.Errorf("calls %d, run %+v, transition %+v", h.calls.Load(), r, last)
			}
			if c.class == background.Executed && (last.Result.Moved != 100 || last.Result.Reference != "ref") {
				t.Errorf("result %+v", last.Result)
			}
		})
	}
}

func TestExpiredKeyIsNotCalledAgain(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		looks background.Result
		state background.State
		calls int64
		facts []receipts.Subtype
	}{
		"executed": {paid, background.Succeeded, 1, []receipts.Subtype{receipts.Reconciled}},
		"not executed": {refused, background.Succeeded, 2,
			[]receipts.Subtype{receipts.Reconciled, receipts.AttemptStarted, receipts.AttemptSucceeded}},
		"unknown": {vague, background.DeadLettered, 1, []receipts.Subtype{receipts.DeadLettered}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newFixture(t, func(_ context.Context, a background.Attempt) background.Result {
				if a.Number == 1 {
					return vague
				}
				return paid
			})
			h.journal.SetKeyLifetime(time.Millisecond)
			h.family.LookupFunc = answers(c.looks)
			w := h.start()
			r := h.submit(w)
			r = h.await(r.ID, "ended", func(r background.Run) bool { return !r.State.Live() })
			want := append([]receipts.Subtype{receipts.AttemptStarted, receipts.RetryScheduled}, c.facts...)
			if got := h.events(r.ID); r.State != c.state || h.calls.Load() != c.calls || !slices.Equal(got, want) {
				t.Errorf("calls %d, run %+v, events %v", h.calls.Load(), r, got)
			}
			if r.State == background.DeadLettered && (r.Reason != background.ReasonOutcomeUnknown || r.BudgetSpent != 1 || r.UnknownOpen != 1) {
				t.Errorf("run %+v", r)
			}
		})
	}
}

// The delay of the next attempt counts from the time in its receipt.
func TestANextAttemptIsDueItsDelayAfterTheTransition(t *testing.T) {
	t.Parallel()
	h := newFixture(t, func(context.Context, background.Attempt) background.Result { return refused })
	var read atomic.Int64 // each reading of this clock is a millisecond later
	w := h.start(func(c *background.Config) {
		c.ClockSimulated = true
		c.Now = func() time.Time { return time.Now().Add(time.Duration(read.Add(1)) * time.Millisecond) }
	})
	r := h.submit(w)
	h.awaitState(r.ID, background.DeadLettered)
	scheduled := 0
	for _, m := range h.journal.Transitions(r.ID) {
		if m.Subtype != receipts.RetryScheduled {
			continue
		}
		scheduled++
		if got, want := m.NextRetryAt.Sub(m.At), r.Policy.DelayForAttempt(scheduled); got != want {
			t.Errorf("attempt %d: due %s after it ended, want %s", scheduled, got, want)
		}
	}
	if scheduled != 2 {
		t.Errorf("%d retries", scheduled)
	}
}
