package background

import "errors"

// What a move or a question meets. Any other error of a Ledger or a Family's
// Record means that the journal could not be reached: nothing is known to have
// been written, and the same move may be recorded again.
var (
	ErrConflict       = errors.New("background: the run is no longer as the move expects it")
	ErrNotDue         = errors.New("background: the run is not due yet")
	ErrDeadLettered   = errors.New("background: the run is dead-lettered")
	ErrKeyExpired     = errors.New("background: an unknown outcome cannot be repeated, its operation key may have expired")
	ErrReconcileFirst = errors.New("background: the outcome of an attempt is unknown, reconcile first")
	ErrSessionLost    = errors.New("background: the session of the claim is not known or was declared lost")
	ErrBreakerOpen    = errors.New("background: the circuit breaker of the run's target is open")
	// ErrTargetUnknown: this process does not call the run's target. Nothing was written; one
	// that calls it goes on with the run.
	ErrTargetUnknown           = errors.New("background: this process does not call the run's target")
	ErrTooManyOutstandingCalls = errors.New("background: too many calls of the run have not come back")
	// ErrUnreadable: this program can't read the run, as one of a newer version. Nothing
	// was written; a program that can read it goes on with it.
	ErrUnreadable = errors.New("background: the run can't be read by this program")
	// ErrUnrecordable: the move, or what follows from it, has values that can't be written.
	// Nothing was written, and the same move never will be.
	ErrUnrecordable = errors.New("background: the move can't be recorded for its values")
	// ErrRequestAltered refuses a claim: what would be sent is not what was submitted.
	ErrRequestAltered = errors.New("background: the request is not what was submitted")
	ErrBusy           = errors.New("background: another transaction holds the case or its escrow")
	ErrNotFound       = errors.New("background: no such run")
	ErrUnknownFamily  = errors.New("background: no such family")
)

// ErrBeforeFirstCall: see ErrKeyExpired. A little later the clock can tell.
var ErrBeforeFirstCall = errors.New("background: this clock stands before the first call under the run's operation key")
