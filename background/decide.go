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
	event  receipts.Subtype
	charge BudgetCharge
	result Result
	lookup Class
	reason string
	next   time.Time
}

// decide says how an attempt of a run ends, from what its call told and what is
// known of the run now. When that depends on what the other side knows and looked
// is nil, ask is true and there is no ending yet.
func decide(run Run, res Result, lookup *Result, now time.Time) (end ending, needsLookup bool) {
	unpaid := provenUnpaid(run, res)
	switch {
	case res.Class == Executed:
		return ending{event: receipts.AttemptSucceeded, result: res}, false
	case run.Class == Executed: // by an earlier call that answered late
		return ending{event: receipts.AttemptSucceeded, result: res, lookup: Executed}, false
	case run.CancelRequested && unpaid:
		return ending{event: receipts.Cancelled, result: res}, false
	}
	decision := run.Policy.Decide(retryQuestion(run, res, now))
	if decision.Retry {
		return ending{event: receipts.RetryScheduled, charge: ChargeAttempt, result: res, next: decision.At}, false
	}
	deadLetter := ending{event: receipts.DeadLettered, charge: ChargeAttempt, result: res, reason: string(decision.Reason)}
	if unpaid {
		return deadLetter, false
	}
	return resolve(run, deadLetter, lookup)
}

// provenUnpaid reports whether it is proven that no attempt has moved money.
func provenUnpaid(run Run, res Result) bool {
	if !run.MovesMoney() {
		return res.Class != Executed
	}
	return res.Class == NotExecuted && run.Class != Unknown && run.UnresolvedUnknowns == 0
}

// resolve ends a run whose money may have moved: no letter is opened before the
// other side was asked.
func resolve(run Run, deadLetter ending, lookup *Result) (end ending, needsLookup bool) {
	switch {
	case lookup == nil:
		return ending{}, true
	case lookup.Class == Executed:
		res := deadLetter.result
		res.Moved, res.Reference = lookup.Moved, lookup.Reference
		return ending{event: receipts.AttemptSucceeded, result: res, lookup: Executed}, false
	case lookup.Class == NotExecuted && run.CancelRequested:
		return ending{event: receipts.Cancelled, result: deadLetter.result, lookup: NotExecuted}, false
	}
	deadLetter.lookup = lookup.Class
	return deadLetter, false
}

func retryQuestion(run Run, res Result, now time.Time) retrypolicy.Question {
	q := retrypolicy.Question{
		Run: run.ID, BudgetSpent: run.BudgetSpent + 1,
		Retryable: res.Retry, RetryAfter: res.RetryAfter, Now: now,
	}
	if res.Failure != nil {
		q.ErrorType = res.Failure.Type
	}
	return q
}

// interruptedEnding is how an attempt ends that was cut short, by a shutdown or because its
// process could not show that it lives. It spends no budget, and the next attempt may
// start at once; there is none when a cancel was asked for and nothing was paid.
func interruptedEnding(run Run, res Result, now time.Time) ending {
	switch {
	case res.Class == Executed:
		return ending{event: receipts.AttemptSucceeded, result: res}
	case run.CancelRequested && provenUnpaid(run, res):
		return ending{event: receipts.Cancelled, result: res}
	}
	return ending{event: receipts.AttemptInterrupted, result: res, next: now}
}

// normalizeResult turns what a handler or a lookup answered into what the rules can rely
// on: what is not clearly stated is unknown.
func normalizeResult(r Result) Result {
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
