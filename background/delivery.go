package background

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/hibiken/asynq"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/zap"
)

// delivery carries one run as far as one asynq task can: through its attempts and
// the short waits between them.
type delivery struct {
	m         *Manager
	family    Family
	run       Run // as last seen; only the id before the first claim
	bell      int // of the task that brought the run
	own       *engagement
	traced    context.Context // carries the delivery's span
	span      trace.Span
	calls     context.Context // of the session that claimed; ended when it is in doubt
	doubt     chan struct{}   // closed when a claim has been in doubt for too long
	doubtOnce sync.Once
	asked     bool // the key had expired, and a lookup cleared the run since
	probing   bool // claims for the brake's sake, though the brake is pulled
}

// death makes asynq archive the task as the mirror of a dead letter.
type death struct{ text string }

func (d *death) Error() string { return d.text }

// Is tells asynq not to retry.
func (d *death) Is(target error) bool { return target == asynq.SkipRetry }

// mirror is the death of a run as asynq shows it.
func mirror(r Run) error {
	switch f := r.Failure; {
	case f == nil:
		return &death{text: r.Reason}
	case f.Message == "":
		return &death{text: r.Reason + ": " + f.Type}
	default:
		return &death{text: r.Reason + ": " + f.Type + ": " + f.Message}
	}
}

// carry claims, calls, records and waits until the run has ended or has to be
// brought again. Its answer is asynq's: nil acknowledges the task, a death
// archives it, a handBack or errUnavailable brings it again.
func (d *delivery) carry() error {
	for {
		// The slot comes before the claim, so that a started attempt is running.
		if err := d.m.admit(); err != nil {
			return err
		}
		started, err := d.claim()
		if err != nil {
			d.m.slots.release()
			if again, err := d.refused(err); !again {
				return err
			}
			continue
		}
		done := d.m.attempt(d.calls, d.family, d.run, started)
		d.m.slots.release()
		if more, err := d.conclude(done); !more {
			return err
		}
	}
}

// conclude records how the attempt ended. It reports true after the wait for the
// next one.
func (d *delivery) conclude(done call) (more bool, err error) {
	after, err := d.m.finish(d.family, d.run, done)
	if done.late != nil {
		// Only now: an answer is late when its attempt is known to have ended.
		d.m.awaitLate(d.family, d.run, done.late)
	}
	if errors.Is(err, errClosed) {
		return false, errUnavailable
	}
	d.run, d.asked = after, false
	switch {
	case after.State == DeadLettered && after.Letter == LetterOpen:
		if d.own.isDetached() {
			d.m.BellBeside(d.m.life, after) // asynq does not wait for what would make its mirror
		}
		return false, mirror(after)
	case err != nil:
		return false, nil // whoever ended the attempt rings again
	case after.State == Scheduled && done.interrupted:
		return false, &handBack{at: after.DueAt}
	case after.State == Scheduled:
		err := d.m.pause(after, d.own.wake)
		return err == nil, err
	}
	return false, nil
}

// refused answers a claim that did not come about. It reports true when the run
// may be claimed now.
func (d *delivery) refused(cause error) (again bool, err error) {
	switch {
	case errors.Is(cause, ErrNotDue):
		err := d.m.pause(d.run, d.own.wake)
		return err == nil, err
	case errors.Is(cause, ErrDead):
		// A letter that was forked, purged or reconciled needs no mirror. An open one gets
		// it from whichever bell brought the run: of several, the older are removed again.
		if d.run.Letter == LetterOpen && d.bell >= 0 {
			d.rerun()
			return false, mirror(d.run)
		}
		return false, nil
	case errors.Is(cause, ErrBraked):
		return d.park()
	case errors.Is(cause, ErrKeyExpired):
		return d.inquire()
	case errors.Is(cause, ErrSessionLost):
		return false, errUnavailable // the next beat finds out, and begins a new session
	case errors.Is(cause, ErrNotFound):
		d.m.log.Warn("a bell rang for a run that does not exist", zap.Stringer("run", d.run.ID))
		return false, nil
	case errors.Is(cause, ErrLostGuard):
		return false, nil // running elsewhere, or ended: the everyday answer to a second bell
	case errors.Is(cause, errClosed):
		return false, errUnavailable
	}
	d.m.log.Warn("a run cannot be claimed", zap.Stringer("run", d.run.ID), zap.Error(cause))
	return false, &handBack{at: d.m.now().Add(time.Minute)}
}

// park lets go of a run whose brake is pulled: its bell is acknowledged, and whoever
// eases the brake rings again. It reports true when the run may be claimed after all.
func (d *delivery) park() (again bool, err error) {
	if !d.m.brakes.confirm(d.run) {
		return true, nil
	}
	d.m.brakes.parked.Add(1)
	return false, nil
}
