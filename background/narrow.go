package background

import (
	"fmt"

	"github.com/recourse-dev/recourse/receipts"
)

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
