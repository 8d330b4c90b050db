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

// errEndedElsewhere ends a delivery whose attempt was ended by somebody else.
var errEndedElsewhere = errors.New("background: the attempt was ended by somebody else")

// finish records how an attempt ended and returns the run after it. The handler is
// never called again for it: when the run changed meanwhile, as by a request to
// cancel, only the decision is made anew. Errors: errClosed, and errEndedElsewhere with the
// run as it is instead.
func (m *Manager) finish(f Family, run Run, done callOutcome) (Run, error) {
	var lookup *Result
	for pause := time.Duration(0); ; pause = min(2*pause+writePauseMin, writePauseMax) {
		if pause > 0 && !sleep(m.baseCtx, pause) {
			return run, errClosed
		}
		now := m.now()
		end, needsLookup := m.decideEnding(run, done, lookup, now)
		if needsLookup {
			answer, wasInterrupted := m.lookup(f, lookupView(run, done))
			if wasInterrupted {
				done.interrupted = true
			}
			lookup, now = &answer, m.now()
			end, _ = m.decideEnding(run, done, lookup, now)
		}
		after, err := m.recordOutcome(f, m.endTransition(run, end, done, now))
		switch {
		case err == nil:
			return m.reconcileExecuted(f, after, end.result)
		case errors.Is(err, errClosed):
			return run, err
		case stillClaimed(after, run):
			run = after
			continue
		}
		m.log.Warn("an attempt was ended by somebody else", zap.Stringer("run", run.ID), zap.Int("attempt", run.Attempt),
			zap.String("class", string(done.result.Class)), zap.String("state", string(after.State)), zap.Error(err))
		m.recordLateResult(f, run, done)
		return after, errEndedElsewhere
	}
}

// recordOutcome writes how an attempt ended, in a narrower form where the values of it can't be
// written: so the outcome of one run never keeps the process from the others.
func (m *Manager) recordOutcome(f Family, tr Transition) (Run, error) {
	after, err := m.writeUntilReadable(f, tr)
	for form := 1; errors.Is(err, ErrUnrecordable); form++ {
		m.unrecordable.Add(1)
		m.log.Error("what became of an attempt can't be recorded as it is, its run is left to a person", zap.Stringer("run", tr.Run.ID),
			zap.Int("attempt", tr.Run.Attempt), zap.String("class", string(tr.Result.Class)), zap.Int64("moved", tr.Result.Moved), zap.Error(err))
		if form > mostReduced && !sleep(m.baseCtx, unreadableDelay) {
			return Run{}, errClosed
		}
		after, err = m.writeUntilReadable(f, tr.reduced(m.cfg.NewID(), form, err))
	}
	return after, err
}

// recordLateResult records what a call told whose attempt somebody else had ended, as when this
// process stood still for so long that it was declared lost: if it paid, that is a
// fact all the same, and so it is if nothing was sent.
func (m *Manager) recordLateResult(f Family, run Run, done callOutcome) {
	if done.interrupted && !done.result.Unsent || done.lateAnswer != nil || done.result.Class == Unknown {
		return
	}
	late := make(chan Result, 1)
	late <- done.result
	m.awaitLateAnswer(f, run, late, m.trackAbandoned(run))
}

// lookupView is a run as a lookup is to see it: the call of an attempt that does not wait for
// it any more is outstanding.
func lookupView(run Run, done callOutcome) Run {
	if done.lateAnswer != nil {
		return run.withOutstandingCall(run.Attempt)
	}
	return run
}

// decideEnding decides, or interrupts.
func (m *Manager) decideEnding(run Run, done callOutcome, lookup *Result, now time.Time) (ending, bool) {
	if done.interrupted {
		return interruptedEnding(run, done.result, now), false
	}
	if done.probe {
		return probeEnding(run, done.result, lookup, now)
	}
	return decide(run, done.result, lookup, now)
}

// endTransition is the move of an ending that was decided at a time given: it is also what the
// time of the next attempt counts from.
func (m *Manager) endTransition(run Run, end ending, done callOutcome, now time.Time) Transition {
	tr := m.newTransition(end.event, run)
	tr.At = now
	tr.Charge, tr.Result, tr.Lookup, tr.Reason, tr.NextRetryAt = end.charge, end.result, end.lookup, end.reason, end.next
	tr.Duration, tr.CallStillRunning, tr.Trace = done.took, done.lateAnswer != nil, done.trace
	return tr
}

// stillClaimed reports whether the attempt that was claimed is still the run's own.
func stillClaimed(now, claimed Run) bool {
	return now.State == Running && now.Attempt == claimed.Attempt && now.Token == claimed.Token
}

// lookup asks what became of a run. Who can't tell in time does not know.
func (m *Manager) lookup(f Family, run Run) (result Result, interrupted bool) {
	done := m.callWithin(m.baseCtx, f.TimeLimit(), func(ctx context.Context) Result { return f.Lookup(ctx, run) })
	return done.result, done.interrupted
}
