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
	BellArchived  = "bell_archived"  // the task of a run that waits was archived
	BellRemoved   = "bell_removed"   // the task of a due run was in its queue and is gone, and Redis kept its memory
	MirrorRemoved = "mirror_removed" // the mirror of an open letter is gone, and was not due to be pruned
	MirrorRun     = "mirror_run"     // the mirror of an open letter was run again
)

// notice leaves a receipt about a run whose task somebody touched, one for each bell
// at most. The run is as it was read after the touch was seen. What can't be
// recorded is told in the log.
func (m *Manager) notice(ctx context.Context, run Run, what string) {
	f := m.families[run.Family]
	if f == nil {
		return
	}
	mv := m.move(receipts.OutOfBandChangeDetected, run)
	mv.Actor, mv.Reason = "observer:"+m.cfg.Worker, what
	after, err := f.Record(ctx, mv)
	switch {
	case errors.Is(err, ErrLostGuard):
		return // told before, or the run has moved on and the touch with it
	case err != nil:
		m.log.Warn("a task was touched from outside, and that could not be recorded", zap.Stringer("run", run.ID), zap.String("what", what), zap.Error(err))
		return
	}
	m.log.Warn("a task was touched from outside; nothing follows from it", zap.Stringer("run", run.ID), zap.String("what", what))
	if m.cfg.OnMove != nil {
		m.cfg.OnMove(mv, after)
	}
}

// confirm reads a run again and notices what was done to its task, if the run is
// still what it was taken for: what is seen in Redis may be older or newer than what
// the journal said a moment before.
func (m *Manager) confirm(ctx context.Context, seen Run, what string) {
	now, err := m.cfg.Ledger.Find(ctx, seen.ID)
	if err != nil {
		m.log.Warn("a task was touched from outside, and its run can't be read", zap.Stringer("run", seen.ID), zap.String("what", what), zap.Error(err))
		return
	}
	same := now.State == seen.State && now.Attempt == seen.Attempt && now.Bell == seen.Bell && now.Letter == seen.Letter
	if !same || m.engaged.has(now.ID) || what == BellRemoved && m.breakers.pausedLately(now) {
		return // in the last case it is or was paused, and has no task
	}
	m.notice(ctx, now, what)
}

// rerun notices that the mirror of an open letter was delivered because somebody ran
// it: asynq keeps the text that it was archived with. A delivery that was never
// acknowledged comes again with another text, or none; one that was, and came twice,
// is not active any more.
func (d *delivery) rerun() {
	brought := d.run
	brought.Bell = d.bell
	info, err := d.m.inspector.GetTaskInfo(brought.Queue, taskID(brought))
	if err != nil || info.State != asynq.TaskStateActive || info.LastErr != mirror(brought).Error() {
		return
	}
	d.m.notice(d.m.life, d.run, MirrorRun)
}

// missed notices the mirrors that somebody deleted since the last look: those that
// are gone though nobody of us had a reason to remove them.
func (k *mirrors) missed(ctx context.Context, queue string, before, now archive) {
	var gone []string
	for id, died := range before.died {
		if _, there := now.died[id]; !there && died.After(now.pruned) {
			gone = append(gone, id)
		}
	}
	if len(gone) == 0 {
		return
	}
	standing, err := k.standings(ctx, gone)
	if err != nil {
		k.m.log.Warn("mirrors are gone, and their letters can't be read", zap.String("queue", queue), zap.Error(err))
		return
	}
	for _, id := range gone {
		run, ok := standing[runOf(id)]
		if _, mirrored := now.newest[run.ID]; !ok || run.Letter != LetterOpen || mirrored {
			continue // in the last case it was one of several
		}
		if k.absent(queue, id) && k.absent(queue, taskID(run)) {
			k.m.confirm(ctx, run, MirrorRemoved)
		}
	}
}

// absent reports whether asynq knows that there is no such task, in no state.
func (k *mirrors) absent(queue, id string) bool {
	_, err := k.m.inspector.GetTaskInfo(queue, id)
	return errors.Is(err, asynq.ErrTaskNotFound)
}

// sightings are the due runs whose task was seen waiting in Redis at the last sweeps.
type sightings struct{ now, before map[RunID]sight }

type sight struct{ attempt, bell int }

// saw notes what was found for a due run, and tells what somebody did to its task.
func (s *sightings) saw(r Run, state string, overdue time.Duration) (what string) {
	at := sight{attempt: r.Attempt, bell: r.Bell}
	switch state {
	case "pending", "scheduled", "retry":
		if s.now == nil {
			s.now = map[RunID]sight{}
		}
		s.now[r.ID] = at
	case "archived":
		return BellArchived
	case "":
		// A delivery that found nothing to do is acknowledged; it does not come to that
		// before a bell is taken for stuck.
		if overdue < stuckAfter && (s.now[r.ID] == at || s.before[r.ID] == at) {
			return BellRemoved
		}
	}
	return ""
}

// turn forgets the sightings of the sweep before the last one; with emptied, all.
func (s *sightings) turn(emptied bool) {
	if s.before, s.now = s.now, nil; emptied {
		s.before = nil
	}
}

// runOf reads the run out of a task id; zero when it is not one of ours.
func runOf(taskID string) RunID {
	name, _, _ := strings.Cut(taskID, ".")
	id, err := receipts.ParseRunID(name)
	if err != nil {
		return RunID{}
	}
	return id
}
