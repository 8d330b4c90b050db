package receipts

import (
	"errors"
	"fmt"
	"time"
)

// Illegal says which receipt can't follow the ones before it.
type Illegal struct {
	Case    CaseID
	Seq     int64
	Subtype Subtype
	What    string
	Budget  bool // an attempt starts before its time, after the run expired or before it was activated, or the budget of the run shrinks
}

// budgetProblem is why a receipt does not keep the budget or the times of its run.
type budgetProblem string

func (p budgetProblem) Error() string { return string(p) }

func (e *Illegal) Error() string {
	return fmt.Sprintf("receipts: %s.%d %s: %s", e.Case, e.Seq, e.Subtype, e.What)
}

// Fold returns the state of a case from all its receipts, in their order from sequence 1. It reads the
// bodies only, and does not check links: Verify does. Without receipts it returns the zero History.
//
// An impossible order is an *Illegal: a run submitted twice or never; an attempt that starts while
// another is open, before its next_retry_at, or with a number that is not the next; an end without a start
// or naming another attempt; a cancel asked for twice, or of a run that is not running; a transition of a
// letter that is not open; a budget that shrinks.
//
// Every started attempt ends in exactly one of attempt-succeeded, retry-scheduled, dead-lettered, discarded,
// attempt-interrupted, cancelled, which names it in payload.attempt. Those six carry budget_spent, recoveries,
// outcome_class and unknown_open as they are after the receipt, also if one of them ends a waiting run. A member
// that is not written is zero. reconciled carries the last two, and so does answered-late if it has an
// outcome_class. submitted has the outcome_class that a run begins with: that of a fork is unknown while that of its
// case is. All others leave these four as they were.
func Fold(rs []Receipt) (History, error) {
	f := foldState{runs: make(map[RunID]*RunHistory)}
	for i, r := range rs {
		e, err := r.Entry()
		if err == nil {
			err = f.apply(r.Seq == int64(i+1), e)
		}
		if err != nil {
			_, budget := err.(budgetProblem)
			return History{}, &Illegal{Case: r.Case, Seq: r.Seq, Subtype: r.Subtype, What: err.Error(), Budget: budget}
		}
	}
	f.h.Runs = make(map[RunID]RunHistory, len(f.runs))
	for id, run := range f.runs {
		f.h.Runs[id] = *run
	}
	return f.h, nil
}

type foldState struct {
	h    History
	runs map[RunID]*RunHistory
	key  string // the newest operation key
}

func (f *foldState) apply(inOrder bool, e Entry) error {
	if !inOrder {
		return errors.New("sequence out of order")
	}
	if f.h.Case.IsZero() {
		f.h.Case, f.h.Tenant = e.Case, e.Tenant
	}
	if e.Case != f.h.Case || e.Tenant != f.h.Tenant {
		return errors.New("another case or tenant than the receipts before")
	}
	if e.Payload.Settlement != nil {
		f.h.Settlement = e.Payload.Settlement
	}
	switch e.Subtype {
	case Submitted:
		return f.submitted(e)
	case Refused, PolicyChanged, BreakerOpened, BreakerReleased, OutOfBandChangeDetected, KeyCreated, KeyRevoked, AccessRefused, BulkChanged, RuleChanged, PeopleChanged,
		DeadLettersRebuilt, LettersPruned, WebhookChanged:
		return nil // may name a run that was never submitted, or none
	}
	run := f.runs[e.Run]
	if run == nil {
		if e.Run.IsZero() && e.Subtype == ConservationBreach {
			return nil // of an escrow as a whole
		}
		return fmt.Errorf("run %s was never submitted", e.Run)
	}
	if e.Payload.Error != (Failure{}) {
		run.LastError = e.Payload.Error
	}
	return f.transition(run, e)
}

func (f *foldState) transition(run *RunHistory, e Entry) error {
	if e.Subtype.EndsAttempt() {
		return f.ended(run, e)
	}
	switch e.Subtype {
	case AttemptStarted:
		if f.h.FirstSentAt.IsZero() || e.Payload.KeyForgotten {
			f.h.FirstSentAt = e.At
		}
		return run.started(e)
	case Activated:
		return run.activated(e)
	case AnsweredLate:
		return f.answeredLate(run, e)
	case Reconciled:
		return f.reconciled(run, e)
	case CancelRequested:
		return run.requestCancel(e)
	case ManualRetryRequested:
		if e.Payload.NewRun.IsZero() {
			return errors.New("new_run is not given")
		}
		return run.close(LetterForked)
	case Superseded:
		return run.close(LetterSuperseded)
	case Purged, RetentionExpired:
		return run.close(LetterPurged)
	case ReservationFreed:
		return f.freed(run)
	case Returned, Replayed, HoldPlaced, HoldReleased, Marked, RetentionEnding, ConservationBreach, Contradicted:
		return nil // they change no state
	}
	return errors.New("the fold does not know what it changes")
}

func (f *foldState) submitted(e Entry) error {
	p := e.Payload
	if e.Run.IsZero() {
		return errors.New("run is not given")
	}
	if f.runs[e.Run] != nil {
		return errors.New("run was submitted before")
	}
	if !p.ParentRun.IsZero() && f.runs[p.ParentRun] == nil {
		return fmt.Errorf("parent run %s was never submitted", p.ParentRun)
	}
	f.runs[e.Run] = &RunHistory{
		Run: e.Run, Family: p.Family, RetryKey: p.RetryKey, Queue: p.Queue, State: StatePending, Class: p.OutcomeClass,
		MovesMoney: p.OperationKey != "", NextRetryAt: p.NextRetryAt, Remote: p.Remote, Priority: p.Priority, Pending: p.Pending, ExpiresAt: p.ExpiresAt,
	}
	f.h.Order = append(f.h.Order, e.Run)
	if p.OperationKey != f.key {
		f.key, f.h.FirstSentAt = p.OperationKey, time.Time{}
	}
	return nil
}

func (r *RunHistory) started(e Entry) error {
	if !r.isWaiting() {
		return errors.New("attempt starts while the run is " + r.State)
	}
	if e.Payload.Attempt != r.AttemptCount+1 {
		return fmt.Errorf("attempt %d starts after attempt %d", e.Payload.Attempt, r.AttemptCount)
	}
	if r.Pending {
		return budgetProblem("attempt starts before the run is activated")
	}
	if !r.ExpiresAt.IsZero() && !e.At.Before(r.ExpiresAt) {
		return budgetProblem("attempt starts after the run expired")
	}
	if e.At.Before(r.NextRetryAt) {
		return budgetProblem(fmt.Sprintf("attempt starts %s before its time", r.NextRetryAt.Sub(e.At)))
	}
	r.AttemptCount++
	r.State, r.NextRetryAt, r.Accepted = StateRunning, time.Time{}, false
	r.Attempts = append(r.Attempts, AttemptHistory{Number: r.AttemptCount, StartedAt: e.At})
	return nil
}

// activated applies the activation of a run that was submitted as pending.
func (r *RunHistory) activated(e Entry) error {
	if !r.Pending || r.State != StatePending {
		return errors.New("activated while the run is " + r.State)
	}
	r.Pending, r.NextRetryAt = false, e.At
	return nil
}

// ended applies what ends an attempt, and what ends a run that waits for one.
func (f *foldState) ended(run *RunHistory, e Entry) error {
	if run.State == StateRunning {
		if e.Payload.Attempt != run.AttemptCount {
			return fmt.Errorf("ends attempt %d while attempt %d is open", e.Payload.Attempt, run.AttemptCount)
		}
		a := &run.Attempts[run.AttemptCount-1]
		a.EndedAt, a.EndedBy, a.Class, a.Call = e.At, e.Subtype, e.Payload.AttemptClass, e.Payload.Call
		a.CutShort = e.Payload.Error.Type == FailureTimeout || e.Payload.Error.Type == FailureInterrupted
	} else if !run.isWaiting() || (e.Subtype != DeadLettered && e.Subtype != Discarded && e.Subtype != Cancelled) {
		return errors.New("no attempt is open: the run is " + run.State)
	}
	p := e.Payload
	if p.BudgetSpent < run.BudgetSpent || p.Recoveries < run.Recoveries {
		return budgetProblem(fmt.Sprintf("budget_spent %d and recoveries %d fall to %d and %d",
			run.BudgetSpent, run.Recoveries, p.BudgetSpent, p.Recoveries))
	}
	run.BudgetSpent, run.Recoveries = p.BudgetSpent, p.Recoveries
	run.NextRetryAt, run.Accepted = time.Time{}, false
	switch e.Subtype {
	case RetryScheduled:
		if p.NextRetryAt.IsZero() {
			return errors.New("next_retry_at is not given")
		}
		run.State, run.NextRetryAt, run.Accepted = StateScheduled, p.NextRetryAt, p.ReasonCode == ReasonAccepted
	case AttemptInterrupted:
		run.State, run.NextRetryAt = StateScheduled, p.NextRetryAt
		if p.HandedBack {
			run.HandedBack++
		}
	case AttemptSucceeded:
		run.State = StateSucceeded
	case Cancelled:
		run.State = StateCancelled
	case Discarded:
		if run.MovesMoney {
			return errors.New("a run that moves money is discarded")
		}
		run.State = StateDiscarded
	case DeadLettered:
		if p.DeadLetteredAt.IsZero() {
			return errors.New("dead_lettered_at is not given")
		}
		run.State, run.Letter, run.DeadAt = StateDeadLettered, LetterOpen, p.DeadLetteredAt
	}
	return f.applyClass(run, p)
}

func (f *foldState) answeredLate(run *RunHistory, e Entry) error {
	n := e.Payload.Attempt
	if n < 1 || n > run.AttemptCount || run.Attempts[n-1].EndedBy == "" {
		return fmt.Errorf("attempt %d has not ended", n)
	}
	run.Attempts[n-1].AnsweredLater = true
	if e.Payload.OutcomeClass == "" {
		return nil
	}
	return f.applyClass(run, e.Payload)
}

// reconciled applies a finding. Found executed, it ends a run that waits and closes an open letter; a run
// with an open attempt ends at that attempt's own end.
func (f *foldState) reconciled(run *RunHistory, e Entry) error {
	executed := e.Payload.Finding == ClassExecuted
	if !executed && e.Payload.Finding != ClassNotExecuted {
		return fmt.Errorf("finding %q is neither executed nor not_executed", e.Payload.Finding)
	}
	switch {
	case run.isWaiting():
		if run.Accepted = false; executed {
			run.State, run.NextRetryAt = StateSucceeded, time.Time{}
		}
	case run.State == StateRunning:
	case run.Letter == LetterOpen:
		if executed || e.Payload.LetterClosed {
			run.Letter = LetterReconciled
		}
	case executed && run.Letter == LetterPurged: // a payment was found later; the letter stays closed
	case executed && run.closedUnpaid(): // likewise
	case executed && e.Payload.Recorded > 0: // corrects what is on record
	default:
		return errors.New("nothing to reconcile: " + run.describe())
	}
	return f.applyClass(run, e.Payload)
}

// closedUnpaid reports whether a run was cancelled, or its letter closed, though no money of it is known to
// have moved.
func (r *RunHistory) closedUnpaid() bool {
	closed := r.Letter == LetterReconciled || r.Letter == LetterForked || r.Letter == LetterSuperseded || r.State == StateCancelled
	return closed && r.Class != ClassExecuted
}

// applyClass copies what a receipt says of the run's money.
func (f *foldState) applyClass(run *RunHistory, p Payload) error {
	if p.UnknownOpen < 0 {
		return fmt.Errorf("unknown_open is %d", p.UnknownOpen)
	}
	run.Class, f.h.UnknownOpen = p.OutcomeClass, p.UnknownOpen
	if p.Lookup == ClassNotExecuted || p.Finding == ClassNotExecuted {
		for i := range run.Attempts {
			run.Attempts[i].ProvenUnpaid = true
		}
	}
	return nil
}

// requestCancel applies a request to end with the attempt that is open: the first one counts.
func (r *RunHistory) requestCancel(e Entry) error {
	switch {
	case r.State != StateRunning:
		return errors.New("a cancel is asked for while the run is " + r.State)
	case r.CancelRequested:
		return errors.New("a cancel was asked for before, by " + r.CancelBy)
	}
	r.CancelRequested, r.CancelBy, r.CancelReason = true, e.Actor, e.Payload.Reason
	return nil
}

// freed applies the release of the reservation of a dead run, or of a cancelled fork of one. The decision will not
// be carried out, so an open letter is closed. A letter that was closed before stays as it is.
func (f *foldState) freed(run *RunHistory) error {
	switch {
	case run.State != StateDeadLettered && run.State != StateCancelled:
		return errors.New("nothing to free: " + run.describe())
	case f.h.UnknownOpen > 0:
		return fmt.Errorf("freed while %d attempts are unknown", f.h.UnknownOpen)
	case run.Letter == LetterOpen:
		run.Letter = LetterReconciled
	}
	return nil
}

func (r *RunHistory) close(letter string) error {
	if r.Letter != LetterOpen {
		return errors.New("no letter is open: " + r.describe())
	}
	r.Letter = letter
	return nil
}

func (r *RunHistory) describe() string {
	if r.Letter != "" {
		return "the letter is " + r.Letter
	}
	return "the run is " + r.State
}

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
	Accepted        bool             // it waits, and the service has accepted its last call and not ended it
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

// ReasonAccepted is the reason code of a retry-scheduled whose call the service has accepted and not ended: the attempt
// charged nothing, and the service is asked before another call is made.
const ReasonAccepted = "accepted"

// legacyCallWindow is the distance between attempts that versions before Payload.Call could not distinguish:
// they kept the outstanding calls in as many bits, and bit n stood for the attempts n, n+63 and so on.
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
