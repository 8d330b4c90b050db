package background

import (
	"context"
	"errors"
	"time"
)

// Attempt is one call of a handler, already on record as started.
type Attempt struct {
	Run       Run // after the claim
	Number    int // from 1
	StartedAt time.Time
	// Fresh reports whether the call may still be made: nil, or ErrStaleClaim once the claim is
	// older than MaxClaimAge or the attempt has ended. A handler asks as late as it can, best
	// when all but the last byte of its request has left, for its process may have stood
	// still since the claim, and others may have executed or decided the opposite. Once
	// refused it sends no more and answers NotExecuted: the attempt then ends as
	// interrupted and spends nothing.
	Fresh func() error
	// NotAfter is when nobody waits for the answer any more: whoever is called is to
	// execute nothing then.
	NotAfter time.Time
}

// Family is a kind of task: what runs, and how its moves are recorded.
//
// A family MUST be safe for concurrent use, and Record MUST write the run, its
// case and its receipts in one commit.
type Family interface {
	// Name is stable: it is stored with each run and names its queues.
	Name() string
	// TimeLimit bounds one attempt. An attempt that takes longer ends as unknown.
	TimeLimit() time.Duration
	// Handle does the work once. It may panic; it should honour ctx.
	Handle(ctx context.Context, a Attempt) Result
	// Lookup asks the other side what became of the run. Class is Unknown when it
	// can't tell or there is nobody to ask. NotExecuted is final: it is answered only when
	// nothing was executed and no call can be any more, those of Run.OutstandingCalls
	// included.
	Lookup(ctx context.Context, r Run) Result
	// Record commits a move and returns the run after it. When the move is not
	// for the run as it is now, Record returns the run as it is now with one of
	// ErrConflict, ErrNotDue, ErrDeadLettered, ErrKeyExpired, ErrBeforeFirstCall, ErrReconcileFirst,
	// ErrSessionLost, ErrBreakerOpen, ErrTooManyOutstandingCalls, ErrRequestAltered, ErrTargetUnknown or ErrNotFound. ErrUnreadable and ErrUnrecordable are answers as well. A
	// move that is already recorded is answered as if it had just been.
	Record(ctx context.Context, m Transition) (Run, error)
}

// Store is what the manager asks the journal beside a family's moves.
type Store interface {
	// Find reads a run. ErrNotFound when there is none.
	Find(ctx context.Context, id RunID) (Run, error)
	// DueRuns lists live runs that are due at the given time and not paused by a
	// circuit breaker, oldest first, strictly after the cursor: of each at least its ids, tenant,
	// family, queue, target, state, letter, attempt, bell and due time.
	DueRuns(ctx context.Context, after Cursor, due time.Time, limit int) ([]Run, error)
	// AdvanceNotifications raises the bell number of each run that still has the number given and
	// is live, and returns the runs so changed.
	AdvanceNotifications(ctx context.Context, runs []Run) ([]Run, error)

	// Register makes a session known, as begun now by the ledger's clock. Claims name it.
	Register(ctx context.Context, s Session) error
	// Beat raises the counter of a session that Enlist made known, and keeps what the process
	// says of itself now: its queues, why it claims nothing, its Redis, and its clock. alive is false when
	// the session was declared lost or is not known: its process claims nothing more under it,
	// and now says nothing.
	Beat(ctx context.Context, s Session) (alive bool, now ClockReading, err error)
	// Clock reads the clock that all processes go by.
	Clock(ctx context.Context) (ClockReading, error)
	// Sessions lists all of them.
	Sessions(ctx context.Context) ([]Session, error)
	// MarkLost declares a session lost if its counter is still the one given, and
	// reports whether it is lost now.
	MarkLost(ctx context.Context, s Session) (bool, error)
	// AttemptsOf lists running runs that were claimed under a session, but those that this
	// program can't read.
	AttemptsOf(ctx context.Context, id SessionID, limit int) ([]Run, error)
	// MissingSessions goes through up to limit live runs, strictly after the cursor, and
	// returns the sessions that running ones of them name and that are not known; and where
	// to go on, the zero cursor at the end.
	MissingSessions(ctx context.Context, after Cursor, limit int) ([]SessionID, Cursor, error)
	// Remove forgets a session under which nothing runs any more, also no run that is
	// just being claimed.
	Remove(ctx context.Context, id SessionID) error

	BreakerStore
	ArchiveStore
}

// Cursor is a place in the order of Waiting. The zero cursor is before all.
type Cursor struct {
	DueAt time.Time
	ID    RunID
}

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
