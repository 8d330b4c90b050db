package background

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"go.uber.org/zap"

	"github.com/recourse-dev/recourse/receipts"
)

// errClosed is the error of a write that Close interrupted.
var errClosed = errors.New("background: the manager is closed")

const (
	writePauseMin = 10 * time.Millisecond
	writePauseMax = time.Second
)

// WriteOutcomeKnown reports whether err is an answer of the journal to a transition. Otherwise
// it is not known whether the transition was written.
func WriteOutcomeKnown(err error) bool {
	for _, known := range []error{
		nil, ErrConflict, ErrNotDue, ErrExpired, ErrDeadLettered, ErrKeyExpired, ErrBeforeFirstCall, ErrReconcileFirst, ErrSessionLost, ErrBreakerOpen, ErrTooManyOutstandingCalls, ErrRequestAltered, ErrNotFound, ErrUnknownFamily,
		ErrUnreadable, ErrUnrecordable,
		ErrTargetUnknown,
	} {
		if errors.Is(err, known) {
			return true
		}
	}
	return false
}

// recorder records the transitions of runs, and decides how attempts end.
type recorder struct {
	caller       *handlerCaller // for lookups
	health       *health
	inFlight     *inFlightRuns
	now          func() time.Time
	newID        func() uuid.UUID
	worker       string                        // Config.Worker
	onTransition func(m Transition, after Run) // Config.OnTransition; may be nil
	log          *zap.Logger
	baseCtx      context.Context // ends at Close
	work         *sync.WaitGroup // late answers

	unrecordable atomic.Uint64 // outcomes that could not be recorded as they were
}

// write records a transition and retries until the journal answers. It is the same transition
// each time, so that it takes effect once. Only Close ends it sooner, with errClosed. Failures
// raise the manager's health error until the answer.
func (r *recorder) write(f Family, tr *Transition) (after Run, err error) {
	pause, failing := writePauseMin, false
	for {
		after, err = f.Record(r.baseCtx, *tr)
		if WriteOutcomeKnown(err) {
			if failing {
				r.health.onWriteAnswered()
			}
			// A claim may be written as the death of its run.
			written := err == nil || errors.Is(err, ErrDeadLettered) && after.LastTransition == tr.ID
			if written && r.onTransition != nil {
				r.onTransition(*tr, after)
			}
			return after, err
		}
		if errors.Is(err, ErrBusy) { // another transaction holds a lock: the journal works
			if failing {
				r.health.onWriteAnswered()
				pause, failing = writePauseMin, false
			}
			if !sleep(r.baseCtx, writePauseMin) {
				return after, errClosed
			}
			continue
		}
		r.health.onWriteFailed(!failing, tr, err)
		failing = true
		if !sleep(r.baseCtx, pause) {
			r.health.onWriteAnswered()
			return after, errClosed
		}
		pause = min(2*pause, writePauseMax)
	}
}

// unreadableDelay is the delay between tries for a run that this program cannot read.
const unreadableDelay = time.Minute

// sleep waits for d. It returns false when ctx ends first.
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

// newTransition returns a transition of a run as last seen.
func (r *recorder) newTransition(subtype receipts.Subtype, run *Run) Transition {
	return Transition{ID: r.newID(), Run: *run, Subtype: subtype, At: r.now(), Worker: r.worker}
}

// reconcileExecuted ends a waiting run, or closes its dead letter, when its money is known to
// have moved after all. It returns the run as it is then.
func (r *recorder) reconcileExecuted(f Family, run *Run, res *Result) (Run, error) {
	if run.Class != Executed || !run.State.Waiting() && run.Letter != LetterOpen {
		return *run, nil
	}
	tr := r.newTransition(receipts.Reconciled, run)
	tr.Result, tr.Lookup = Result{Class: Executed, Moved: res.Moved, Reference: res.Reference}, Executed
	after, err := r.write(f, &tr)
	if errors.Is(err, ErrConflict) {
		err = nil // it is running, or was reconciled elsewhere
	}
	return after, err
}

// errEndedElsewhere ends a delivery whose attempt another process ended.
var errEndedElsewhere = errors.New("background: the attempt was ended by another process")

// finish records how an attempt ended and returns the run after it. It never calls the handler
// again: when the run changed meanwhile, as by a request to cancel, only the decision is made
// again, on the run as it is now, which it sets. Errors: errClosed; errEndedElsewhere with the run as the journal returned it, zero if it was not
// found; those of recording that its money has moved after all.
func (r *recorder) finish(f Family, run *Run, done *callOutcome) (after Run, err error) {
	var lookup *Result
	for pause := time.Duration(0); ; pause = min(2*pause+writePauseMin, writePauseMax) {
		if pause > 0 && !sleep(r.baseCtx, pause) {
			return *run, errClosed
		}
		now := r.now()
		end, needsLookup := r.decideEnding(run, done, lookup, now)
		if needsLookup {
			lookup = r.lookup(f, run, done)
			now = r.now()
			end, _ = r.decideEnding(run, done, lookup, now)
		}
		tr := r.endTransition(run, &end, done, now)
		after, err = r.recordOutcome(f, &tr)
		switch {
		case err == nil:
			return r.reconcileExecuted(f, &after, &end.result)
		case errors.Is(err, errClosed):
			return *run, err
		case stillClaimed(&after, run):
			*run = after
			continue
		}
		r.log.Warn("attempt was ended by another process", zap.Stringer("run", run.ID), zap.Int("attempt", run.Attempt),
			zap.String("class", string(done.result.Class)), zap.String("state", string(after.State)), zap.Error(err))
		r.recordLateResult(f, run, done)
		return after, errEndedElsewhere
	}
}

// lookup looks up the outcome of the call of an attempt.
func (r *recorder) lookup(f Family, run *Run, done *callOutcome) *Result {
	view := *run
	if done.lateAnswer != nil { // the call outlived its attempt
		view.addOutstandingCall(run.Attempt)
	}
	answer, wasInterrupted := r.caller.lookup(f, view)
	if wasInterrupted {
		done.interrupted = true
	}
	return &answer
}

// recordOutcome records how an attempt ended, which only this process knows. If its values cannot be written it
// records a reduced form, so that the outcome of one run does not block the others. If this process cannot read
// the run, it retries every unreadableDelay, because a program that can read the run may make it readable.
// Nothing else in the process waits for it.
func (r *recorder) recordOutcome(f Family, tr *Transition) (after Run, err error) {
	form, whole, unreadable := 0, tr, false
	for {
		after, err = r.write(f, tr)
		switch {
		case errors.Is(err, ErrUnreadable):
			if !unreadable {
				r.logUnrecorded("outcome cannot be written because this program cannot read the run, retrying", tr, err)
			}
			unreadable = true
		case errors.Is(err, ErrUnrecordable):
			form, unreadable = form+1, false
			r.unrecordable.Add(1)
			r.logUnrecorded("outcome cannot be recorded as it is, its run becomes a dead letter", whole, err)
			tr = whole.reduced(r.newID(), form, err)
		default:
			return after, err
		}
		if (unreadable || form > mostReduced) && !sleep(r.baseCtx, unreadableDelay) {
			return after, errClosed
		}
	}
}

func (r *recorder) logUnrecorded(what string, tr *Transition, err error) {
	r.log.Error(what, zap.Stringer("run", tr.Run.ID), zap.String("event", string(tr.Subtype)), zap.Int("attempt", tr.Run.Attempt),
		zap.String("class", string(tr.Result.Class)), zap.Int64("moved", tr.Result.Moved), zap.Error(err))
}

// recordLateResult records the result of a call whose attempt another process ended, as when
// this process stood still so long that it was declared lost. A payment is recorded in any
// case, and so is a request that was not sent.
func (r *recorder) recordLateResult(f Family, run *Run, done *callOutcome) {
	if done.interrupted && !done.result.Unsent || done.lateAnswer != nil || done.result.Class == Unknown {
		return
	}
	late := make(chan Result, 1)
	late <- done.result
	r.awaitLateAnswer(f, *run, late, r.caller.trackOutstanding(run))
}

// decideEnding decides how the attempt ends: interrupted, without a charge, or by its result.
func (r *recorder) decideEnding(run *Run, done *callOutcome, lookup *Result, now time.Time) (ending, bool) {
	if done.interrupted {
		return interruptedEnding(run, &done.result, now), false
	}
	if done.uncharged {
		return probeEnding(run, &done.result, lookup, now)
	}
	return decide(run, &done.result, lookup, now)
}

// endTransition returns the transition of an ending that was decided at now. The delay of the
// next attempt counts from now as well.
func (r *recorder) endTransition(run *Run, end *ending, done *callOutcome, now time.Time) Transition {
	tr := r.newTransition(end.subtype, run)
	tr.At = now
	tr.Charge, tr.Result, tr.Lookup, tr.Reason, tr.NextRetryAt = end.charge, end.result, end.lookup, end.reason, end.next
	tr.HandedBack = end.handedBack
	tr.Duration, tr.LeavesCallOutstanding, tr.Trace = done.took, done.lateAnswer != nil || end.outstanding, done.trace
	return tr
}

// stillClaimed reports whether the claimed attempt is still the run's current one.
func stillClaimed(current, claimed *Run) bool {
	return current.State == Running && current.Attempt == claimed.Attempt && current.Token == claimed.Token
}

// awaitLateAnswer records the answer of a call whose attempt ended without it, with the run of
// that attempt.
func (r *recorder) awaitLateAnswer(f Family, run Run, lateAnswer <-chan Result, answered func()) {
	r.work.Go(func() {
		defer answered()
		var res Result
		select {
		case res = <-lateAnswer:
		case <-r.baseCtx.Done():
			return
		}
		tr := r.newTransition(receipts.AnsweredLate, &run)
		tr.Result = res
		after, err := r.recordOutcome(f, &tr)
		if errors.Is(err, ErrConflict) {
			return // recorded before
		}
		if err == nil {
			after, err = r.reconcileExecuted(f, &after, &res)
		}
		if err != nil {
			r.log.Error("late answer was not recorded", zap.Stringer("run", run.ID), zap.Int("attempt", run.Attempt),
				zap.String("class", string(res.Class)), zap.Error(err))
			return
		}
		if !after.State.Live() {
			r.inFlight.wake(run.ID)
		}
	})
}
