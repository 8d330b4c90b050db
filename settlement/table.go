package settlement

import (
	"slices"
	"strings"
)

// Apply returns the state of a case after an event. Every state but the zero one, which is that of a case
// without a fact, is a result of Apply. The result depends on the arguments only.
//
// It returns a *Refused for a fact that the table does not list for the status of the
// case, and a *FieldError naming "outcome", "generation", "amount" or "paid" for
// particulars that no such fact can have. With an error the state is the one given
// and the effect is zero.
func Apply(s State, e Event) (State, Effect, error) {
	r := table[e.Fact]
	changesStatus := slices.Contains(r.from, s.Progression)
	if !changesStatus && !slices.Contains(r.stays, s.Progression) {
		return s, Effect{}, &Refused{From: s.Progression, Fact: e.Fact}
	}
	if e.isPayment() && e.Recorded > 0 {
		if e.Paid <= e.Recorded {
			return s, Effect{}, nil
		}
		e.Paid -= e.Recorded
	}
	if err := e.check(s); err != nil {
		return s, Effect{}, err
	}
	next, effect := r.money(s, e)
	if !changesStatus {
		return next, effect, nil
	}
	if e.Fact == Returned && e.Amount <= e.Overpaid {
		return next, effect, nil // what was decided stays paid
	}
	next.Progression, next.ReasonCode = r.to, r.code
	next.Reason = strings.ReplaceAll(r.reason, "<outcome>", string(e.Outcome))
	next.Lifecycle = r.lifecycle(s.Lifecycle)
	if e.Fact == Executed && next.Moved >= next.Asked {
		next.Progression, next.Reason = endStatus(e.Outcome), reasonCompleted
	}
	return next, effect, nil
}

// endStatus returns the final status of a case that has paid all. It depends on what was
// paid, which for a late payment may differ from the present adjudication.
func endStatus(paid Outcome) Status {
	if paid == Refund {
		return Refunded
	}
	return Settled
}

// rule is one line of the table. A fact changes the status of a case at one of from. At
// one of stays it is accepted, and status, code, reason and lifecycle are kept: the case
// has ended, or the fact changes only its money.
type rule struct {
	from  []Status
	stays []Status

	to        Status // executed: unless the amount asked for is reached, see endStatus
	code      ReasonCode
	lifecycle func(Lifecycle) Lifecycle
	reason    string // <outcome> stands for the event's
	money     func(State, Event) (State, Effect)
}

var (
	endedStatuses = []Status{Settled, Refunded}
	// The statuses at which a run may still end: a payment ended its case, which may have come back since.
	paidOrReturned   = []Status{Settled, Refunded, PartiallySettled, DisputeReady}
	existingStatuses = slices.DeleteFunc(slices.Clone(Statuses), func(s Status) bool { return s == None })
	openStatuses     = slices.DeleteFunc(slices.Clone(existingStatuses), Status.Ended)
)

// Reasons that describe an execution.
const (
	reasonInProgress    = "post-adjudication execution in progress"
	reasonCompleted     = "post-adjudication execution completed"
	reasonCompletedPart = "post-adjudication execution completed in part"
	reasonDeadLettered  = "post-adjudication execution dead-lettered"
	reasonForked        = "post-adjudication execution forked"
	reasonCancelled     = "post-adjudication execution cancelled"
	reasonFreed         = "reservation freed by hand"
	reasonPaidOlder     = "paid under the operation key of an older generation"
	reasonReturned      = "payment returned"
)

var table = map[Fact]rule{
	// Recourse records adjudicated only of a new case, at None; a later decision is readjudicated. The other statuses
	// are those of a case without a live run: a decision is permitted there, and no receipt of Recourse needs it.
	Adjudicated: {
		from: []Status{None, Pending, ReviewNeeded, PartiallySettled},
		to:   ApprovedForSettlement, code: Approve, lifecycle: hold, money: reserve,
		reason: "escrow adjudicated for <outcome>",
	},
	Readjudicated: {
		from: []Status{DisputeReady, ReviewNeeded, PartiallySettled},
		to:   ApprovedForSettlement, code: Approve, lifecycle: escalate, money: reserve,
		reason: "escrow re-adjudicated for <outcome>",
	},
	// A late payment can come while a run is still running. The facts of that run do not
	// undo the payment, hence stays.
	AttemptStarted: {
		from: []Status{ApprovedForSettlement, InProgress}, stays: []Status{PartiallySettled},
		to: InProgress, code: Approve, lifecycle: keep, money: unchangedMoney, reason: reasonInProgress,
	},
	RetryScheduled: {
		from: []Status{ApprovedForSettlement, InProgress}, stays: paidOrReturned,
		to: InProgress, code: Approve, lifecycle: keep, money: unchangedMoney, reason: reasonInProgress,
	},
	AttemptInterrupted: {
		from: []Status{ApprovedForSettlement, InProgress}, stays: paidOrReturned,
		to: InProgress, code: Approve, lifecycle: keep, money: unchangedMoney, reason: reasonInProgress,
	},
	Executed: {
		from: openStatuses, stays: endedStatuses,
		to: PartiallySettled, code: Approve, lifecycle: lift, money: pay, reason: reasonCompletedPart,
	},
	// A payment under an older key changes no status: a person decides whether it carries out the present
	// decision.
	ExecutedOlder: {stays: existingStatuses, money: payOlder},
	DeadLettered: {
		from: []Status{ApprovedForSettlement, InProgress, PartiallySettled}, stays: []Status{Settled, Refunded, DisputeReady},
		to: DisputeReady, code: Escalate, lifecycle: escalate, money: unchangedMoney, reason: reasonDeadLettered,
	},
	Forked: {
		from: []Status{DisputeReady},
		to:   ApprovedForSettlement, code: Approve, lifecycle: escalate, money: unchangedMoney, reason: reasonForked,
	},
	Reconciled: {stays: existingStatuses, money: unchangedMoney},
	Cancelled: {
		from: []Status{ApprovedForSettlement, InProgress}, stays: paidOrReturned,
		to: ReviewNeeded, code: RequestRevision, lifecycle: keep, money: freeUnlessKept, reason: reasonCancelled,
	},
	Closed: {
		from: []Status{DisputeReady},
		to:   PartiallySettled, code: Approve, lifecycle: lift, money: freeUnlessKept, reason: reasonPaidOlder,
	},
	// Like a cancel between attempts, but for a decision whose run has died. A higher
	// generation may follow.
	Freed: {
		from: []Status{DisputeReady}, stays: []Status{ReviewNeeded, PartiallySettled},
		to: ReviewNeeded, code: RequestRevision, lifecycle: keep, money: free, reason: reasonFreed,
	},
	// While a decision is carried out, what an older one paid can come back: the case stays with the present decision.
	// A case with a dead letter waits for a person already.
	Returned: {
		from: []Status{Settled, Refunded, PartiallySettled, ReviewNeeded}, stays: []Status{Pending, ApprovedForSettlement, InProgress, DisputeReady},
		to: DisputeReady, code: Escalate, lifecycle: escalate, money: giveBack, reason: reasonReturned,
	},
}

func keep(now Lifecycle) Lifecycle { return now }
func lift(Lifecycle) Lifecycle     { return NoDispute }
func escalate(Lifecycle) Lifecycle { return ReEscalated }
func hold(now Lifecycle) Lifecycle {
	if now == ReEscalated {
		return now
	}
	return HoldActive
}
