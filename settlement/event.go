package settlement

import "fmt"

// Fact is something that happened to a case.
type Fact string

// The facts.
const (
	Adjudicated        Fact = "adjudicated"
	Readjudicated      Fact = "re-adjudicated" // in a higher generation, while no money is unknown
	AttemptStarted     Fact = "attempt-started"
	RetryScheduled     Fact = "retry-scheduled"
	AttemptInterrupted Fact = "attempt-interrupted"
	Executed           Fact = "executed"                 // also when it was found late, by a lookup or a finding
	ExecutedOlder      Fact = "executed-under-older-key" // under the operation key of an older generation
	DeadLettered       Fact = "dead-lettered"
	Forked             Fact = "forked"
	Reconciled         Fact = "reconciled" // found not executed
	Cancelled          Fact = "cancelled"  // between attempts
	Closed             Fact = "closed"     // a finding ended a dead letter that can't be forked
	Freed              Fact = "freed"      // the reservation was freed by hand, while nothing is live and nothing unknown
	Returned           Fact = "returned"   // a payment, or a part of it, came back
)

// Facts lists all facts.
var Facts = []Fact{
	Adjudicated, Readjudicated, AttemptStarted, RetryScheduled, AttemptInterrupted, Executed, ExecutedOlder, DeadLettered, Forked, Reconciled,
	Cancelled, Closed, Freed, Returned,
}

// Event is a fact with its particulars.
type Event struct {
	Fact         Fact
	Outcome      Outcome // (re-)adjudicated: what was decided; executed, under whatever key: what was paid
	Generation   int     // (re-)adjudicated; returned: of the payment that came back
	Amount       int64   // (re-)adjudicated: minor units to move; returned: minor units that came back
	Paid         int64   // executed, under whatever key: minor units that were moved under this operation key in all
	Recorded     int64   // executed, under whatever key: how many of them are on record already; a Paid that is no higher changes nothing
	OlderPaid    int64   // executed, under whatever key: minor units that were paid under older keys since the present generation began; zero does unless State.NeedsOlderPaid
	Overpaid     int64   // returned: minor units that were paid beyond what was decided, Effect.Excess, and did not come back before
	KeepReserved bool    // cancelled, closed: the reservation stays
}

// isPayment reports whether the fact states money that was moved.
func (e Event) isPayment() bool { return e.Fact == Executed || e.Fact == ExecutedOlder }

// check returns a *FieldError for particulars that no fact can have. It is called for
// pairs that the table lists, with what of a payment is not on record yet.
func (e Event) check(s State) error {
	switch e.Fact {
	case Adjudicated, Readjudicated:
		return e.checkDecision(s)
	case Executed, ExecutedOlder:
		return e.checkPayment(s)
	case Returned:
		return e.checkReturn(s)
	}
	return nil
}

// checkReturn refuses a return of more than the case has paid and not got back.
func (e Event) checkReturn(s State) error {
	switch left := s.Released + s.Refunded - s.Returned; {
	case e.Generation < 1 || e.Generation > s.Generation:
		return &FieldError{Field: "generation", Problem: "is none of the case's"}
	case e.Amount <= 0 || e.Amount > MaxMinor:
		return &FieldError{Field: "amount", Problem: fmt.Sprintf("is not between 1 and %d", int64(MaxMinor))}
	case e.Amount > left:
		return &FieldError{Field: "amount", Problem: fmt.Sprintf("is more than the %d that were paid and did not come back", left)}
	}
	return nil
}

func (e Event) checkDecision(s State) error {
	if _, err := ParseOutcome(string(e.Outcome)); err != nil {
		return err
	}
	if problem := generationProblem(e.Generation); problem != "" {
		return &FieldError{Field: "generation", Problem: problem}
	}
	switch {
	case e.Amount <= 0 || e.Amount > MaxMinor:
		return &FieldError{Field: "amount", Problem: fmt.Sprintf("is not between 1 and %d", int64(MaxMinor))}
	case e.Generation < s.Generation:
		return &FieldError{Field: "generation", Problem: "is lower than the case's"}
	case e.Generation == s.Generation && e.Fact == Readjudicated:
		return &FieldError{Field: "generation", Problem: "is not higher than the case's"}
	case e.Generation == s.Generation && s.Moved > 0:
		// Beginning the generation again would forget what it has paid, and pay it twice.
		return &FieldError{Field: "generation", Problem: "is not higher than the case's, which has moved money"}
	}
	return nil
}

func (e Event) checkPayment(s State) error {
	if _, err := ParseOutcome(string(e.Outcome)); err != nil {
		return err
	}
	if e.Paid <= 0 || e.Paid > MaxMinor {
		return &FieldError{Field: "paid", Problem: fmt.Sprintf("is not between 1 and %d", int64(MaxMinor))}
	}
	// None of these sums can be recorded exactly above MaxMinor.
	if max(s.Moved, s.Released, s.Refunded) > MaxMinor-e.Paid {
		return &FieldError{Field: "paid", Problem: fmt.Sprintf("brings the case's sum over %d", int64(MaxMinor))}
	}
	return nil
}
