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

// delivery processes one run for one asynq task: its attempts and the short waits between them.
type delivery struct {
	m                  *Manager
	family             Family
	run                Run // as last seen; only the id before the first claim
	notificationNumber int // of the task that brought the run
	inFlight           *inFlightRun
	traceCtx           context.Context // carries the delivery's span
	span               trace.Span
	callCtx            context.Context // ends when the session that claimed is lost or cannot send heartbeats
	claimTimeout       chan struct{}   // closed when a claim has been unanswered for too long
	claimTimeoutOnce   sync.Once
	lookedUp           bool // the key had expired, and a lookup resolved the run since
	probe              bool // claims a run that its open breaker lists as a probe
}

// archiveError makes asynq archive the task of a dead letter.
type archiveError struct{ text string }

func (d *archiveError) Error() string { return d.text }

// Is tells asynq not to retry.
func (d *archiveError) Is(target error) bool { return target == asynq.SkipRetry }

// archiveErrorFor returns the error that asynq shows for a dead-lettered run: reason code and
// failure type only. The failure's text belongs to the tenant, and asynqmon shows the tasks of
// all tenants.
func archiveErrorFor(r *Run) error {
	if r.Failure == nil {
		return &archiveError{text: r.Reason}
	}
	return &archiveError{text: r.Reason + ": " + r.Failure.Type}
}

// process claims, calls, records and waits until the run has ended or has to be delivered
// again. Its error is the answer to asynq: nil acknowledges the task, an archiveError archives
// it, a redeliverAt or errUnavailable makes asynq deliver it again.
func (d *delivery) process() error {
	for {
		// The slot comes before the claim, so that a started attempt is running.
		if err := d.m.claimGate.acquireSlot(); err != nil {
			return err
		}
		claim, err := d.claim()
		if err != nil {
			d.m.slots.release()
			if claimAgain, err := d.onClaimRefused(err); !claimAgain {
				return err
			}
			continue
		}
		done := d.m.caller.callHandler(d.callCtx, d.family, &d.run, claim)
		if more, err := d.endAttempt(&done); !more {
			return err
		}
	}
}

// endAttempt records how the attempt ended. It returns true after the wait for the next one.
func (d *delivery) endAttempt(done *callOutcome) (more bool, err error) {
	after, err := d.m.recorder.finish(d.family, &d.run, done)
	if done.lateAnswer != nil {
		// Only now: an answer is late once the end of its attempt is recorded.
		d.m.recorder.awaitLateAnswer(d.family, d.run, done.lateAnswer, done.onAnswered)
	}
	if errors.Is(err, errClosed) {
		return false, errUnavailable
	}
	d.run, d.lookedUp = after, false
	switch {
	case after.Letter == LetterOpen:
		if d.inFlight.isHandedOff() {
			d.m.NotifyAsync(d.m.baseCtx, after) // asynq no longer holds the task to archive
		}
		return false, archiveErrorFor(&after)
	case err != nil:
		return false, nil // ended elsewhere or not readable: another process or the sweeper notifies
	case after.State == Scheduled && done.interrupted:
		return false, &redeliverAt{at: after.DueAt}
	case after.State == Scheduled:
		err := d.waitUntilDue(&after)
		return err == nil, err
	}
	return false, nil
}

// unknownTargetDelay is the delay after which asynq delivers a run again whose target this
// process does not call. Another process may claim it meanwhile.
const unknownTargetDelay = time.Minute

// outstandingCallsDelay is the delay after which asynq delivers a run again that has too many
// outstanding calls.
const outstandingCallsDelay = time.Minute

// onClaimRefused handles the error of a claim. It returns true when the run may be claimed now.
func (d *delivery) onClaimRefused(cause error) (claimAgain bool, err error) {
	switch {
	case errors.Is(cause, ErrNotDue):
		err := d.waitUntilDue(&d.run)
		return err == nil, err
	case errors.Is(cause, ErrBeforeFirstCall):
		beforeCall := d.run
		beforeCall.DueAt = beforeCall.FirstSentAt
		err := d.waitUntilDue(&beforeCall)
		return err == nil, err
	case errors.Is(cause, ErrDeadLettered):
		// A dead letter that was forked, purged or reconciled needs no archived task. Any
		// notification of an open one may become it; taskArchive removes the older ones.
		if d.run.Letter == LetterOpen && d.notificationNumber >= 0 {
			d.detectRequeued()
			return false, archiveErrorFor(&d.run)
		}
		return false, nil
	case errors.Is(cause, ErrBreakerOpen):
		return d.acknowledgePaused()
	case errors.Is(cause, ErrTooManyOutstandingCalls):
		return false, &redeliverAt{at: d.m.now().Add(outstandingCallsDelay)}
	case errors.Is(cause, ErrTargetUnknown):
		d.m.targets.logUnknown(&d.run)
		return false, &redeliverAt{at: d.m.now().Add(unknownTargetDelay)}
	case errors.Is(cause, ErrUnreadable): // the journal logs it, once
		return false, &redeliverAt{at: d.m.now().Add(unreadableDelay)}
	case errors.Is(cause, ErrUnrecordable):
		return d.deadLetterUnrecordable(cause)
	case errors.Is(cause, ErrKeyExpired), errors.Is(cause, ErrReconcileFirst):
		if d.m.breakers.blocksFresh(&d.run) {
			return d.acknowledgePaused() // to be looked up once the target answers
		}
		return d.lookupBeforeClaim()
	case errors.Is(cause, ErrRequestAltered):
		return d.deadLetterAltered(cause)
	case errors.Is(cause, ErrSessionLost):
		return false, errUnavailable // the next heartbeat begins a new session
	case errors.Is(cause, ErrNotFound):
		d.m.log.Warn("notification of a run that does not exist, or is of another family", zap.Stringer("run", d.run.ID))
		return false, nil
	case errors.Is(cause, ErrConflict):
		return false, nil // running elsewhere, or ended: the usual answer to a second notification
	case errors.Is(cause, errClosed):
		return false, errUnavailable
	}
	d.m.log.Warn("run cannot be claimed", zap.Stringer("run", d.run.ID), zap.Error(cause))
	return false, &redeliverAt{at: d.m.now().Add(time.Minute)}
}

// deadLetterUnrecordable dead-letters a run that cannot be claimed because of its values. A
// person has to look at it. It returns true when the run changed meanwhile and may be claimed again.
func (d *delivery) deadLetterUnrecordable(cause error) (claimAgain bool, err error) {
	tr := d.m.recorder.newTransition(receipts.DeadLettered, &d.run)
	tr.Reason, tr.Result.Failure = ReasonUnrecordable, unrecordableFailure(&Result{}, cause)
	after, err := d.m.recorder.write(d.family, &tr)
	if errors.Is(err, ErrUnrecordable) {
		d.m.log.Error("run can neither be claimed nor dead-lettered", zap.Stringer("run", d.run.ID), zap.NamedError("cause", cause), zap.Error(err))
		return false, &redeliverAt{at: d.m.now().Add(time.Minute)}
	}
	return d.onWaitingRunWritten(after, err)
}

// onWaitingRunWritten handles the result of a transition of a run that waits, and sets d.run to the run
// after it. It returns true when the run may be claimed.
func (d *delivery) onWaitingRunWritten(after Run, err error) (claimAgain bool, answer error) {
	switch {
	case errors.Is(err, errClosed):
		return false, errUnavailable
	case errors.Is(err, ErrConflict):
		return true, nil // the run changed meanwhile: the claim reads it
	case errors.Is(err, ErrUnreadable), errors.Is(err, ErrNotFound): // the run after it is unknown
		return d.onClaimRefused(err)
	}
	d.run = after
	switch {
	case err != nil:
		return d.onClaimRefused(err)
	case after.Letter == LetterOpen:
		return false, archiveErrorFor(&after)
	}
	return after.State.Waiting(), nil
}

// acknowledgePaused acknowledges the notification of a run that a circuit breaker pauses; the
// process that closes the breaker notifies again. It returns true when the run may be claimed
// after all.
func (d *delivery) acknowledgePaused() (claimAgain bool, err error) {
	if !d.m.breakers.confirmBlocked(&d.run) {
		return true, nil
	}
	recorded, err := d.m.breakers.recordPaused(d.m.baseCtx, &d.run)
	if err != nil {
		d.m.log.Warn("run is redelivered until its tenant's trail records the pause", zap.Stringer("run", d.run.ID), zap.Error(err))
	}
	if !recorded {
		return false, &redeliverAt{at: d.m.now().Add(time.Second)}
	}
	d.m.breakers.pausedDeliveries.Add(1)
	return false, nil
}

// maxInPlaceWait is the longest wait that holds the delivery. Longer waits go back to asynq,
// which cuts times to whole seconds.
const maxInPlaceWait = time.Second

// waitUntilDue waits until a run is due, is woken because it changed, or is paused by its
// circuit breaker. It holds no slot. A wait that is too long, and every wait at shutdown,
// returns a redeliverAt: the run stays scheduled and asynq delivers it again.
func (d *delivery) waitUntilDue(run *Run) error {
	due := run.DueAt
	left := due.Sub(d.m.now())
	if left > maxInPlaceWait {
		return &redeliverAt{at: due}
	}
	deadline := time.Now().Add(left) // monotonic: setting the clock does not move it
	d.m.waiting.Add(1)
	defer d.m.waiting.Add(-1)
	for {
		opened := d.m.breakers.nextOpening()
		left := time.Until(deadline) // read again after each wake: timers are not exact
		if left <= 0 || d.m.breakers.blocks(*run) {
			return nil
		}
		timer := time.NewTimer(left)
		select {
		case <-timer.C:
		case <-opened:
			timer.Stop()
		case <-d.inFlight.wake:
			timer.Stop()
			return nil
		case <-d.m.stop:
			timer.Stop()
			return &redeliverAt{at: due}
		}
	}
}

// deadLetterAltered dead-letters a run whose request is not the submitted one. Nothing is sent,
// nothing is looked up, and what is known of its money does not change. It returns true when
// the run changed meanwhile and may be claimed again.
func (d *delivery) deadLetterAltered(cause error) (claimAgain bool, err error) {
	tr := d.m.recorder.newTransition(receipts.DeadLettered, &d.run)
	tr.Reason = ReasonRequestAltered
	tr.Result.Failure = &Failure{Type: ReasonRequestAltered, Message: cause.Error()}
	after, err := d.m.recorder.write(d.family, &tr)
	if err == nil {
		d.m.log.Error("request was altered after submission, nothing was sent, a person has to look at the dead letter",
			zap.Stringer("run", after.ID), zap.String("tenant", after.Tenant), zap.Stringer("case", after.Case), zap.Error(cause))
	}
	return d.onWaitingRunWritten(after, err)
}

// errInFlight gives a delivery back to asynq because this process already processes its run.
var errInFlight = errors.New("background: the run is in flight in this process")

// inFlightRuns are the runs that this process is claiming, executing or waiting for. A second
// delivery of such a run does nothing, and the run needs no notification. A newer notification
// than the one being processed goes back to asynq all the same: other processes check for the
// newest one and would send it again and again.
type inFlightRuns struct {
	mu   sync.Mutex
	runs map[RunID]*inFlightRun
}

// inFlightRun is one run in flight.
type inFlightRun struct {
	wake               chan struct{} // holds at most one signal to read the run again
	notificationNumber int           // of the task that brought the run

	mu        sync.Mutex
	handedOff bool // the delivery goes on, and asynq was told to deliver its task again later
}

func newInFlightRuns() *inFlightRuns { return &inFlightRuns{runs: make(map[RunID]*inFlightRun)} }

// acquire adds a run and returns true, or returns the entry that exists and false.
func (s *inFlightRuns) acquire(id RunID, notificationNumber int) (*inFlightRun, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.runs[id]; e != nil {
		return e, false
	}
	e := &inFlightRun{wake: make(chan struct{}, 1), notificationNumber: notificationNumber}
	s.runs[id] = e
	return e, true
}

func (s *inFlightRuns) release(id RunID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.runs, id)
}

func (s *inFlightRuns) has(id RunID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.runs[id] != nil
}

func (s *inFlightRuns) wake(id RunID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.runs[id]; e != nil {
		select {
		case e.wake <- struct{}{}:
		default: // a signal is pending
		}
	}
}

// handOff records that asynq was told to deliver the run again later, while this process
// continues it.
func (e *inFlightRun) handOff() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.handedOff = true
}

func (e *inFlightRun) isHandedOff() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.handedOff
}

// Wake reports that a run changed, such as by a cancel. If this process waits for the run's
// next attempt, it reads the run again now.
func (m *Manager) Wake(id RunID) { m.inFlight.wake(id) }
