package background

import (
	"context"
	"time"

	"github.com/recourse-dev/recourse/background/lease"
)

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
	// has no lease.
	FindLease(ctx context.Context, tenant string, id RunID) (Run, lease.Lease, error)
	// ExtendLeases raises the version of leases that a worker holds and whose end was not
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
