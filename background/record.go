package background

import (
	"context"
	"errors"
	"time"

	"github.com/recourse-dev/recourse/receipts"
)

// errClosed ends a write that Close gave up.
var errClosed = errors.New("background: the manager is closed")

const (
	writePauseMin = 10 * time.Millisecond
	writePauseMax = time.Second
)

// answered reports whether the journal answered a move; else it is not known
// whether the move was written.
func answered(err error) bool {
	for _, known := range []error{
		nil, ErrLostGuard, ErrNotDue, ErrDead, ErrKeyExpired, ErrReconcileFirst, ErrSessionLost, ErrBraked, ErrNotFound, ErrUnknownFamily,
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
		if answered(err) {
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
