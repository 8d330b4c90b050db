package background

import (
	"context"
	"time"
)

// Attempt is one call of a handler, already on record as started.
type Attempt struct {
	Run       Run // after the claim
	Number    int // from 1
	StartedAt time.Time
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
	// can't tell or there is nobody to ask.
	Lookup(ctx context.Context, r Run) Result
	// Record commits a move and returns the run after it. When the move is not
	// for the run as it is now, Record returns the run as it is now with one of
	// ErrLostGuard, ErrNotDue, ErrDead, ErrKeyExpired, ErrReconcileFirst,
	// ErrSessionLost, ErrBraked or ErrNotFound. A move that is already recorded is answered as if it had just
	// been.
	Record(ctx context.Context, m Move) (Run, error)
}

// Ledger is what the manager asks the journal beside a family's moves.
type Ledger interface {
	// Find reads a run. ErrNotFound when there is none.
	Find(ctx context.Context, id RunID) (Run, error)
	// Waiting lists live runs that are due at the given time and not parked by a
	// brake, oldest first, strictly after the cursor: of each at least its ids, tenant,
	// family, queue, target, state, letter, attempt, bell and due time.
	Waiting(ctx context.Context, after Cursor, due time.Time, limit int) ([]Run, error)
	// Ring raises the bell number of each run that still has the number given and
	// is live, and returns the runs so changed.
	Ring(ctx context.Context, runs []Run) ([]Run, error)

	// Enlist makes a session known. Claims name it.
	Enlist(ctx context.Context, s Session) error
	// Beat raises the session's counter. alive is false when the session was
	// declared lost or is not known: its process claims nothing more under it.
	Beat(ctx context.Context, id SessionID) (alive bool, err error)
	// Sessions lists all of them.
	Sessions(ctx context.Context) ([]Session, error)
	// Bury declares a session lost if its counter is still the one given, and
	// reports whether it is lost now.
	Bury(ctx context.Context, s Session) (bool, error)
	// Orphans lists running runs that were claimed under a session.
	Orphans(ctx context.Context, id SessionID, limit int) ([]Run, error)
	// Dismiss forgets a session under which nothing runs any more.
	Dismiss(ctx context.Context, id SessionID) error

	BrakeLedger
	MirrorLedger
}

// Cursor is a place in the order of Waiting. The zero cursor is before all.
type Cursor struct {
	DueAt time.Time
	ID    RunID
}
