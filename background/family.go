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
	// Fresh reports whether the call may still be made. It returns nil, or ErrStaleClaim once
	// the claim is older than MaxClaimAge or the attempt has ended. A handler calls it as late
	// as it can, best when all but the last byte of its request is sent: its process may have
	// stood still since the claim, and another process may have executed the run or decided the
	// opposite. After a refusal the handler sends nothing more and returns NotExecuted. The
	// attempt then ends as interrupted and spends no budget.
	Fresh func() error
	// NotAfter is the time after which nobody waits for the answer. The called service must
	// execute nothing after it.
	NotAfter time.Time
}

// Family is a kind of task: its handler, and how its transitions are recorded.
//
// A family MUST be safe for concurrent use, and Record MUST write the run, its case and its
// receipts in one commit.
type Family interface {
	// Name returns the name of the family. It must not change: it is stored with each run and is
	// part of queue names.
	Name() string
	// TimeLimit returns the limit of one attempt. The outcome of an attempt that takes longer is
	// unknown.
	TimeLimit() time.Duration
	// Handle does the work once. It may panic. It should honour ctx.
	Handle(ctx context.Context, a Attempt) Result
	// Lookup asks the called service for the outcome of the run. Class is Unknown when the
	// service cannot answer or there is none to ask. NotExecuted is final: Lookup returns it
	// only when nothing was executed and no call can execute any more, including those of
	// Run.OutstandingCalls.
	Lookup(ctx context.Context, r Run) Result
	// Record commits a transition and returns the run after it. A transition that is already
	// recorded returns the same answer again. When the transition does not apply to the run as
	// it is now, Record returns that run with one of:
	//
	//   - ErrConflict, ErrNotDue, ErrExpired, ErrDeadLettered, ErrKeyExpired, ErrBeforeFirstCall,
	//     ErrReconcileFirst, ErrSessionLost, ErrBreakerOpen, ErrTooManyOutstandingCalls,
	//     ErrRequestAltered, ErrTargetUnknown, ErrNotFound
	//
	// ErrUnreadable and ErrUnrecordable are answers as well; see there.
	Record(ctx context.Context, m Transition) (Run, error)
}
