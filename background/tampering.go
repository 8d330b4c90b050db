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

// What was done to a task behind our back, as its receipt names it. It changes
// nothing: the journal alone says what a run is.
const (
	TaskArchived         = "bell_archived"  // the task of a run that waits was archived
	TaskRemoved          = "bell_removed"   // the task of a due run was in its queue and is gone, and Redis kept its memory
	ArchivedTaskRemoved  = "mirror_removed" // the mirror of an open letter is gone, and was not due to be pruned
	ArchivedTaskRequeued = "mirror_run"     // the mirror of an open letter was run again
)

// recordTampering leaves a receipt about a run whose task somebody touched, one for each bell
// at most. The run is as it was read after the touch was seen. What can't be
// recorded is told in the log.
func (m *Manager) recordTampering(ctx context.Context, run Run, kind string) {
	f := m.families[run.Family]
	if f == nil {
		return
	}
	tr := m.newTransition(receipts.OutOfBandChangeDetected, run)
	tr.Actor, tr.Reason = "observer:"+m.cfg.Worker, kind
	after, err := f.Record(ctx, tr)
	switch {
	case errors.Is(err, ErrConflict):
		return // told before, or the run has moved on and the touch with it
	case err != nil:
		m.log.Warn("a task was touched from outside, and that could not be recorded", zap.Stringer("run", run.ID), zap.String("what", kind), zap.Error(err))
		return
	}
	m.log.Warn("a task was touched from outside; nothing follows from it", zap.Stringer("run", run.ID), zap.String("what", kind))
	if m.cfg.OnTransition != nil {
		m.cfg.OnTransition(tr, after)
	}
}

// verifyTampering reads a run again and notices what was done to its task, if the run is
// still what it was taken for: what is seen in Redis may be older or newer than what
// the journal said a moment before.
func (m *Manager) verifyTampering(ctx context.Context, seen Run, kind string) {
	now, err := m.cfg.Store.Find(ctx, seen.ID)
	if err != nil {
		m.log.Warn("a task was touched from outside, and its run can't be read", zap.Stringer("run", seen.ID), zap.String("what", kind), zap.Error(err))
		return
	}
	same := now.State == seen.State && now.Attempt == seen.Attempt && now.NotificationNumber == seen.NotificationNumber && now.Letter == seen.Letter
	if !same || m.inFlight.has(now.ID) || kind == TaskRemoved && m.breakers.pausedRecently(now) {
		return // in the last case it is or was paused, and has no task
	}
	m.recordTampering(ctx, now, kind)
}

// detectRequeued notices that the mirror of an open letter was delivered because somebody ran
// it: asynq keeps the text that it was archived with. A delivery that was never
// acknowledged comes again with another text, or none; one that was, and came twice,
// is not active any more.
func (d *delivery) detectRequeued() {
	delivered := d.run
	delivered.NotificationNumber = d.notificationNumber
	info, err := d.m.inspector.GetTaskInfo(delivered.Queue, taskID(delivered))
	if err != nil || info.State != asynq.TaskStateActive || info.LastErr != archiveErrorFor(delivered).Error() {
		return
	}
	d.m.recordTampering(d.m.baseCtx, d.run, ArchivedTaskRequeued)
}

// detectRemoved notices the mirrors that somebody deleted since the last look: those that
// are gone though nobody of us had a reason to remove them.
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
		k.m.log.Warn("mirrors are gone, and their letters can't be read", zap.String("queue", queue), zap.Error(err))
		return
	}
	for _, id := range gone {
		run, ok := statuses[runIDOf(id)]
		if _, archived := now.newestNumber[run.ID]; !ok || run.Letter != LetterOpen || archived {
			continue // in the last case it was one of several
		}
		if k.taskAbsent(queue, id) && k.taskAbsent(queue, taskID(run)) {
			k.m.verifyTampering(ctx, run, ArchivedTaskRemoved)
		}
	}
}

// taskAbsent reports whether asynq knows that there is no such task, in no state.
func (k *taskArchive) taskAbsent(queue, id string) bool {
	_, err := k.m.inspector.GetTaskInfo(queue, id)
	return errors.Is(err, asynq.ErrTaskNotFound)
}

// taskObservations are the due runs whose task was seen waiting in Redis at the last sweeps.
type taskObservations struct{ current, previous map[RunID]taskObservation }

type taskObservation struct{ attempt, notificationNumber int }

// record notes what was found for a due run, and tells what somebody did to its task.
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
		// A delivery that found nothing to do is acknowledged; it does not come to that
		// before a bell is taken for stuck.
		if overdue < deadWorkerTimeout && (s.current[r.ID] == at || s.previous[r.ID] == at) {
			return TaskRemoved
		}
	}
	return ""
}

// rotate forgets the sightings of the sweep before the last one; with emptied, all.
func (s *taskObservations) rotate(dataLost bool) {
	if s.previous, s.current = s.current, nil; dataLost {
		s.previous = nil
	}
}

// runIDOf reads the run out of a task id; zero when it is not one of ours.
func runIDOf(taskID string) RunID {
	name, _, _ := strings.Cut(taskID, ".")
	id, err := receipts.ParseRunID(name)
	if err != nil {
		return RunID{}
	}
	return id
}
