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

// WriteOutcomeKnown reports whether the journal answered a move; else it is not known
// whether the move was written.
func WriteOutcomeKnown(err error) bool {
	for _, known := range []error{
		nil, ErrConflict, ErrNotDue, ErrDeadLettered, ErrKeyExpired, ErrBeforeFirstCall, ErrReconcileFirst, ErrSessionLost, ErrBreakerOpen, ErrTooManyOutstandingCalls, ErrRequestAltered, ErrNotFound, ErrUnknownFamily,
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
func (m *Manager) write(f Family, tr Transition) (Run, error) {
	pause, failing := writePauseMin, false
	for {
		after, err := f.Record(m.baseCtx, tr)
		if WriteOutcomeKnown(err) {
			if failing {
				m.health.onWriteAnswered()
			}
			if err == nil && m.cfg.OnTransition != nil {
				m.cfg.OnTransition(tr, after)
			}
			return after, err
		}
		if errors.Is(err, ErrBusy) && !failing {
			if !sleep(m.baseCtx, writePauseMin) {
				return Run{}, errClosed
			}
			continue // somebody else's transaction: the journal is well
		}
		m.health.onWriteFailed(!failing, tr, err)
		failing = true
		if !sleep(m.baseCtx, pause) {
			m.health.onWriteAnswered()
			return Run{}, errClosed
		}
		pause = min(2*pause, writePauseMax)
	}
}

// writeUntilReadable writes a move of which this process alone knows what it tells. One of a run that
// it can't read is tried again every unreadableDelay: a program that can read the run may
// make it readable. Nothing else of the process waits for that.
func (m *Manager) writeUntilReadable(f Family, tr Transition) (Run, error) {
	for logged := false; ; logged = true {
		after, err := m.write(f, tr)
		if !errors.Is(err, ErrUnreadable) {
			return after, err
		}
		if !logged {
			m.log.Error("what became of a run is known and can't be written, for this program can't read the run; trying on",
				zap.Stringer("run", tr.Run.ID), zap.String("fact", string(tr.Event)), zap.String("class", string(tr.Result.Class)), zap.Error(err))
		}
		if !sleep(m.baseCtx, unreadableDelay) {
			return Run{}, errClosed
		}
	}
}

// unreadableDelay is after what time a run is tried again that this program can't read.
const unreadableDelay = time.Minute

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

// newTransition begins a Move on a run as last seen.
func (m *Manager) newTransition(event receipts.Subtype, run Run) Transition {
	return Transition{ID: m.cfg.NewID(), Run: run, Event: event, At: m.now(), Worker: m.cfg.Worker}
}

// reconcileExecuted ends a run that waits, or closes its letter, when its money is known
// to have moved after all. It returns the run as it is then.
func (m *Manager) reconcileExecuted(f Family, run Run, res Result) (Run, error) {
	if run.Class != Executed || !run.State.Waiting() && run.Letter != LetterOpen {
		return run, nil
	}
	tr := m.newTransition(receipts.Reconciled, run)
	tr.Result, tr.Lookup = Result{Class: Executed, Moved: res.Moved, Reference: res.Reference}, Executed
	after, err := m.write(f, tr)
	if errors.Is(err, ErrConflict) {
		err = nil // it is being executed, or somebody else has done it
	}
	return after, err
}
