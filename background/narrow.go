package background

import (
	"fmt"

	"github.com/recourse-dev/recourse/receipts"
)

// narrowest is the last of the forms in which the end of an attempt is tried.
const narrowest = 2

// narrowed is the same end of an attempt, or the same late answer, without the values that
// can't be written: what was told stands as text in the failure, whose code is the class.
// The run becomes a dead letter, and what it paid is unknown to the case until a person
// has found it out. The second form tells the class alone.
func (m Move) narrowed(id MoveID, form int, cause error) Move {
	told := m.Result
	if m.Lookup == Executed {
		told.Class = Executed
	}
	m.ID = id
	m.Result = Result{Class: Unknown, Failure: unrecordable(told, cause)}
	if form >= narrowest {
		m.Result.Failure = &Failure{Type: FailureUnrecordable, Code: string(told.Class)}
	}
	if told.Class == NotExecuted {
		m.Result.Class = NotExecuted
	}
	m.Lookup, m.Reason = "", ReasonUnrecordable
	if m.Fact != receipts.AnsweredLate {
		m.Fact, m.NextRetryAt = receipts.DeadLettered, m.At
		if m.Spend == SpendNothing {
			m.Spend = SpendAttempt
		}
	}
	return m
}

// unrecordable tells in words what can't be written in its own members.
func unrecordable(told Result, cause error) *Failure {
	f := &Failure{Type: FailureUnrecordable, Code: string(told.Class), Message: "it can't be recorded as it is"}
	switch {
	case told.Class == Executed:
		f.Message = fmt.Sprintf("executed: %s minor units were moved, reference %q; that can't be recorded as it is", grouped(told.Moved), told.Reference)
	case told.Failure != nil:
		f.Message = fmt.Sprintf("%s: %s %s; that can't be recorded as it is", told.Failure.Type, told.Failure.Code, told.Failure.Message)
	}
	f.Message += ": " + cause.Error()
	return f
}

// grouped is a number that nothing takes for the number of a card.
func grouped(n int64) string {
	digits := fmt.Sprint(n)
	for i := len(digits) - 3; i > 0 && digits[i-1] != '-'; i -= 3 {
		digits = digits[:i] + "'" + digits[i:]
	}
	return digits
}
