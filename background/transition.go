package background

import (
	"errors"
	"fmt"
	"time"

	"github.com/recourse-dev/recourse/background/lease"
	"github.com/recourse-dev/recourse/receipts"
)

// Apply makes the transition of a run. It changes now to the run after it, or returns the reason why the
// transition does not apply to the run, and leaves the run as it is. It changes nothing else. The journal calls it with the newest state of the run and guards its
// statement with that state.
//
//	pending ──claim──▶ running ──▶ succeeded
//	   ▲                 │ │ └───▶ dead_lettered (letter open), discarded
//	   └── scheduled ◀───┘ └─────▶ cancelled
//
// A run that waits, pending or scheduled, also ends without a claim: succeeded by a finding, cancelled,
// dead_lettered or discarded.
//
// Errors: ErrNotDue, ErrExpired, ErrDeadLettered, ErrBreakerOpen, ErrTooManyOutstandingCalls,
// ErrReconcileFirst, ErrConflict. Any other error is final: the same transition gets it again.
func (tr *Transition) Apply(now *Run) error {
	switch tr.Subtype {
	case receipts.AttemptStarted:
		return tr.claim(now)
	case receipts.AnsweredLate:
		return tr.recordLateAnswer(now)
	case receipts.OutOfBandChangeDetected:
		return nil // about a task in Redis: not the run's last transition
	case receipts.Reconciled:
		return tr.reconcile(now)
	case receipts.Activated:
		return tr.activate(now)
	case receipts.Cancelled:
		if now.State.Waiting() && tr.Run.State.Waiting() {
			return tr.cancelWaiting(now)
		}
	case receipts.DeadLettered, receipts.Discarded:
		if tr.Subtype == receipts.Discarded && now.MovesMoney() {
			return errDiscardsMoney
		}
		if now.State.Waiting() && tr.Run.State.Waiting() {
			if now.Attempt != tr.Run.Attempt || now.Class != tr.Run.Class {
				return ErrConflict // attempted again or resolved since: it may yet succeed
			}
			return tr.end(now)
		}
	}
	if now.State != Running || now.Attempt != tr.Run.Attempt || now.Token != tr.Run.Token || now.CancelRequested != tr.Run.CancelRequested {
		return ErrConflict
	}
	return tr.end(now)
}

// errDiscardsMoney refuses to discard a run that moves money.
var errDiscardsMoney = errors.New("background: a run that moves money is never discarded")

func (tr *Transition) claim(now *Run) error {
	switch {
	case now.State == DeadLettered:
		return ErrDeadLettered
	case !now.State.Waiting() || now.Remote != (tr.Lease != nil):
		return ErrConflict
	case tr.Blocks != nil && tr.Blocks(*now):
		return ErrBreakerOpen
	case now.DueAt.After(tr.At):
		return ErrNotDue
	case now.Expired(tr.At):
		return ErrExpired
	case len(now.OutstandingCalls) >= MaxOutstandingCalls:
		return ErrTooManyOutstandingCalls
	}
	now.State, now.Attempt, now.Token, now.Session, now.LastTransition, now.Reason = Running, now.Attempt+1, tr.Token, tr.Session, tr.ID, ""
	if now.FirstSentAt.IsZero() || tr.KeyForgotten {
		now.FirstSentAt = tr.At
	}
	return nil
}

func (tr *Transition) activate(now *Run) error {
	if !now.AwaitsActivation() {
		return ErrConflict
	}
	now.DueAt, now.LastTransition = tr.At, tr.ID
	return nil
}

// recordLateAnswer applies the answer of an attempt that ended without it. An answer that is
// not outstanding and adds nothing is refused with ErrConflict. One that reports a payment is
// recorded whether or not it is outstanding, because the payment is a fact. Of a run that has paid,
// the family decides what an answer adds: it may state another sum.
func (tr *Transition) recordLateAnswer(now *Run) error {
	awaited := now.IsOutstanding(tr.Run.Attempt)
	paid := now.Class == Executed
	decisive := tr.Result.Class == Executed || tr.Reason == ReasonUnrecordable
	if !awaited && (!decisive || paid) && !(paid && now.MovesMoney() && (tr.Result.Class != Unknown || tr.Reason == ReasonUnrecordable)) {
		return ErrConflict
	}
	now.removeOutstandingCall(tr.Run.Attempt)
	tr.mergeOutcome(now)
	return nil
}

func (tr *Transition) cancelWaiting(now *Run) error {
	if now.MovesMoney() && (now.Class == Unknown || now.UnknownOpen > 0) {
		return ErrReconcileFirst
	}
	now.State, now.LastTransition = Cancelled, tr.ID
	return nil
}

func (tr *Transition) reconcile(now *Run) error {
	late := (now.ClosedUnpaid() || now.ClosedPaid()) && tr.Result.Class == Executed // a payment is recorded whenever it is found
	switch {
	case tr.Result.Class != Executed && tr.Result.Class != NotExecuted:
		return fmt.Errorf("background: %q is no finding", tr.Result.Class)
	case !now.State.Waiting() && now.Letter != LetterOpen && !late || now.Attempt != tr.Run.Attempt:
		return ErrConflict // the finding does not cover calls made since
	}
	if now.State.Waiting() {
		now.Reason = "" // the call that was accepted has ended
	}
	tr.mergeOutcome(now)
	if tr.Result.Class != Executed {
		return nil
	}
	switch {
	case now.Letter == LetterOpen:
		now.Letter = LetterReconciled
	case now.State.Waiting():
		now.State = Succeeded
	} // a closed run stays closed
	return nil
}

// ClosedUnpaid reports whether people or retention closed a run of which no payment is known:
// it was cancelled, or its dead letter was purged, forked, superseded, or closed without a
// payment. A payment can still be found later.
func (r *Run) ClosedUnpaid() bool {
	return r.Letter == LetterPurged || r.Class != Executed && (r.Letter == LetterReconciled || r.Letter == LetterForked || r.Letter == LetterSuperseded || r.State == Cancelled)
}

// ClosedPaid reports whether a run that paid has ended. A finding may state that it paid more.
func (r *Run) ClosedPaid() bool { return r.MovesMoney() && r.Class == Executed && !r.IsActive() }

// mergeOutcome adds an outcome to what the run and its case know of the money. All attempts of
// a run use one operation key: once an execution is known it stays known, whatever a later call
// reports. A late refusal clears nothing: it covers its own call, and others may have been made
// since.
func (tr *Transition) mergeOutcome(now *Run) {
	now.LastTransition = tr.ID
	switch class := tr.Result.Class; {
	case now.Class == Executed:
	case class == Executed || tr.Lookup == Executed:
		now.Class, now.UnknownOpen = Executed, 0
	case tr.Lookup == NotExecuted || tr.Subtype == receipts.Reconciled && class == NotExecuted:
		now.Class, now.UnknownOpen, now.OutstandingCalls = NotExecuted, 0, nil // no call can be outstanding any more
	case class == Unknown && (tr.Subtype != receipts.AnsweredLate || tr.Reason == ReasonUnrecordable):
		now.Class, now.UnknownOpen = Unknown, now.UnknownOpen+1
	case class == NotExecuted && now.Class != Unknown && tr.Subtype != receipts.AnsweredLate:
		if now.Class = NotExecuted; now.MovesMoney() && now.UnknownOpen > 0 {
			now.Class = Unknown // because of another run of the case
		}
	}
}

func (tr *Transition) end(now *Run) error {
	switch tr.Subtype {
	case receipts.AttemptSucceeded:
		if now.State = Succeeded; now.Remote {
			now.Output = tr.Result.Output
		}
	case receipts.RetryScheduled, receipts.AttemptInterrupted:
		if now.State, now.DueAt = Scheduled, tr.NextRetryAt; tr.Reason == receipts.ReasonAccepted {
			now.Reason = tr.Reason
		}
	case receipts.DeadLettered:
		now.State, now.Letter, now.DeadAt, now.Reason = DeadLettered, LetterOpen, tr.At, tr.Reason
	case receipts.Discarded:
		now.State, now.Reason = Discarded, tr.Reason
	case receipts.Cancelled:
		now.State = Cancelled
	default:
		return fmt.Errorf("background: %q does not end an attempt", tr.Subtype)
	}
	tr.mergeOutcome(now)
	switch tr.Charge {
	case ChargeAttempt:
		now.BudgetSpent++
	case ChargeRecovery:
		now.Recoveries++
	}
	if tr.LeavesCallOutstanding {
		now.addOutstandingCall(now.Attempt)
	}
	if tr.HandedBack && tr.Subtype == receipts.AttemptInterrupted { // else the family ended the run, which is no hand-back
		now.HandedBack++
	}
	if tr.Result.Failure != nil {
		now.Failure = tr.Result.Failure
	}
	return nil
}

// Failure is why an attempt did not succeed. The family redacts its texts before they are
// recorded.
type Failure struct {
	Type    string `json:"type"`           // stable name that policies match, such as "http.refused"
	Code    string `json:"code,omitempty"` // code of the called service, such as "422"
	Message string `json:"message"`
	Stack   string `json:"stack,omitempty"` // set when the executor panicked, or by a remote worker
	Details string `json:"-"`               // what a remote worker added, as JSON; kept in receipts only
}

// Result is the result of one handler call or one lookup.
type Result struct {
	Class      Class         // Executed means success
	Retry      bool          // whether another call may help
	RetryAfter time.Duration // delay that the called service asked for; 0 when none
	Moved      int64         // minor units moved; 0 for families that move no money
	Reference  string        // the called service's reference of the effect
	Failure    *Failure      // nil exactly when Class is Executed
	Output     []byte        // what the remote worker returned with its success; not kept of a run that is not remote
	End        EndOrder      // whether the remote worker orders the end of the run

	Accepted bool // the service has accepted the call and not ended it; Class is Unknown, and RetryAfter is when to ask
	Unsent   bool // the claim was too old before the whole request was sent; set by the manager only
}

// MaxOutput bounds Result.Output, in bytes.
const MaxOutput = 64 << 10

// EndOrder is whether a remote worker orders that the run ends, whatever its policy.
type EndOrder int

// The orders. A run that moves money becomes a dead letter where EndDiscarded is ordered.
const (
	EndByPolicy EndOrder = iota
	EndDiscarded
	EndDeadLettered
)

// Reason codes of dead letters and of discarded runs.
const (
	ReasonRetryExhausted   = "retry_exhausted"
	ReasonFinal            = "final"
	ReasonNonRetryableType = "non_retryable_type"
	ReasonOutcomeUnknown   = "outcome_unknown" // a waiting run may have paid, and may not be called again
	ReasonPoisonPill       = "poison_pill"
	ReasonUnrecordable     = "unrecordable" // the outcome cannot be written as it is; see the failure
	ReasonRequestAltered   = "request_altered"
	ReasonOrdered          = "ordered_by_worker" // the remote worker ordered the end
	ReasonExpired          = "expired"           // no attempt started in time
)

// BudgetCharge says which budget the end of an attempt is charged to.
type BudgetCharge int

// The budgets.
const (
	ChargeNothing  BudgetCharge = iota // shutdown, success, cancel
	ChargeAttempt                      // failure, unknown, panic
	ChargeRecovery                     // the worker was lost
)

// Transition is one step of one run: the run as last seen, the subtype of its receipt, and its time. A family
// records it with its receipts in one commit. The same Transition may be recorded again after
// an ambiguous commit; it takes effect once.
type Transition struct {
	ID      TransitionID
	Run     Run // as last seen; its state, attempt, token and cancel request are the guard
	Subtype receipts.Subtype
	At      time.Time
	Worker  string

	Token                  Token          // AttemptStarted: the token of the new claim
	Lease                  *lease.Lease   // AttemptStarted of a remote run: what its worker holds
	Session                SessionID      // AttemptStarted: session of the claiming process
	Blocks                 func(Run) bool // AttemptStarted: whether a circuit breaker blocks the run; nil for a probe
	Charge                 BudgetCharge   // end of an attempt: budget to charge
	Result                 Result         // result of the attempt, of a late answer, or of a lookup
	Lookup                 Class          // class of the lookup before the transition; empty without lookup
	KeyForgotten           bool           // AttemptStarted: whoever pays has forgotten the operation key by now, and its lifetime counts from this call
	HandedBack             bool           // AttemptInterrupted: the remote worker handed the attempt back
	Reason                 string         // DeadLettered, Discarded: reason code. Cancelled: the requester's words. RetryScheduled: ReasonProbe, receipts.ReasonAccepted or empty
	NextRetryAt            time.Time      // RetryScheduled, AttemptInterrupted
	Duration               time.Duration
	LeavesCallOutstanding  bool   // the attempt ends, and its call is outstanding
	DespiteOutstandingCall bool   // Reconciled: who found it knew that calls may be outstanding
	DespiteRecord          bool   // Reconciled: who found it knew that what is on record says otherwise
	Actor                  string // who requested it; empty means the worker itself
	Trace                  string // W3C id of the attempt's trace; empty without trace
}

// mostReduced is the last of the reduced forms in which the end of an attempt is written.
const mostReduced = 2

// reduced returns the same end of an attempt, or the same late answer, without the values that
// cannot be written. The reported values are text in the failure, and the class is its code.
// The run becomes a dead letter, and its case does not know the payment until a person states
// it. The second form contains the class alone.
func (tr *Transition) reduced(id TransitionID, form int, cause error) *Transition {
	reported := tr.Result
	if tr.Lookup == Executed {
		reported.Class = Executed
	}
	less := *tr
	less.ID = id
	less.Result = Result{Class: Unknown, Failure: unrecordableFailure(&reported, cause)}
	if form >= mostReduced {
		less.Result.Failure = &Failure{Type: FailureUnrecordable, Code: string(reported.Class)}
	}
	if reported.Class == NotExecuted {
		less.Result.Class = NotExecuted
	}
	less.Lookup, less.Reason = "", ReasonUnrecordable
	if less.Subtype != receipts.AnsweredLate {
		less.Subtype, less.NextRetryAt = receipts.DeadLettered, time.Time{}
		if less.Charge == ChargeNothing {
			less.Charge = ChargeAttempt
		}
	}
	return &less
}

// unrecordableFailure returns a failure that states as text the values that cannot be written.
func unrecordableFailure(reported *Result, cause error) *Failure {
	f := &Failure{Type: FailureUnrecordable, Code: string(reported.Class), Message: "the outcome cannot be recorded as it is"}
	switch {
	case reported.Class == Executed:
		f.Message = fmt.Sprintf("executed: %s minor units were moved, reference %q; this cannot be recorded as it is", groupDigits(reported.Moved), reported.Reference)
	case reported.Failure != nil:
		f.Message = fmt.Sprintf("%s: %s %s; this cannot be recorded as it is", reported.Failure.Type, reported.Failure.Code, reported.Failure.Message)
	}
	f.Message += ": " + cause.Error()
	return f
}

// groupDigits formats a number so that redaction does not take it for a card number.
func groupDigits(n int64) string {
	digits := fmt.Sprint(n)
	for i := len(digits) - 3; i > 0 && digits[i-1] != '-'; i -= 3 {
		digits = digits[:i] + "'" + digits[i:]
	}
	return digits
}
