package background

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/hibiken/asynq"
	"go.uber.org/zap"

	"github.com/recourse-dev/recourse/receipts"
)

// Kinds of tampering with a task, as the receipt names them. Tampering changes nothing: the
// journal alone defines the state of a run.
const (
	TaskArchived         = "task_archived"          // the task of a waiting run was archived
	TaskRemoved          = "task_removed"           // the task of a due run was in its queue and is missing, and Redis kept its data
	ArchivedTaskRemoved  = "archived_task_removed"  // the archived task of an open dead letter is missing, and was not due to be pruned
	ArchivedTaskRequeued = "archived_task_requeued" // the archived task of an open dead letter was run again
)

// tamperingDetector records tampering with tasks.
type tamperingDetector struct {
	store    Store
	families map[string]Family
	inFlight *inFlightRuns
	breakers *breakerRegistry
	recorder *recorder
	log      *zap.Logger
}

// record writes a receipt about tampering with a run's task, at most one per
// notification number. The run must have been read after the tampering was seen. A failure is
// logged only.
func (t *tamperingDetector) record(ctx context.Context, run Run, kind string) {
	f := t.families[run.Family]
	if f == nil {
		return
	}
	tr := t.recorder.newTransition(receipts.OutOfBandChangeDetected, &run)
	tr.Actor, tr.Reason = ObserverActor+t.recorder.worker, kind
	after, err := f.Record(ctx, tr)
	switch {
	case errors.Is(err, ErrConflict):
		return // recorded before, or the run has changed since
	case err != nil:
		t.log.Warn("tampering with a task detected, it could not be recorded", zap.Stringer("run", run.ID), zap.String("kind", kind), zap.Error(err))
		return
	}
	t.log.Warn("tampering with a task detected, it has no effect", zap.Stringer("run", run.ID), zap.String("kind", kind))
	if t.recorder.onTransition != nil {
		t.recorder.onTransition(tr, after)
	}
}

// verify reads a run again and records the tampering if the run is unchanged: what was
// read from Redis may be older or newer than what the journal returned a moment before.
func (t *tamperingDetector) verify(ctx context.Context, seen Run, kind string) {
	now, err := t.store.Find(ctx, seen.ID)
	if err != nil {
		t.log.Warn("tampering with a task detected, its run cannot be read", zap.Stringer("run", seen.ID), zap.String("kind", kind), zap.Error(err))
		return
	}
	same := now.State == seen.State && now.Attempt == seen.Attempt && now.NotificationNumber == seen.NotificationNumber && now.Letter == seen.Letter
	if !same || t.inFlight.has(now.ID) || kind == TaskRemoved && t.breakers.pausedRecently(&now) {
		return // a run that is or was paused has no task
	}
	t.record(ctx, now, kind)
}

// detectRequeued records that somebody ran the archived task of an open dead letter. asynq
// keeps the error text that it was archived with. A delivery that was never acknowledged comes
// again with another text or none. One that was acknowledged and came twice is no longer
// active.
func (d *delivery) detectRequeued() {
	delivered := d.run
	delivered.NotificationNumber = d.notificationNumber
	info, err := d.m.inspector.GetTaskInfo(d.m.taskQueue(delivered), taskID(delivered))
	if err != nil || info.State != asynq.TaskStateActive || info.LastErr != archiveErrorFor(&delivered).Error() {
		return
	}
	d.m.tampering.record(d.m.baseCtx, d.run, ArchivedTaskRequeued)
}

// detectRemoved records the archived tasks that were deleted since the last scan though no
// process had a reason to remove them.
func (k *taskArchive) detectRemoved(ctx context.Context, queue string, before, now archiveSnapshot) {
	var gone []string
	for id, died := range before.diedAt {
		if _, there := now.diedAt[id]; !there && died.After(now.prunedUntil) {
			gone = append(gone, id)
		}
	}
	if len(gone) == 0 {
		return
	}
	statuses, err := k.runStatuses(ctx, gone)
	if err != nil {
		k.m.log.Warn("archived tasks were removed and their dead letters cannot be read", zap.String("queue", queue), zap.Error(err))
		return
	}
	for _, id := range gone {
		run, ok := statuses[runIDOf(id)]
		if _, archived := now.newestNumber[run.ID]; !ok || run.Letter != LetterOpen || archived {
			continue // another task of the run is archived
		}
		if k.taskAbsent(queue, id) && k.taskAbsent(queue, taskID(run)) {
			k.m.tampering.verify(ctx, run, ArchivedTaskRemoved)
		}
	}
}

// taskAbsent reports whether asynq answers that the task does not exist in any state.
func (k *taskArchive) taskAbsent(queue, id string) bool {
	_, err := k.m.inspector.GetTaskInfo(queue, id)
	return errors.Is(err, asynq.ErrTaskNotFound)
}

// taskObservations are the due runs whose task was seen waiting in Redis at the last two
// sweeps.
type taskObservations struct{ current, previous map[RunID]taskObservation }

type taskObservation struct{ attempt, notificationNumber int }

// record stores the state of a due run's task, and returns the kind of tampering that it shows,
// if any.
func (s *taskObservations) record(r Run, state string, overdue time.Duration) (kind string) {
	at := taskObservation{attempt: r.Attempt, notificationNumber: r.NotificationNumber}
	switch state {
	case "pending", "scheduled", "retry":
		if s.current == nil {
			s.current = map[RunID]taskObservation{}
		}
		s.current[r.ID] = at
	case "archived":
		return TaskArchived
	case "":
		// A delivery that found nothing to do is acknowledged and leaves no task. That does not
		// happen before a notification counts as stuck.
		if overdue < deadWorkerTimeout && (s.current[r.ID] == at || s.previous[r.ID] == at) {
			return TaskRemoved
		}
	}
	return ""
}

// rotate drops the observations before those of the last sweep, or all if Redis lost its data.
func (s *taskObservations) rotate(dataLost bool) {
	if s.previous, s.current = s.current, nil; dataLost {
		s.previous = nil
	}
}

// runIDOf returns the run id in a task id; zero when the id is not one of ours.
func runIDOf(taskID string) RunID {
	name, _, _ := strings.Cut(taskID, ".")
	id, err := receipts.ParseRunID(name)
	if err != nil {
		return RunID{}
	}
	return id
}
