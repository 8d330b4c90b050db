package background

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/hibiken/asynq"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/zap"

	"github.com/recourse-dev/recourse/receipts"
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
	probing   bool // claims though the circuit breaker is open, which let it through
}

// death makes asynq archive the task as the mirror of a dead letter.
type death struct{ text string }

func (d *death) Error() string { return d.text }

// Is tells asynq not to retry.
func (d *death) Is(target error) bool { return target == asynq.SkipRetry }

// mirror is the death of a run as asynq shows it: the type of its error alone. The text is
// the tenant's, and whoever opens asynqmon sees the tasks of all tenants.
func mirror(r Run) error {
	if r.Failure == nil {
		return &death{text: r.Reason}
	}
	return &death{text: r.Reason + ": " + r.Failure.Type}
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
		claim, err := d.claim()
		if err != nil {
			d.m.slots.release()
			if again, err := d.refused(err); !again {
				return err
			}
			continue
		}
		done := d.m.attempt(d.calls, d.family, d.run, claim)
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
		d.m.awaitLate(d.family, d.run, done.late, done.answered)
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

// uncalledPause is after what time a run is tried again whose target this process does not
// call. Another process may take it meanwhile.
const uncalledPause = time.Minute

// tellUncalled logs, once a target, that runs wait for a process that calls it.
func (m *Manager) tellUncalled(r Run) {
	if _, told := m.uncalled.LoadOrStore(Target{Family: r.Family, Name: r.Target}, true); !told {
		m.log.Error("runs name a target that this process does not call: they wait until one does", zap.String("target", r.Target), zap.String("family", r.Family), zap.Stringer("run", r.ID))
	}
}

// callsOutPause is after what time a run is tried again that has too many calls out.
const callsOutPause = time.Minute

// refused answers a claim that did not come about. It reports true when the run
// may be claimed now.
func (d *delivery) refused(cause error) (again bool, err error) {
	switch {
	case errors.Is(cause, ErrNotDue):
		err := d.m.pause(d.run, d.own.wake)
		return err == nil, err
	case errors.Is(cause, ErrBeforeFirstCall):
		first := d.run
		first.DueAt = first.FirstSentAt
		err := d.m.pause(first, d.own.wake)
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
		return d.letGo()
	case errors.Is(cause, ErrCallsOut):
		return false, &handBack{at: d.m.now().Add(callsOutPause)}
	case errors.Is(cause, ErrTargetUnknown):
		d.m.tellUncalled(d.run)
		return false, &handBack{at: d.m.now().Add(uncalledPause)}
	case errors.Is(cause, ErrUnreadable): // the ledger tells of it, once
		return false, &handBack{at: d.m.now().Add(unreadablePause)}
	case errors.Is(cause, ErrUnrecordable):
		return false, d.bury(cause)
	case errors.Is(cause, ErrKeyExpired):
		if d.m.breakers.pauses(d.run) {
			return d.letGo() // to be asked about once the target answers
		}
		return d.inquire()
	case errors.Is(cause, ErrRequestAltered):
		return d.condemn(cause)
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

// bury ends a run that can't be claimed, for the values of it: a person has to look.
func (d *delivery) bury(cause error) error {
	mv := d.m.move(receipts.DeadLettered, d.run)
	mv.Reason, mv.Result.Failure = ReasonUnrecordable, unrecordable(Result{}, cause)
	after, err := d.m.write(d.family, mv)
	if err != nil {
		d.m.log.Error("a run can neither be claimed nor ended", zap.Stringer("run", d.run.ID), zap.NamedError("cause", cause), zap.Error(err))
		return &handBack{at: d.m.now().Add(time.Minute)}
	}
	d.run = after
	return mirror(after)
}

// letGo lets go of a run that a circuit breaker pauses: its notification is acknowledged,
// and whoever closes the breaker notifies again. It reports true when the run may be
// claimed after all.
func (d *delivery) letGo() (again bool, err error) {
	if !d.m.breakers.confirm(d.run) {
		return true, nil
	}
	told, err := d.m.breakers.tell(d.m.life, d.run)
	if err != nil {
		d.m.log.Warn("a run that is paused is brought again, until its tenant's trail says so", zap.Stringer("run", d.run.ID), zap.Error(err))
	}
	if !told {
		return false, &handBack{at: d.m.now().Add(time.Second)}
	}
	d.m.breakers.paused.Add(1)
	return false, nil
}
