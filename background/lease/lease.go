// Package lease has the types that the requests of remote workers are made of: Want, the runs that a worker
// asks for; Lease, what it holds while it executes an attempt; and Held, how it names that lease when it
// answers.
//
// The package is pure: it imports receipts and the standard library only. Package background gives
// leases and ends them, and its store keeps them.
package lease

import (
	"time"

	"github.com/recourse-dev/recourse/receipts"
)

// Lease is what a remote worker holds while it executes an attempt.
type Lease struct {
	Run       receipts.RunID
	Tenant    string
	Worker    string        // the name that the worker gave itself; empty when it gave none
	Principal string        // who fetched the run: no other principal answers for it; Want.Actor
	Attempt   int           // the attempt
	At        time.Time     // when the run was claimed
	Length    time.Duration // the lease ends when its worker sends no heartbeat for so long
	Limit     time.Duration // of the attempt, heartbeats or not; 0: none
	Version   int64         // rises with every heartbeat
	Ended     End           // why it ended; empty while it is held
}

// End is why a lease ended before its worker answered. It is the type of the attempt's
// failure.
type End string

// The ends of leases.
const (
	Expired   End = "visibility_timeout"    // its length passed without a heartbeat; the name is Open Job Spec's
	OverLimit End = receipts.FailureTimeout // the time limit of the attempt passed
)

// Want is what a remote worker asks for: runs of a tenant that are due, from queues in the
// given order. Inside of a queue the highest priority comes first, then the earliest due time,
// then the id.
type Want struct {
	Tenant string
	Queues []string
	Count  int
	Worker string        // the name that the worker gives itself; may be empty
	Actor  string        // its principal, to which the leases belong; empty: the worker
	Length time.Duration // of the leases; 0: as the runs say, or the default
	Key    FetchKey      // zero: none
}

// FetchKey is the digest of what identifies a fetch. A fetch with the key of an earlier one of the same actor
// gets the leases that one got, as long as any of them is held, and nothing else; the LeaseStore may leave out runs
// that must not be given twice.
type FetchKey [32]byte

// Held names a lease by what its worker knows of it.
type Held struct {
	Run     receipts.RunID
	Tenant  string
	Worker  string // empty: any worker's of the principal
	Attempt int    // the number that the worker was given: attempts handed back are not counted, unless the run moves money; 0: any
	Actor   string // the principal that answers; empty: the worker
}

// BelongsTo reports whether a principal may answer for the lease, and extend it.
func (l *Lease) BelongsTo(principal string) bool {
	return l.Principal == principal
}

// Unnamed is the name in receipts of a worker that gave none.
const Unnamed = "unnamed"

// UnclaimableError refuses a claim of a run for good: the run ends with the reason.
type UnclaimableError struct{ Reason string }

func (e *UnclaimableError) Error() string {
	return "lease: the run cannot be claimed any more: " + e.Reason
}
