package background_test

import (
	"context"
	"testing"

	"github.com/hibiken/asynq"

	"github.com/recourse-dev/recourse/background"
)

// A promotion that is asked for again, its answer lost, comes when the run has died:
// its mirror is not to be run.
func TestEnqueueWaitingRunsNoArchivedTask(t *testing.T) {
	t.Parallel()
	final := refused
	final.Retry = false
	h := newFixture(t, func(context.Context, background.Attempt) background.Result { return final })
	h.journal.SetReliable(true)
	w := h.start()
	r := h.submit(w)
	h.awaitState(r.ID, background.DeadLettered)
	task := r.ID.String() + ".1"
	archived := func() bool {
		info, err := h.inspector().GetTaskInfo(r.Queue, task)
		return err == nil && info.State == asynq.TaskStateArchived
	}
	h.awaitTrue("the letter has its mirror", archived)
	if err := background.EnqueueWaiting(w.Manager, r.Queue, task); err == nil {
		t.Error("a mirror was promoted")
	}
	if !archived() {
		t.Error("the mirror is gone")
	}
	if tampering := h.recordedTampering(r.ID); len(tampering) > 0 {
		t.Errorf("it is said that somebody touched it: %v", tampering)
	}
}
