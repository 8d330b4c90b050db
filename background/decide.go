package background

import (
	"time"

	"github.com/recourse-dev/recourse/background/lease"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/retrypolicy"
)

// Failure types that the manager itself gives.
const (
	FailurePanic        = "panic"                     // the handler or the lookup panicked
	FailureTimeout      = receipts.FailureTimeout     // the call exceeded its family's time limit
	FailureInterrupted  = receipts.FailureInterrupted // the process shut down, was lost, or could not send heartbeats
	FailureUnrecordable = "unrecordable"              // the outcome has values that cannot be written
	FailureUnspecified  = "unspecified"               // the handler failed without a failure
)

// ReasonProbe marks the end of a probe that failed without charging the run's budget.
const ReasonProbe = "probe"

// ending is the decided part of the transition that ends an attempt.
type ending struct {
	subtype receipts.Subtype
	charge  BudgetCharge
	result  Result
	lookup  Class
	reason  string
	next    time.Time

	handedBack  bool
	outstanding bool // the call is outstanding
}

// decide returns how an attempt ends, from the result of its call and from what is known of the
// run. When that depends on the called service and lookup is nil, needsLookup is true and the
// ending is empty.
func decide(run *Run, res *Result, lookup *Result, now time.Time) (end ending, needsLookup bool) {
	unpaid := provenUnpaid(run, res)
	switch {
	case res.Class == Executed:
		return ending{subtype: receipts.AttemptSucceeded, result: *res}, false
	case run.Class == Executed: // by an earlier call that answered late
		return ending{subtype: receipts.AttemptSucceeded, result: *res, lookup: Executed}, false
	case run.CancelRequested && unpaid:
		return ending{subtype: receipts.Cancelled, result: *res}, false
	case res.Accepted && run.MovesMoney():
		return acceptedEnding(res, res.RetryAfter, now), false
	}
	decision := run.Policy.Decide(retryQuestion(run, res, now))
	if decision.Retry && res.End == EndByPolicy {
		return ending{subtype: receipts.RetryScheduled, charge: ChargeAttempt, result: *res, next: decision.At}, false
	}
	deadLetter := ending{subtype: receipts.DeadLettered, charge: ChargeAttempt, result: *res, reason: string(decision.Reason)}
	if res.End != EndByPolicy {
		deadLetter.reason = ReasonOrdered
	}
	if isDiscarded(run, res.End) {
		deadLetter.subtype = receipts.Discarded
	}
	if unpaid || run.Remote { // nobody can look up what a remote worker called
		return deadLetter, false
	}
	return resolve(run, deadLetter, lookup, now)
}

// acceptedEnding returns how an attempt ends whose call the service has accepted and not ended: the run waits, and
// charges nothing.
func acceptedEnding(res *Result, askAfter time.Duration, now time.Time) ending {
	return ending{subtype: receipts.RetryScheduled, result: *res, reason: receipts.ReasonAccepted, next: now.Add(askAfter).Truncate(time.Microsecond)}
}

// isDiscarded reports whether a run that failed for good is discarded instead of kept.
func isDiscarded(run *Run, order EndOrder) bool {
	if run.MovesMoney() {
		return false
	}
	return order == EndDiscarded || order == EndByPolicy && run.Policy.Normalize().OnExhaustion == retrypolicy.Discard
}

// leaseEnding returns how an attempt ends whose remote worker did not answer in time. An attempt
// that exceeded its time limit failed like any other. Where only the lease ended, the next
// attempt may start at once.
func leaseEnding(run *Run, cause lease.End, maxRecoveries int, now time.Time) ending {
	unknown := unknownResult(string(cause), "the worker did not answer while it held its lease")
	res := &unknown
	if cause == lease.OverLimit {
		res.Failure.Message = "no answer within the time limit"
	}
	if run.MovesMoney() {
		return lostPaymentEnding(run, res, maxRecoveries, now)
	}
	end, _ := decide(run, res, nil, now)
	if cause == lease.Expired && end.subtype == receipts.RetryScheduled {
		end.next = now
	}
	return end
}

// lostPaymentEnding returns how the attempt of a remote worker ends that may pay and does not answer:
// as that of a lost process. Its call is outstanding.
func lostPaymentEnding(run *Run, res *Result, maxRecoveries int, now time.Time) ending {
	switch {
	case run.Class == Executed:
		return ending{subtype: receipts.AttemptSucceeded, result: *res, lookup: Executed}
	case run.Recoveries+1 > maxRecoveries || run.lastCallOutstanding():
		return ending{subtype: receipts.DeadLettered, result: *res, reason: ReasonPoisonPill, outstanding: true}
	}
	return ending{subtype: receipts.AttemptInterrupted, charge: ChargeRecovery, result: *res, next: now, outstanding: true}
}

// handBackEnding returns how an attempt ends that its remote worker hands back: it spends
// nothing, and the next one may start at once.
func handBackEnding(run *Run, res *Result, now time.Time) ending {
	if run.CancelRequested && provenUnpaid(run, res) {
		return ending{subtype: receipts.Cancelled, result: *res}
	}
	return ending{subtype: receipts.AttemptInterrupted, result: *res, next: now, handedBack: true}
}

// expiryEnding returns how a run ends that no attempt started of in time.
func expiryEnding(run *Run) ending {
	end := ending{subtype: receipts.DeadLettered, reason: ReasonExpired}
	if isDiscarded(run, EndByPolicy) {
		end.subtype = receipts.Discarded
	}
	return end
}

// provenUnpaid reports whether it is proven that no attempt has moved money.
func provenUnpaid(run *Run, res *Result) bool {
	if !run.MovesMoney() {
		return res.Class != Executed
	}
	return res.Class == NotExecuted && run.Class != Unknown && run.UnknownOpen == 0
}

// resolve ends a run that may have moved money, by what a lookup found: no dead letter is opened before
// one.
func resolve(run *Run, deadLetter ending, lookup *Result, now time.Time) (end ending, needsLookup bool) {
	switch {
	case lookup == nil:
		return ending{}, true
	case lookup.Class == Executed:
		res := deadLetter.result
		res.Moved, res.Reference = lookup.Moved, lookup.Reference
		return ending{subtype: receipts.AttemptSucceeded, result: res, lookup: Executed}, false
	case lookup.Class == NotExecuted && run.CancelRequested:
		return ending{subtype: receipts.Cancelled, result: deadLetter.result, lookup: NotExecuted}, false
	case lookup.Accepted:
		end := acceptedEnding(&deadLetter.result, lookup.RetryAfter, now)
		end.lookup = lookup.Class
		return end, false
	}
	deadLetter.lookup = lookup.Class
	return deadLetter, false
}

func retryQuestion(run *Run, res *Result, now time.Time) retrypolicy.Question {
	q := retrypolicy.Question{
		Run: run.ID, BudgetSpent: run.BudgetSpent + 1,
		Retryable: res.Retry, RetryAfter: res.RetryAfter, Now: now,
	}
	if res.Failure != nil {
		q.ErrorType = res.Failure.Type
	}
	return q
}

// interruptedEnding returns how an attempt ends that was cut short by a shutdown or by missing
// heartbeats. It charges no budget, and the next attempt may start at once. The run is
// cancelled when that was requested and nothing was paid.
func interruptedEnding(run *Run, res *Result, now time.Time) ending {
	switch {
	case res.Class == Executed:
		return ending{subtype: receipts.AttemptSucceeded, result: *res}
	case run.CancelRequested && provenUnpaid(run, res):
		return ending{subtype: receipts.Cancelled, result: *res}
	}
	return ending{subtype: receipts.AttemptInterrupted, result: *res, next: now}
}

// normalizeResult returns the result of a handler or lookup with consistent fields. An unclear
// class is Unknown.
func normalizeResult(r Result) Result {
	if r.Class == Executed {
		r.Failure, r.Retry, r.RetryAfter, r.Accepted = nil, false, 0, false
		return r
	}
	if r.Class != NotExecuted && r.Class != Unknown {
		r.Class, r.Retry = Unknown, true
	}
	r.Accepted = r.Accepted && r.Class == Unknown
	if r.Failure == nil {
		r.Failure = &Failure{Type: FailureUnspecified}
	}
	return r
}
