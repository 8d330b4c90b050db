package background

import (
	"context"
	"errors"
	"time"

	"go.uber.org/zap"

	"github.com/recourse-dev/recourse/receipts"
)

// errClosed ends a write that Close gave up.
var errClosed = errors.New("background: the manager is closed")

const (
	writePauseMin = 10 * time.Millisecond
	writePauseMax = time.Second
)

// Answered reports whether the journal answered a move; else it is not known
// whether the move was written.
func Answered(err error) bool {
	for _, known := range []error{
		nil, ErrLostGuard, ErrNotDue, ErrDead, ErrKeyExpired, ErrBeforeFirstCall, ErrReconcileFirst, ErrSessionLost, ErrBraked, ErrCallsOut, ErrRequestAltered, ErrNotFound, ErrUnknownFamily,
		ErrUnreadable, ErrUnrecordable,
		ErrTargetUnknown,
	} {
		if errors.Is(err, known) {
			return true
		}
	}
	return false
}

// write records a move, again and again until the journal answers it. It is the
// same move each time, so that it takes effect once. Only Close ends it sooner,
// with errClosed. Failures raise the manager's health error until the answer.
func (m *Manager) write(f Family, mv Move) (Run, error) {
	pause, troubled := writePauseMin, false
	for {
		after, err := f.Record(m.life, mv)
		if Answered(err) {
			if troubled {
				m.health.settled()
			}
			if err == nil && m.cfg.OnMove != nil {
				m.cfg.OnMove(mv, after)
			}
			return after, err
		}
		if errors.Is(err, ErrBusy) && !troubled {
			if !sleep(m.life, writePauseMin) {
				return Run{}, errClosed
			}
			continue // somebody else's transaction: the journal is well
		}
		m.health.failed(!troubled, mv, err)
		troubled = true
		if !sleep(m.life, pause) {
			m.health.settled()
			return Run{}, errClosed
		}
		pause = min(2*pause, writePauseMax)
	}
}

// insist writes a move of which this process alone knows what it tells. One of a run that
// it can't read is tried again every unreadablePause: a program that can read the run may
// make it readable. Nothing else of the process waits for that.
func (m *Manager) insist(f Family, mv Move) (Run, error) {
	for told := false; ; told = true {
		after, err := m.write(f, mv)
		if !errors.Is(err, ErrUnreadable) {
			return after, err
		}
		if !told {
			m.log.Error("what became of a run is known and can't be written, for this program can't read the run; trying on",
				zap.Stringer("run", mv.Run.ID), zap.String("fact", string(mv.Fact)), zap.String("class", string(mv.Result.Class)), zap.Error(err))
		}
		if !sleep(m.life, unreadablePause) {
			return Run{}, errClosed
		}
	}
}

// unreadablePause is after what time a run is tried again that this program can't read.
const unreadablePause = time.Minute

// sleep pauses; it reports false when ctx ends first.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// move begins a Move on a run as last seen.
func (m *Manager) move(fact receipts.Subtype, run Run) Move {
	return Move{ID: m.cfg.NewID(), Run: run, Fact: fact, At: m.now(), Worker: m.cfg.Worker}
}

// settleKnown ends a run that waits, or closes its letter, when its money is known
// to have moved after all. It returns the run as it is then.
func (m *Manager) settleKnown(f Family, run Run, res Result) (Run, error) {
	if run.Class != Executed || !run.State.Waiting() && run.Letter != LetterOpen {
		return run, nil
	}
	mv := m.move(receipts.Reconciled, run)
	mv.Result, mv.Lookup = Result{Class: Executed, Moved: res.Moved, Reference: res.Reference}, Executed
	after, err := m.write(f, mv)
	if errors.Is(err, ErrLostGuard) {
		err = nil // it is being executed, or somebody else has done it
	}
	return after, err
}
