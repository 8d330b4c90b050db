package background

import (
	"context"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/retrypolicy"
)

// RunID identifies a run. It is a UUIDv7, so ids sort by creation time.
type RunID = receipts.RunID

// CaseID identifies the case of a run.
type CaseID = receipts.CaseID

// Token fences one claim: only the holder of the token that the claim wrote may
// end the attempt that the claim began.
type Token = uuid.UUID

// TransitionID identifies one transition. The run keeps the id of its last transition, so that
// the outcome of an ambiguous commit is recognised when the run is read again.
type TransitionID = uuid.UUID

// State is the state of a run.
type State string

// The states of a run. The first three are live.
const (
	Pending      State = "pending"
	Running      State = "running"
	Scheduled    State = "scheduled"
	Succeeded    State = "succeeded"
	DeadLettered State = "dead_lettered"
	Discarded    State = "discarded" // failed for good and not kept; only of runs that move no money
	Cancelled    State = "cancelled"
)

// NeverDue is the due time of a run that waits to be activated.
var NeverDue = time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC)

// Live reports whether a run in this state may still execute.
func (s State) Live() bool { return s == Pending || s == Running || s == Scheduled }

// Waiting reports whether a run in this state can be claimed.
func (s State) Waiting() bool { return s == Pending || s == Scheduled }

// LetterStatus is the status of a run's dead letter; empty when the run has none.
type LetterStatus string

// The statuses of a dead letter. Only an open one can be forked.
const (
	NoLetter         LetterStatus = ""
	LetterOpen       LetterStatus = "open"
	LetterForked     LetterStatus = "forked"
	LetterReconciled LetterStatus = "reconciled"
	LetterSuperseded LetterStatus = "superseded"
	LetterPurged     LetterStatus = "purged"
)

// Class is what is known of the effect of a call. For a run it is the worst class of its
// attempts that nothing has resolved since.
type Class string

// The outcome classes. Unknown is never treated as a failure.
const (
	NoClass     Class = ""
	Executed    Class = "executed"
	NotExecuted Class = "not_executed"
	Unknown     Class = "unknown"
)

// Run is one task as the journal last saw it.
type Run struct {
	ID        RunID
	Case      CaseID
	Tenant    string
	Family    string
	RetryKey  string
	Queue     string // asynq queue of its notifications, chosen once at submit; of a remote run, the queue that its workers fetch it from
	Target    string // the service that the handler calls; of a job, its type. Circuit breakers are per target
	Parent    RunID  // the run that was forked into this one
	Policy    retrypolicy.Policy
	Payload   []byte   // input of the handler; the stored request bytes for settlements
	Operation [32]byte // operation key; zero for families that move no money

	// Remote runs are fetched from their queue by remote workers, which hold a lease for each
	// attempt. They are not delivered; only the task of their dead letter is sent to asynq.
	Remote    bool
	Priority  int       // of a remote run: a higher one is fetched first
	ExpiresAt time.Time // no attempt starts from then on; zero: never

	// Terms are what the receipt of the run's submission states. It is nil when it was not read,
	// and zero when no receipt submits the run. The value is shared and must not be changed.
	Terms *receipts.Terms

	State              State
	Letter             LetterStatus
	Attempt            int // rises at every claim, never reused
	BudgetSpent        int // attempts that ended as failure, unknown or panic
	Recoveries         int // attempts that ended because their worker was lost
	HandedBack         int // attempts that their remote workers handed back
	Class              Class
	Token              Token
	Session            SessionID // of the process that made the last claim
	LastTransition     TransitionID
	CancelRequested    bool // requested while an attempt ran; decided at its end
	CancelBy           string
	CancelReason       string
	DueAt              time.Time // no attempt starts before it
	DeadAt             time.Time // zero unless dead-lettered
	NotificationNumber int       // number of the newest notification
	Reason             string    // reason code of the dead letter; of a waiting run receipts.ReasonAccepted or empty
	Failure            *Failure  // the last failure
	Output             []byte    // what the remote worker returned with its success

	// OutstandingCalls are the numbers of the attempts that ended while their call still ran,
	// ascending; nil when there are none. The slice is shared between copies and never changed
	// in place.
	OutstandingCalls []int

	// Of the case, read and written with its active run:
	UnknownOpen int       // unresolved unknown attempts
	FirstSentAt time.Time // of the first claim under the present operation key: nothing was sent before it
}

// IsActive reports whether the run occupies its retry key and its case.
func (r *Run) IsActive() bool { return r.State.Live() || r.Letter == LetterOpen }

// AwaitsActivation reports whether no attempt starts before the run is activated.
func (r *Run) AwaitsActivation() bool { return r.State.Waiting() && r.DueAt.Equal(NeverDue) }

// AwaitsEnd reports whether the called service has accepted the last call of a waiting run, and has not ended it.
func (r *Run) AwaitsEnd() bool {
	return r.State.Waiting() && r.Reason == receipts.ReasonAccepted && r.Class == Unknown
}

// Expired reports whether no attempt of the run may start at the given time or later.
func (r *Run) Expired(at time.Time) bool { return !r.ExpiresAt.IsZero() && !at.Before(r.ExpiresAt) }

// MovesMoney reports whether the run executes something that must not be repeated blindly. For
// a run that moves no money, an unknown outcome is a failure like any other.
func (r *Run) MovesMoney() bool { return r.Operation != [32]byte{} }

// MaxOutstandingCalls is the maximum number of outstanding calls of one run. A run with so many
// is not claimed until one returns.
const MaxOutstandingCalls = 16

// HasOutstandingCall reports whether a call of an ended attempt may still execute. While one
// may, nobody can prove that nothing will be paid.
func (r *Run) HasOutstandingCall() bool { return len(r.OutstandingCalls) > 0 }

// IsOutstanding reports whether the call of an attempt, which ended without its answer, may still execute.
func (r *Run) IsOutstanding(attempt int) bool { return slices.Contains(r.OutstandingCalls, attempt) }

// lastCallOutstanding reports whether the run can't be claimed again if the call of its attempt, too, is
// outstanding. A call of a lost worker never returns.
func (r *Run) lastCallOutstanding() bool { return len(r.OutstandingCalls)+1 >= MaxOutstandingCalls }

// addOutstandingCall makes the call of attempt outstanding.
func (r *Run) addOutstandingCall(attempt int) {
	if at, known := slices.BinarySearch(r.OutstandingCalls, attempt); !known {
		r.OutstandingCalls = slices.Insert(slices.Clone(r.OutstandingCalls), at, attempt)
	}
}

// removeOutstandingCall makes the call of attempt no longer outstanding.
func (r *Run) removeOutstandingCall(attempt int) {
	var others []int
	for _, other := range r.OutstandingCalls {
		if other != attempt {
			others = append(others, other)
		}
	}
	r.OutstandingCalls = others
}

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
	// service cannot answer or there is none to ask; a RetryAfter states when another lookup may
	// tell. NotExecuted is final: Lookup returns it
	// only when nothing was executed and no call can execute any more, including those of
	// Run.OutstandingCalls.
	Lookup(ctx context.Context, r Run) Result
	// Record commits a transition and returns the run after it. A transition that is already
	// recorded returns the same answer again. A family records nothing of a run of another family,
	// which a forged task may name: to it that run does not exist (ErrNotFound). When the transition does not apply to the run as
	// it is now, Record returns that run with one of:
	//
	//   - ErrConflict, ErrNotDue, ErrExpired, ErrDeadLettered, ErrKeyExpired, ErrBeforeFirstCall,
	//     ErrReconcileFirst, ErrSessionLost, ErrBreakerOpen, ErrTooManyOutstandingCalls,
	//     ErrRequestAltered, ErrTargetUnknown, ErrNotFound
	//
	// ErrUnreadable and ErrUnrecordable are answers as well; see there.
	Record(ctx context.Context, m Transition) (Run, error)
}
