package background

import "errors"

// What a move or a question meets. Any other error of a Ledger or a Family's
// Record means that the journal could not be reached: nothing is known to have
// been written, and the same move may be recorded again.
var (
	ErrLostGuard      = errors.New("background: the run is no longer as the move expects it")
	ErrNotDue         = errors.New("background: the run is not due yet")
	ErrDead           = errors.New("background: the run is dead-lettered")
	ErrKeyExpired     = errors.New("background: an unknown outcome cannot be repeated, its operation key may have expired")
	ErrReconcileFirst = errors.New("background: the outcome of an attempt is unknown, reconcile first")
	ErrSessionLost    = errors.New("background: the session of the claim is not known or was declared lost")
	ErrBraked         = errors.New("background: the brake of the run's target is pulled")
	ErrBusy           = errors.New("background: another transaction holds the case or its escrow")
	ErrNotFound       = errors.New("background: no such run")
	ErrUnknownFamily  = errors.New("background: no such family")
)
