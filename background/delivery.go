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
	m                  *Manager
	family             Family
	run                Run // as last seen; only the id before the first claim
	notificationNumber int // of the task that brought the run
	inFlight           *inFlightRun
	traceCtx           context.Context // carries the delivery's span
	span               trace.Span
	callCtx            context.Context // of the session that claimed; ended when it is in doubt
	claimTimeout       chan struct{}   // closed when a claim has been in doubt for too long
	claimTimeoutOnce   sync.Once
	lookedUp           bool // the key had expired, and a lookup cleared the run since
	probe              bool // claims though the circuit breaker is open, which let it through
}

// archiveError makes asynq archive the task as the mirror of a dead letter.
type archiveError struct{ text string }

func (d *archiveError) Error() string { return d.text }

// Is tells asynq not to retry.
func (d *archiveError) Is(target error) bool { return target == asynq.SkipRetry }

// archiveErrorFor is the death of a run as asynq shows it: the type of its error alone. The text is
// the tenant's, and whoever opens asynqmon sees the tasks of all tenants.
func archiveErrorFor(r Run) error {
	if r.Failure == nil {
		return &archiveError{text: r.Reason}
	}
	return &archiveError{text: r.Reason + ": " + r.Failure.Type}
}

// process claims, calls, records and waits until the run has ended or has to be
// brought again. Its answer is asynq's: nil acknowledges the task, a death
// archives it, a redeliverAt or errUnavailable brings it again.
func (d *delivery) process() error {
	for {
		// The slot comes before the claim, so that a started attempt is running.
		if err := d.m.admit(); err != nil {
			return err
		}
		claim, err := d.claim()
		if err != nil {
			d.m.slots.release()
			if retry, err := d.onClaimRefused(err); !retry {
				return err
			}
			continue
		}
		done := d.m.callHandler(d.callCtx, d.family, d.run, claim)
		if more, err := d.endAttempt(done); !more {
			return err
		}
	}
}

// endAttempt records how the attempt ended. It reports true after the wait for the
// next one.
func (d *delivery) endAttempt(done callOutcome) (more bool, err error) {
	after, err := d.m.finish(d.family, d.run, done)
	if done.lateAnswer != nil {
		// Only now: an answer is late when its attempt is known to have ended.
		d.m.awaitLateAnswer(d.family, d.run, done.lateAnswer, done.onAnswered)
	}
	if errors.Is(err, errClosed) {
		return false, errUnavailable
	}
	d.run, d.lookedUp = after, false
	switch {
	case after.State == DeadLettered && after.Letter == LetterOpen:
		if d.inFlight.isHandedOff() {
			d.m.NotifyAsync(d.m.baseCtx, after) // asynq does not wait for what would make its mirror
		}
		return false, archiveErrorFor(after)
	case err != nil:
		return false, nil // whoever ended the attempt rings again
	case after.State == Scheduled && done.interrupted:
		return false, &redeliverAt{at: after.DueAt}
	case after.State == Scheduled:
		err := d.m.waitUntilDue(after, d.inFlight.wake)
		return err == nil, err
	}
	return false, nil
}

// unknownTargetDelay is after what time a run is tried again whose target this process does not
// call. Another process may take it meanwhile.
const unknownTargetDelay = time.Minute

// logUnknownTarget logs, once a target, that runs wait for a process that calls it.
func (m *Manager) logUnknownTarget(r Run) {
	if _, logged := m.unknownTargetsLogged.LoadOrStore(Target{Family: r.Family, Name: r.Target}, true); !logged {
		m.log.Error("runs name a target that this process does not call: they wait until one does", zap.String("target", r.Target), zap.String("family", r.Family), zap.Stringer("run", r.ID))
	}
}

// outstandingCallsDelay is after what time a run is tried again that has too many calls out.
const outstandingCallsDelay = time.Minute

// onClaimRefused answers a claim that did not come about. It reports true when the run
// may be claimed now.
func (d *delivery) onClaimRefused(cause error) (retry bool, err error) {
	switch {
	case errors.Is(cause, ErrNotDue):
		err := d.m.waitUntilDue(d.run, d.inFlight.wake)
		return err == nil, err
	case errors.Is(cause, ErrBeforeFirstCall):
		beforeCall := d.run
		beforeCall.DueAt = beforeCall.FirstSentAt
		err := d.m.waitUntilDue(beforeCall, d.inFlight.wake)
		return err == nil, err
	case errors.Is(cause, ErrDeadLettered):
		// A letter that was forked, purged or reconciled needs no mirror. An open one gets
		// it from whichever bell brought the run: of several, the older are removed again.
		if d.run.Letter == LetterOpen && d.notificationNumber >= 0 {
			d.detectRequeued()
			return false, archiveErrorFor(d.run)
		}
		return false, nil
	case errors.Is(cause, ErrBreakerOpen):
		return d.acknowledgePaused()
	case errors.Is(cause, ErrTooManyOutstandingCalls):
		return false, &redeliverAt{at: d.m.now().Add(outstandingCallsDelay)}
	case errors.Is(cause, ErrTargetUnknown):
		d.m.logUnknownTarget(d.run)
		return false, &redeliverAt{at: d.m.now().Add(unknownTargetDelay)}
	case errors.Is(cause, ErrUnreadable): // the ledger tells of it, once
		return false, &redeliverAt{at: d.m.now().Add(unreadableDelay)}
	case errors.Is(cause, ErrUnrecordable):
		return false, d.deadLetterUnrecordable(cause)
	case errors.Is(cause, ErrKeyExpired):
		if d.m.breakers.blocksFresh(d.run) {
			return d.acknowledgePaused() // to be asked about once the target answers
		}
		return d.lookupBeforeClaim()
	case errors.Is(cause, ErrRequestAltered):
		return d.deadLetterAltered(cause)
	case errors.Is(cause, ErrSessionLost):
		return false, errUnavailable // the next beat finds out, and begins a new session
	case errors.Is(cause, ErrNotFound):
		d.m.log.Warn("a bell rang for a run that does not exist", zap.Stringer("run", d.run.ID))
		return false, nil
	case errors.Is(cause, ErrConflict):
		return false, nil // running elsewhere, or ended: the everyday answer to a second bell
	case errors.Is(cause, errClosed):
		return false, errUnavailable
	}
	d.m.log.Warn("a run cannot be claimed", zap.Stringer("run", d.run.ID), zap.Error(cause))
	return false, &redeliverAt{at: d.m.now().Add(time.Minute)}
}

// deadLetterUnrecordable ends a run that can't be claimed, for the values of it: a person has to look.
func (d *delivery) deadLetterUnrecordable(cause error) error {
	tr := d.m.newTransition(receipts.DeadLettered, d.run)
	tr.Reason, tr.Result.Failure = ReasonUnrecordable, unrecordableFailure(Result{}, cause)
	after, err := d.m.write(d.family, tr)
	if err != nil {
		d.m.log.Error("a run can neither be claimed nor ended", zap.Stringer("run", d.run.ID), zap.NamedError("cause", cause), zap.Error(err))
		return &redeliverAt{at: d.m.now().Add(time.Minute)}
	}
	d.run = after
	return archiveErrorFor(after)
}

// acknowledgePaused lets go of a run that a circuit breaker pauses: its notification is acknowledged,
// and whoever closes the breaker notifies again. It reports true when the run may be
// claimed after all.
func (d *delivery) acknowledgePaused() (retry bool, err error) {
	if !d.m.breakers.confirmBlocked(d.run) {
		return true, nil
	}
	recorded, err := d.m.breakers.recordPaused(d.m.baseCtx, d.run)
	if err != nil {
		d.m.log.Warn("a run that is paused is brought again, until its tenant's trail says so", zap.Stringer("run", d.run.ID), zap.Error(err))
	}
	if !recorded {
		return false, &redeliverAt{at: d.m.now().Add(time.Second)}
	}
	d.m.breakers.pausedDeliveries.Add(1)
	return false, nil
}

// maxInPlaceWait is the longest wait that is spent holding the delivery. asynq cuts times
// to whole seconds; longer waits go back to it.
const maxInPlaceWait = time.Second

// waitUntilDue waits until a run is due, or until it is woken because the run changed or
// its circuit breaker opened.
// It holds no slot. A wait that is too long, and every wait at shutdown, ends with
// a redeliverAt: the run stays scheduled and asynq brings it again.
func (m *Manager) waitUntilDue(run Run, wake <-chan struct{}) error {
	due := run.DueAt
	left := due.Sub(m.now())
	if left > maxInPlaceWait {
		return &redeliverAt{at: due}
	}
	deadline := time.Now().Add(left) // monotonic: no clock that is set meanwhile moves it
	m.waiting.Add(1)
	defer m.waiting.Add(-1)
	for {
		opened := m.breakers.nextOpening()
		left := time.Until(deadline) // asked again after each wake: timers err
		if left <= 0 || m.breakers.blocks(run) {
			return nil
		}
		timer := time.NewTimer(left)
		select {
		case <-timer.C:
		case <-opened:
			timer.Stop()
		case <-wake:
			timer.Stop()
			return nil
		case <-m.stop:
			timer.Stop()
			return &redeliverAt{at: due}
		}
	}
}

// deadLetterAltered ends a run whose request is not what was submitted: nothing is sent, nobody is
// asked about it, and what is known of its money stays as it was. It is a dead letter
// for a person. It reports true when the run changed meanwhile and may be claimed again.
func (d *delivery) deadLetterAltered(cause error) (retry bool, err error) {
	tr := d.m.newTransition(receipts.DeadLettered, d.run)
	tr.Reason = ReasonRequestAltered
	tr.Result.Failure = &Failure{Type: ReasonRequestAltered, Message: cause.Error()}
	after, err := d.m.write(d.family, tr)
	switch {
	case errors.Is(err, errClosed):
		return false, errUnavailable
	case errors.Is(err, ErrConflict):
		return true, nil // the run changed meanwhile: the claim finds out
	}
	d.run = after
	if err != nil {
		return d.onClaimRefused(err)
	}
	d.m.log.Error("a request was altered after it was submitted; nothing was sent, and a person has to look",
		zap.Stringer("run", after.ID), zap.String("tenant", after.Tenant), zap.Stringer("case", after.Case), zap.Error(cause))
	if after.Letter != LetterOpen {
		return false, nil
	}
	return false, archiveErrorFor(after)
}

// errInFlight hands a delivery back to asynq because this process is at its run.
var errInFlight = errors.New("background: this process is at the run already")

// inFlightRuns are the runs that this process is claiming, executing or waiting
// on. A second delivery of such a run has nothing to do, and no bell is missing
// for it. A bell that is newer than the one it came by is put back all the same: other
// processes look for the newest, and would ring again and again.
type inFlightRuns struct {
	mu   sync.Mutex
	runs map[RunID]*inFlightRun
}

// inFlightRun is one of them.
type inFlightRun struct {
	wake               chan struct{} // holds at most one: look at the run again
	notificationNumber int           // of the task that brought the run

	mu        sync.Mutex
	handedOff bool // asynq no longer holds the delivery
}

func newInFlightRuns() *inFlightRuns { return &inFlightRuns{runs: make(map[RunID]*inFlightRun)} }

// acquire begins an engagement, or returns the one that is going on and false.
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
		default: // one is waiting already
		}
	}
}

// handOff notes that asynq was told to bring the run again later, while this
// process goes on with it.
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

// Wake tells the manager that a run changed, such as by a cancel: if this
// process waits for the run's next attempt, it looks at the run again now.
func (m *Manager) Wake(id RunID) { m.inFlight.wake(id) }
