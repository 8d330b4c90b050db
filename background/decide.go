package background

import (
	"time"

	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/retrypolicy"
)

// Failure types that the manager itself gives.
const (
	FailurePanic        = "panic"                     // the handler or the lookup panicked
	FailureTimeout      = receipts.FailureTimeout     // the call took longer than its family's time limit
	FailureInterrupted  = receipts.FailureInterrupted // the process shut down, was lost, or was in doubt meanwhile
	FailureUnrecordable = "unrecordable"              // the outcome has values that can't be written
	FailureUnspecified  = "unspecified"               // the handler failed and did not say how
)

// ReasonProbe marks the end of an attempt that an open circuit breaker let through, and that spent nothing.
const ReasonProbe = "probe"

// ending is how an attempt ends: the part of a Move that is decided.
type ending struct {
	fact   receipts.Subtype
	spend  Spend
	result Result
	lookup Class
	reason string
	next   time.Time
}

// decide says how an attempt of a run ends, from what its call told and what is
// known of the run now. When that depends on what the other side knows and looked
// is nil, ask is true and there is no ending yet.
func decide(run Run, res Result, looked *Result, now time.Time) (end ending, ask bool) {
	nothingPaid := nothingPaid(run, res)
	switch {
	case res.Class == Executed:
		return ending{fact: receipts.AttemptSucceeded, result: res}, false
	case run.Class == Executed: // by an earlier call that answered late
		return ending{fact: receipts.AttemptSucceeded, result: res, lookup: Executed}, false
	case run.CancelAsked && nothingPaid:
		return ending{fact: receipts.Cancelled, result: res}, false
	}
	verdict := run.Policy.Decide(question(run, res, now))
	if verdict.Retry {
		return ending{fact: receipts.RetryScheduled, spend: SpendAttempt, result: res, next: verdict.At}, false
	}
	death := ending{fact: receipts.DeadLettered, spend: SpendAttempt, result: res, reason: string(verdict.Why)}
	if nothingPaid {
		return death, false
	}
	return resolve(run, death, looked)
}

// nothingPaid reports whether it is proven that no attempt has moved money.
func nothingPaid(run Run, res Result) bool {
	if !run.MovesMoney() {
		return res.Class != Executed
	}
	return res.Class == NotExecuted && run.Class != Unknown && run.UnknownOpen == 0
}

// resolve ends a run whose money may have moved: no letter is opened before the
// other side was asked.
func resolve(run Run, death ending, looked *Result) (end ending, ask bool) {
	switch {
	case looked == nil:
		return ending{}, true
	case looked.Class == Executed:
		res := death.result
		res.Moved, res.Reference = looked.Moved, looked.Reference
		return ending{fact: receipts.AttemptSucceeded, result: res, lookup: Executed}, false
	case looked.Class == NotExecuted && run.CancelAsked:
		return ending{fact: receipts.Cancelled, result: death.result, lookup: NotExecuted}, false
	}
	death.lookup = looked.Class
	return death, false
}

func question(run Run, res Result, now time.Time) retrypolicy.Question {
	q := retrypolicy.Question{
		Run: run.ID, BudgetSpent: run.BudgetSpent + 1,
		Retryable: res.Retry, RetryAfter: res.RetryAfter, Now: now,
	}
	if res.Failure != nil {
		q.ErrorType = res.Failure.Type
	}
	return q
}

// interrupted is how an attempt ends that was cut short, by a shutdown or because its
// process could not show that it lives. It spends no budget, and the next attempt may
// start at once; there is none when a cancel was asked for and nothing was paid.
func interrupted(run Run, res Result, now time.Time) ending {
	switch {
	case res.Class == Executed:
		return ending{fact: receipts.AttemptSucceeded, result: res}
	case run.CancelAsked && nothingPaid(run, res):
		return ending{fact: receipts.Cancelled, result: res}
	}
	return ending{fact: receipts.AttemptInterrupted, result: res, next: now}
}

// normal turns what a handler or a lookup answered into what the rules can rely
// on: what is not clearly stated is unknown.
func normal(r Result) Result {
	if r.Class == Executed {
		r.Failure, r.Retry, r.RetryAfter = nil, false, 0
		return r
	}
	if r.Class != NotExecuted && r.Class != Unknown {
		r.Class, r.Retry = Unknown, true
	}
	if r.Failure == nil {
		r.Failure = &Failure{Type: FailureUnspecified}
	}
	return r
}
