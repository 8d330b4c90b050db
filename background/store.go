package background

import (
	"context"
	"errors"
	"time"

	"github.com/recourse-dev/recourse/background/circuit"
	"github.com/recourse-dev/recourse/background/lease"
)

// Store is what the manager reads and writes in the journal, besides transitions.
type Store interface {
	// Find reads a run. It returns ErrNotFound when there is none.
	Find(ctx context.Context, id RunID) (Run, error)
	// DueRuns lists live runs that are due at the given time and not paused by a circuit
	// breaker, oldest first, strictly after the cursor. It reads at least id, case, tenant,
	// family, queue, target, state, notification number and due time of each.
	DueRuns(ctx context.Context, after Cursor, due time.Time, limit int) ([]Run, error)
	// AdvanceNotifications raises the notification number of each run that is live and still has
	// the given number, and returns the changed runs.
	AdvanceNotifications(ctx context.Context, runs []Run) ([]Run, error)

	SessionStore
	BreakerStore
	ArchiveStore
}

// SessionStore stores the sessions of all processes, and the clock that they share.
type SessionStore interface {
	// Register creates a session that starts now, by the journal's clock. Claims name it.
	Register(ctx context.Context, s Session) error
	// Beat raises the counter of a registered session and stores what the process reports of
	// itself: queues, targets, why it claims nothing, its Redis and its clock offset. alive is
	// false when the session was declared lost or does not exist. Then the process claims
	// nothing more under it, and now is not set.
	Beat(ctx context.Context, s Session) (alive bool, now ClockReading, err error)
	// Clock reads the clock that all processes use.
	Clock(ctx context.Context) (ClockReading, error)
	// Sessions lists all sessions.
	Sessions(ctx context.Context) ([]Session, error)
	// MarkLost declares a session lost if its counter still has the given value, and reports
	// whether it is lost now.
	MarkLost(ctx context.Context, s Session) (bool, error)
	// AttemptsOf lists running runs that were claimed under a session, without those that this
	// program cannot read.
	AttemptsOf(ctx context.Context, id SessionID, limit int) ([]Run, error)
	// MissingSessions reads up to limit live runs, strictly after the cursor. It returns the
	// sessions that running ones of them name and that do not exist, and the cursor of the next
	// page; the zero cursor means the end.
	MissingSessions(ctx context.Context, after Cursor, limit int) ([]SessionID, Cursor, error)
	// Remove deletes a session if nothing runs under it, not even a run whose claim is being
	// committed.
	Remove(ctx context.Context, id SessionID) error
}

// PausedQuery selects waiting runs of a target that are due and that no breaker of their own
// tenant blocks.
type PausedQuery struct {
	circuit.Scope
	Called        []string // only runs of these targets; nil: of any
	Others        bool     // only runs of targets that are not in Called and that another process calls
	NeverClaimed  bool     // only runs never claimed; else only runs claimed before
	NewestFirst   bool     // in descending order of due time; else ascending
	StartFraction float64  // with NeverClaimed, ascending: start between the oldest (0) and the newest (1)
	After         Cursor   // for runs claimed before: strictly after
	Due           time.Time
	Limit         int
}

// BreakerStore stores circuit breakers for all processes.
type BreakerStore interface {
	// Breakers lists the breakers that are not closed.
	Breakers(ctx context.Context) ([]circuit.Breaker, error)
	// BreakerChangedAt returns when a breaker of a target last changed, of its tenant alone or
	// over all tenants, as that change recorded it; zero when none ever changed.
	BreakerChangedAt(ctx context.Context, t circuit.Scope) (time.Time, error)
	// UpdateBreaker changes a breaker and writes a receipt, in one commit. It calls decide with
	// the newest state, which is a closed breaker of version 0 when there is none. When decide
	// returns false nothing is written, and changed is false. now is the breaker as it is then.
	UpdateBreaker(ctx context.Context, t circuit.Scope, decide func(circuit.Breaker) (circuit.Breaker, bool)) (now circuit.Breaker, changed bool, err error)
	// RecordProbes writes Probes, NewCasesProbed, Paused and FewSince of a breaker, without a receipt, if
	// its version is still the one before next's and its state is next's. It reports whether it
	// did.
	RecordProbes(ctx context.Context, next circuit.Breaker) (bool, error)
	// PausedRuns lists waiting runs that a target's breaker applies to, with the fields that
	// DueRuns reads.
	PausedRuns(ctx context.Context, q PausedQuery) ([]Run, error)
	// CountPausedRuns counts the waiting runs that a target's breaker applies to, due or not, up
	// to most: all of them, and those of the targets in called. A nil called means all.
	CountPausedRuns(ctx context.Context, t circuit.Scope, called []string, most int) (all, named int, err error)
	// RecordPaused writes the receipt, in the tenant's own trail, that the breaker of a target
	// over all tenants pauses its runs. It does so once per opening, and not when the breaker is
	// closed.
	RecordPaused(ctx context.Context, tenant string, t circuit.Scope, at time.Time) error
	// RecordClosed writes the receipts, in the trails of paused tenants, that an opening is
	// over, up to limit. It returns how many it wrote.
	RecordClosed(ctx context.Context, at time.Time, limit int) (int, error)
}

// ArchiveStore reads the runs of archived tasks.
type ArchiveStore interface {
	// RunStatuses reads id, family, queue, state, letter, attempt and notification number of
	// runs. Runs that do not exist are left out.
	RunStatuses(ctx context.Context, ids []RunID) ([]Run, error)
}

// Cursor is a position in the order of DueRuns. The zero cursor is before all runs.
type Cursor struct {
	DueAt time.Time
	ID    RunID
}

// Claimed is what became of one run that a worker was to get.
type Claimed struct {
	Run         Run
	Lease       lease.Lease
	SubmittedAt time.Time // of the run
	OpenedAt    time.Time // of its case
	Err         error     // why the run was not claimed although it is due; one of Family.Record's
}

// LeaseStore claims remote runs for workers, and stores their leases. A lease exists exactly
// while its attempt runs: it is written in the commit of the claim, and removed in the commit
// that ends the attempt.
type LeaseStore interface {
	// ClaimDue claims runs for a want. start returns the transition of the claim of a run, with
	// its lease; it is not called after ClaimDue returned. Concurrent calls share a commit, and no
	// run is given to two. A run that can't be claimed is returned with its error. After an error
	// the claims may be committed: then their leases end by themselves.
	ClaimDue(ctx context.Context, at time.Time, want lease.Want, start func(Run) Transition) ([]Claimed, error)
	// FindLease reads a running run with its lease. ErrNotFound when it is not of the tenant, or
	// has no lease. The lease names its principal, also one that a process of the version before wrote.
	FindLease(ctx context.Context, tenant string, id RunID) (Run, lease.Lease, error)
	// ExtendLeases raises the version of leases that a principal and its worker hold and whose end was not
	// marked, sets their length unless it is 0, and returns them. The lease of a run that moves money
	// gets no shorter: its worker may execute the order for as long as it was given. No other row is
	// touched.
	ExtendLeases(ctx context.Context, held []lease.Held, length time.Duration) ([]lease.Lease, error)
	// Leases lists all leases.
	Leases(ctx context.Context) ([]lease.Lease, error)
	// EndLease marks why a lease ended, as l.Ended says, if it is still that of the attempt and has
	// the version of l, or is over its time limit, which no heartbeat moves. It reports whether it did.
	// A marked lease is not extended any more.
	EndLease(ctx context.Context, l lease.Lease) (bool, error)
	// ExpiredRuns lists waiting runs that expired by the given time.
	ExpiredRuns(ctx context.Context, at time.Time, limit int) ([]Run, error)
	// UnrepeatableRuns lists waiting runs that must not be attempted again: the outcome of an attempt is
	// unknown, and the operation key may have expired.
	UnrepeatableRuns(ctx context.Context, at time.Time, limit int) ([]Run, error)
}

// Errors of Store and Family.Record. Any other error means that the journal could not be
// reached: whether something was written is not known, and the same transition may be recorded
// again.
var (
	ErrConflict       = errors.New("background: the run changed since the transition was made")
	ErrNotDue         = errors.New("background: the run is not due yet")
	ErrExpired        = errors.New("background: the run has expired")
	ErrDeadLettered   = errors.New("background: the run is dead-lettered")
	ErrKeyExpired     = errors.New("background: an unknown outcome cannot be repeated, its operation key may have expired")
	ErrReconcileFirst = errors.New("background: the outcome of an attempt is unknown, reconcile first")
	ErrSessionLost    = errors.New("background: the session of the claim does not exist or was declared lost")
	ErrBreakerOpen    = errors.New("background: the circuit breaker of the run's target is open")
	// ErrTargetUnknown: this process does not call the run's target. Nothing was written. A
	// process that calls the target continues the run.
	ErrTargetUnknown           = errors.New("background: this process does not call the run's target")
	ErrTooManyOutstandingCalls = errors.New("background: too many calls of the run are outstanding")
	// ErrUnreadable: this program cannot read the run, as one written by a newer version.
	// This call wrote nothing; an earlier try of the same transition may have. A program that can
	// read it continues the run.
	ErrUnreadable = errors.New("background: this program cannot read the run")
	// ErrUnrecordable: the transition, or its consequences, have values that cannot be written.
	// Nothing was written, and the same transition never can be.
	ErrUnrecordable = errors.New("background: the transition has values that cannot be recorded")
	// ErrRequestAltered refuses a claim: the request is not the submitted one.
	ErrRequestAltered = errors.New("background: the request is not what was submitted")
	ErrBusy           = errors.New("background: another transaction holds the case or its escrow")
	ErrNotFound       = errors.New("background: no such run")
	ErrUnknownFamily  = errors.New("background: no such family")
)

// ErrBeforeFirstCall: whether the operation key expired cannot be decided while the clock is
// before the first call. A little later it can.
var ErrBeforeFirstCall = errors.New("background: the clock is before the first call under the run's operation key")
