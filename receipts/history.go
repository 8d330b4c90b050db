package receipts

import "time"

// States of a run, as read off its receipts. The first three are live.
const (
	StatePending      = "pending"
	StateRunning      = "running"
	StateScheduled    = "scheduled"
	StateSucceeded    = "succeeded"
	StateDeadLettered = "dead_lettered"
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

// History is the state of a case as its receipts tell it.
type History struct {
	Case        CaseID
	Tenant      string
	Runs        map[RunID]RunHistory
	Order       []RunID             // the runs in the order they were submitted
	UnknownOpen int                 // unresolved unknown attempts of the case
	Settlement  *SettlementSnapshot // the last one that a receipt carried, or nil
}

// RunHistory is the state of one run.
type RunHistory struct {
	Run         RunID
	Family      string
	RetryKey    string
	Queue       string
	State       string
	Letter      string // "" until the run is dead-lettered
	Attempts    int    // attempts started
	BudgetSpent int
	Recoveries  int
	Class       string           // worst unresolved class, as the last receipt that tells it says
	NextRetryAt time.Time        // zero unless scheduled for a time
	DeadAt      time.Time        // zero unless dead-lettered
	LastError   Failure          // of the last receipt of the run that carried one
	Attempt     []AttemptHistory // Attempt[i] has the Number i+1
}

// AttemptHistory is one call of the executor.
type AttemptHistory struct {
	Number    int
	StartedAt time.Time
	EndedAt   time.Time // zero while it runs
	EndedBy   Subtype   // "" while it runs
	Class     string
}

// waits reports that the run is live and no attempt of it is open.
func (r *RunHistory) waits() bool { return r.State == StatePending || r.State == StateScheduled }
