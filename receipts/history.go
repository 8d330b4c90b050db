package receipts

import "time"

// States of a run, by its receipts. The first three are live.
const (
	StatePending      = "pending"
	StateRunning      = "running"
	StateScheduled    = "scheduled"
	StateSucceeded    = "succeeded"
	StateDeadLettered = "dead_lettered"
	StateDiscarded    = "discarded"
	StateCancelled    = "cancelled"
)

// States of the letter of a dead-lettered run; a run that is not has none.
const (
	LetterOpen       = "open"
	LetterForked     = "forked"
	LetterReconciled = "reconciled"
	LetterSuperseded = "superseded"
	LetterPurged     = "purged"
)

// What is known of the money after an attempt, in Payload.OutcomeClass and AttemptClass. The first two are
// also what a finding may say.
const (
	ClassExecuted    = "executed"
	ClassNotExecuted = "not_executed"
	ClassUnknown     = "unknown"
)

// History is the state of a case by its receipts.
type History struct {
	Case        CaseID
	Tenant      string
	Runs        map[RunID]RunHistory
	Order       []RunID             // the runs in the order they were submitted
	UnknownOpen int                 // unresolved unknown attempts of the case
	FirstSentAt time.Time           // first attempt under the newest operation key; zero when none was made
	Settlement  *SettlementSnapshot // the last one that a receipt carried, or nil
}

// RunHistory is the state of one run.
type RunHistory struct {
	Run             RunID
	Family          string
	RetryKey        string
	Queue           string
	State           string
	Letter          string // "" until the run is dead-lettered
	AttemptCount    int    // attempts started
	BudgetSpent     int
	Recoveries      int
	Class           string           // worst unresolved class, by the last receipt that has one
	NextRetryAt     time.Time        // no attempt starts before it; zero: at once
	MovesMoney      bool             // it has an operation key
	Remote          bool             // remote workers fetch it
	Priority        int              // of a remote run
	Pending         bool             // no attempt starts before it is activated
	ExpiresAt       time.Time        // no attempt starts from then on; zero: never
	HandedBack      int              // attempts that workers gave back
	DeadAt          time.Time        // zero unless dead-lettered
	LastError       Failure          // of the last receipt of the run that carried one
	CancelRequested bool             // somebody asked that the run end with its attempt
	CancelBy        string           // who asked
	CancelReason    string           // and why
	Attempts        []AttemptHistory // Attempts[i] has the Number i+1
}

// AttemptHistory is one call of the executor.
type AttemptHistory struct {
	Number        int
	StartedAt     time.Time
	EndedAt       time.Time // zero while it runs
	EndedBy       Subtype   // "" while it runs
	Class         string
	Call          string // of its end: CallOut or CallOver; "" when that does not say
	AnsweredLater bool   // an answer of its call came after the attempt had ended
	ProvenUnpaid  bool   // a later lookup or finding says that nothing was or will be executed
	CutShort      bool   // it ended by a time-out, a shutdown or the loss of its worker
}

// What the end of an attempt that was cut short says of its call, in Payload.Call.
const (
	CallOut  = "out"  // it had not come back
	CallOver = "over" // nothing of it was on its way any more
)

// Failure types of attempts that are cut short.
const (
	FailureTimeout     = "timeout"
	FailureInterrupted = "interrupted"
)

// legacyCallWindow is the distance between attempts that versions before Payload.Call could not distinguish:
// they kept the outstanding calls in as many bits.
const legacyCallWindow = 63

// OutstandingCalls returns the attempts whose call was out when they ended and has not come back,
// ascending, as far as the receipts of their ends say.
func (r *RunHistory) OutstandingCalls() (out []int) {
	for _, a := range r.Attempts {
		if a.Call == CallOut && !a.AnsweredLater && !a.ProvenUnpaid {
			out = append(out, a.Number)
		}
	}
	return out
}

// MayBeOutstanding reports whether the receipts allow for a call of an attempt to be outstanding: its end
// says so, or was written by a version that did not say.
func (r *RunHistory) MayBeOutstanding(attempt int) bool {
	for _, a := range r.Attempts {
		switch {
		case a.AnsweredLater:
		case a.Number == attempt && a.Call == CallOut:
			return true
		case a.Call == "" && a.CutShort && (attempt-a.Number)%legacyCallWindow == 0:
			return true
		}
	}
	return false
}

// isWaiting reports that the run is live and no attempt of it is open.
func (r *RunHistory) isWaiting() bool { return r.State == StatePending || r.State == StateScheduled }
