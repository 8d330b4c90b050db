package background

import (
	"fmt"
	"time"

	"github.com/recourse-dev/recourse/receipts"
)

// Apply gives the run after the move, or the reason why the move is not for the
// run as it is now. It is pure: the journal calls it on the newest state of the
// run, and guards its statement with what it was called with.
//
//	pending ──claim──▶ running ──▶ succeeded
//	   ▲                 │ │ └───▶ dead_lettered (letter open)
//	   └── scheduled ◀───┘ └─────▶ cancelled
//
// Errors: ErrNotDue, ErrDeadLettered, ErrBreakerOpen, ErrTooManyOutstandingCalls, ErrReconcileFirst, ErrConflict.
func (tr Transition) Apply(now Run) (Run, error) {
	switch tr.Event {
	case receipts.AttemptStarted:
		return tr.claim(now)
	case receipts.AnsweredLate:
		return tr.recordLateAnswer(now)
	case receipts.OutOfBandChangeDetected:
		return now, nil // a fact about a task in Redis; nor is it the run's last move
	case receipts.Reconciled:
		return tr.reconcile(now)
	case receipts.Cancelled:
		if now.State.Waiting() && tr.Run.State.Waiting() {
			return tr.cancelWaiting(now)
		}
	case receipts.DeadLettered:
		if now.State.Waiting() && tr.Run.State.Waiting() {
			if now.Attempt != tr.Run.Attempt || now.Class != tr.Run.Class {
				return now, ErrConflict // tried again or cleared since: it may yet succeed
			}
			return tr.end(now)
		}
	}
	if now.State != Running || now.Attempt != tr.Run.Attempt || now.Token != tr.Run.Token || now.CancelRequested != tr.Run.CancelRequested {
		return now, ErrConflict
	}
	return tr.end(now)
}

func (tr Transition) claim(now Run) (Run, error) {
	switch {
	case now.State == DeadLettered:
		return now, ErrDeadLettered
	case !now.State.Waiting():
		return now, ErrConflict
	case tr.Blocks != nil && tr.Blocks(now):
		return now, ErrBreakerOpen
	case now.DueAt.After(tr.At):
		return now, ErrNotDue
	case len(now.OutstandingCalls) >= MaxOutstandingCalls:
		return now, ErrTooManyOutstandingCalls
	}
	now.State, now.Attempt, now.Token, now.Session, now.LastTransition = Running, now.Attempt+1, tr.Token, tr.Session, tr.ID
	if now.FirstSentAt.IsZero() {
		now.FirstSentAt = tr.At
	}
	return now, nil
}

// recordLateAnswer takes the answer of an attempt that had ended without it. One that is not awaited
// is refused with ErrConflict if it tells nothing new; that it paid is a fact, whoever
// awaits it.
func (tr Transition) recordLateAnswer(now Run) (Run, error) {
	answered, awaited := now.withoutOutstandingCall(tr.Run.Attempt)
	if decisive := tr.Result.Class == Executed || tr.Reason == ReasonUnrecordable; !awaited && (!decisive || now.Class == Executed) {
		return now, ErrConflict
	}
	return tr.mergeOutcome(answered), nil
}

func (tr Transition) cancelWaiting(now Run) (Run, error) {
	if now.MovesMoney() && (now.Class == Unknown || now.UnresolvedUnknowns > 0) {
		return now, ErrReconcileFirst
	}
	now.State, now.LastTransition = Cancelled, tr.ID
	return now, nil
}

func (tr Transition) reconcile(now Run) (Run, error) {
	late := now.ClosedUnpaid() && tr.Result.Class == Executed // a fact about money, whenever it is found
	if !now.State.Waiting() && now.Letter != LetterOpen && !late || now.Attempt != tr.Run.Attempt {
		return now, ErrConflict // what was found says nothing of a call made since
	}
	now = tr.mergeOutcome(now)
	if tr.Result.Class != Executed {
		return now, nil
	}
	switch {
	case now.Letter == LetterOpen:
		now.Letter = LetterReconciled
	case now.State.Waiting():
		now.State = Succeeded
	} // what was closed stays so
	return now, nil
}

// ClosedUnpaid reports whether a run was closed by people or by retention though no money of it
// is known to have moved: it was cancelled, or its letter was purged, forked, superseded, or closed
// without a payment. That it was executed after all can be found out later.
func (r *Run) ClosedUnpaid() bool {
	return r.Letter == LetterPurged || r.Class != Executed && (r.Letter == LetterReconciled || r.Letter == LetterForked || r.Letter == LetterSuperseded || r.State == Cancelled)
}

// mergeOutcome takes what is known of the money into the run and the case. All attempts of
// a run use one operation key: once it is known to be executed it stays so, whatever
// a later call tells. A refusal that comes late clears nothing: it speaks of its own
// call, and others may have been made since.
func (tr Transition) mergeOutcome(now Run) Run {
	now.LastTransition = tr.ID
	switch class := tr.Result.Class; {
	case now.Class == Executed:
	case class == Executed || tr.Lookup == Executed:
		now.Class, now.UnresolvedUnknowns = Executed, 0
	case tr.Lookup == NotExecuted || tr.Event == receipts.Reconciled && class == NotExecuted:
		now.Class, now.UnresolvedUnknowns, now.OutstandingCalls = NotExecuted, 0, nil // nothing can be on its way any more
	case class == Unknown && (tr.Event != receipts.AnsweredLate || tr.Reason == ReasonUnrecordable):
		now.Class, now.UnresolvedUnknowns = Unknown, now.UnresolvedUnknowns+1
	case class == NotExecuted && now.Class != Unknown && tr.Event != receipts.AnsweredLate:
		if now.Class = NotExecuted; now.MovesMoney() && now.UnresolvedUnknowns > 0 {
			now.Class = Unknown // of another run of the case
		}
	}
	return now
}

func (tr Transition) end(now Run) (Run, error) {
	now = tr.mergeOutcome(now)
	switch tr.Charge {
	case ChargeAttempt:
		now.BudgetSpent++
	case ChargeRecovery:
		now.Recoveries++
	}
	if tr.CallStillRunning {
		now = now.withOutstandingCall(now.Attempt)
	}
	if tr.Result.Failure != nil {
		now.Failure = tr.Result.Failure
	}
	switch tr.Event {
	case receipts.AttemptSucceeded:
		now.State = Succeeded
	case receipts.RetryScheduled, receipts.AttemptInterrupted:
		now.State, now.DueAt = Scheduled, tr.NextRetryAt
	case receipts.DeadLettered:
		now.State, now.Letter, now.DeadAt, now.Reason = DeadLettered, LetterOpen, tr.At, tr.Reason
	case receipts.Cancelled:
		now.State = Cancelled
	default:
		return now, fmt.Errorf("background: %q does not end an attempt", tr.Event)
	}
	return now, nil
}

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

// mostReduced is the last of the forms in which the end of an attempt is tried.
const mostReduced = 2

// reduced is the same end of an attempt, or the same late answer, without the values that
// can't be written: what was told stands as text in the failure, whose code is the class.
// The run becomes a dead letter, and what it paid is unknown to the case until a person
// has found it out. The second form tells the class alone.
func (tr Transition) reduced(id TransitionID, form int, cause error) Transition {
	reported := tr.Result
	if tr.Lookup == Executed {
		reported.Class = Executed
	}
	tr.ID = id
	tr.Result = Result{Class: Unknown, Failure: unrecordableFailure(reported, cause)}
	if form >= mostReduced {
		tr.Result.Failure = &Failure{Type: FailureUnrecordable, Code: string(reported.Class)}
	}
	if reported.Class == NotExecuted {
		tr.Result.Class = NotExecuted
	}
	tr.Lookup, tr.Reason = "", ReasonUnrecordable
	if tr.Event != receipts.AnsweredLate {
		tr.Event, tr.NextRetryAt = receipts.DeadLettered, tr.At
		if tr.Charge == ChargeNothing {
			tr.Charge = ChargeAttempt
		}
	}
	return tr
}

// unrecordableFailure tells in words what can't be written in its own members.
func unrecordableFailure(reported Result, cause error) *Failure {
	f := &Failure{Type: FailureUnrecordable, Code: string(reported.Class), Message: "it can't be recorded as it is"}
	switch {
	case reported.Class == Executed:
		f.Message = fmt.Sprintf("executed: %s minor units were moved, reference %q; that can't be recorded as it is", groupDigits(reported.Moved), reported.Reference)
	case reported.Failure != nil:
		f.Message = fmt.Sprintf("%s: %s %s; that can't be recorded as it is", reported.Failure.Type, reported.Failure.Code, reported.Failure.Message)
	}
	f.Message += ": " + cause.Error()
	return f
}

// groupDigits is a number that nothing takes for the number of a card.
func groupDigits(n int64) string {
	digits := fmt.Sprint(n)
	for i := len(digits) - 3; i > 0 && digits[i-1] != '-'; i -= 3 {
		digits = digits[:i] + "'" + digits[i:]
	}
	return digits
}
