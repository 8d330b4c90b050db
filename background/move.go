package background

import (
	"time"

	"github.com/recourse-dev/recourse/receipts"
)

// Failure is why an attempt did not succeed. Its texts are redacted by the
// family before they are recorded.
type Failure struct {
	Type    string `json:"type"`           // stable name that policies match, such as "http.refused"
	Code    string `json:"code,omitempty"` // what the other side called it, such as "422"
	Message string `json:"message"`
	Stack   string `json:"stack,omitempty"` // set when the executor panicked
}

// Result is what one call of a handler, or one lookup, tells.
type Result struct {
	Class      Class         // Executed means success
	Retry      bool          // whether calling again may help
	RetryAfter time.Duration // what the other side asked for; 0 when it did not
	Moved      int64         // minor units that were moved; 0 for families that move no money
	Reference  string        // the other side's name of the effect
	Failure    *Failure      // nil exactly when Class is Executed

	Unsent bool // the claim was too old before anything whole was sent; set by the manager alone
}

// Reason codes of a death.
const (
	ReasonRetryExhausted   = "retry_exhausted"
	ReasonFinal            = "final"
	ReasonNonRetryableType = "non_retryable_type"
	ReasonOutcomeUnknown   = "outcome_unknown"
	ReasonPoisonPill       = "poison_pill"
	ReasonUnrecordable     = "unrecordable" // what became of it can't be written as it is: see its failure
	ReasonRequestAltered   = "request_altered"
)

// BudgetCharge says which budget the end of an attempt takes from.
type BudgetCharge int

// The budgets.
const (
	ChargeNothing  BudgetCharge = iota // shutdown, success, cancel
	ChargeAttempt                      // failure, unknown, panic
	ChargeRecovery                     // the worker was lost
)

// Transition is one step of one run: what was seen, what happened, when. A family
// records it together with its receipts in one commit. The same Move may be
// recorded again after an ambiguous commit; it takes effect once.
type Transition struct {
	ID     TransitionID
	Run    Run // as last seen: its state, attempt, token and cancel request are the guard
	Event  receipts.Subtype
	At     time.Time
	Worker string

	Token            Token          // AttemptStarted: the token of the new claim
	Session          SessionID      // AttemptStarted: of the process that claims
	Blocks           func(Run) bool // AttemptStarted: whether a circuit breaker keeps the run from being claimed; nil for a probe
	Charge           BudgetCharge   // how an attempt ended
	Result           Result         // how an attempt ended; what came late; what a lookup found
	Lookup           Class          // what a lookup said before the move was made; empty when none was asked
	Reason           string         // DeadLettered: reason code. Cancelled: the asker's words. RetryScheduled: ReasonProbe or empty
	NextRetryAt      time.Time      // RetryScheduled, AttemptInterrupted
	Duration         time.Duration
	CallStillRunning bool   // the attempt ends while its call has not come back
	CallOutstanding  bool   // Reconciled: whoever found it knows of calls that may be on their way
	Actor            string // who asked; empty means the worker itself
	Trace            string // W3C id of the trace that the attempt is part of; empty when it is part of none
}
