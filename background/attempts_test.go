package background_test

import (
	"context"
	"slices"
	"strings"
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
		t.Errorf("facts %v", got)
	}
	if last := transitions[len(transitions)-1]; last.Result.Moved != 100 || last.Result.Reference != "ref" {
		t.Errorf("result %+v", last.Result)
	}
	i := h.inspector()
	h.awaitTrue("the task is gone", func() bool {
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
		t.Errorf("facts %v", got)
	}
	i := h.inspector()
	h.awaitTrue("the mirror", func() bool {
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
			if m.Event == receipts.AttemptStarted && m.At.Before(due) {
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
	if r.Failure.Type != background.FailurePanic || r.Failure.Message != "boom" || !strings.Contains(r.Failure.Stack, "attempts_test.go") {
		t.Errorf("failure %+v", r.Failure)
	}
}
