package refusal

// Gate names why an action on a run, case or dead letter is refused.
type Gate string

// The gates.
const (
	GateNotALetter        Gate = "not_a_letter"         // the run is not dead-lettered
	GateNotOpen           Gate = "not_open"             // the letter was forked, reconciled, superseded or purged
	GateReconcileFirst    Gate = "reconcile_first"      // money may have moved, and the operation key may have expired
	GateCallOutstanding   Gate = "call_outstanding"     // a call may still be in flight, and pay
	GateContradictsRecord Gate = "contradicts_record"   // a finding contradicts an answer, a lookup or a finding on record
	GateAlreadyRecorded   Gate = "already_recorded"     // a finding states a payment that is on record
	GateCaseEnded         Gate = "case_ended"           // the case is settled or refunded
	GateNotSettlement     Gate = "not_a_settlement"     // a plain task moves no money
	GateHeld              Gate = "held"                 // the letter is held
	GatePaidUnderOlderKey Gate = "paid_under_older_key" // money moved under the key of an earlier decision
	GateNotHeld           Gate = "not_held"             // the letter is not held
	GateRequestAltered    Gate = "request_altered"      // the stored request differs from the submitted one in the receipts
	GateFamilyNotServed   Gate = "family_not_served"    // no running process has the run's family
	GateLive              Gate = "live"                 // a run of the case is live
	GateNotLive           Gate = "not_live"             // the run has ended
	GateNothingReserved   Gate = "nothing_reserved"     // the case has nothing reserved
	GateRunning           Gate = "running"              // an attempt is running; its outcome is not known yet
	GateAnotherPayer      Gate = "another_payer"        // the queue of a fork is not that of the remote workers who pay under its operation key
	GateNotTheHolder      Gate = "not_the_holder"       // another principal fetched the run, and answers for it
	GateExceedsPaid       Gate = "exceeds_paid"         // more came back than was paid and did not come back before
	GateReferenceUsed     Gate = "reference_used"       // another return has the reference
	GateUniqueJobLive     Gate = "unique_job_live"      // another job with the fingerprint of a unique job is live
)

// Meaning returns why a gate refuses and what to do about it, for people.
func (g Gate) Meaning() string {
	switch g {
	case GateNotALetter:
		return "the run is not a dead letter"
	case GateNotOpen:
		return "the letter is not open any more"
	case GateReconcileFirst:
		return "money may have moved, so reconcile first, by a lookup or a finding"
	case GateCallOutstanding:
		return "a call may still be on its way and pay, so wait for it, or say that you know that it will not be executed (call_outstanding)"
	case GateContradictsRecord:
		return "what is on record says the opposite of the finding, so check which is right, or say that you know that the record is wrong (contradicts_record)"
	case GateAlreadyRecorded:
		return "the payment under its operation key is on record, so the finding adds nothing: state the sum if more was paid"
	case GateCaseEnded:
		return "the case is settled or refunded"
	case GateNotSettlement:
		return "a plain task moves no money, so there is nothing to find out"
	case GateHeld:
		return "the letter is held"
	case GatePaidUnderOlderKey:
		return "money moved under another operation key than the run's own, so a fork could pay a second time: adjudicate again in a higher generation, or reconcile with a finding"
	case GateNotHeld:
		return "the letter is not held"
	case GateRequestAltered:
		return "the stored request is not what its receipt says was submitted, so nothing is sent until it is restored; receipts verify shows what differs"
	case GateFamilyNotServed:
		return "no running process has the family of the run, so a fork would wait for ever: start one that has it"
	case GateLive:
		return "a run of the case is live: wait until it has ended, or cancel it"
	case GateNotLive:
		return "the run has ended, so there is nothing to cancel"
	case GateNothingReserved:
		return "nothing is reserved"
	case GateAnotherPayer:
		return "the workers of its queue pay under its operation key, which no other payer knows: fork it without a queue, or adjudicate again in a higher generation for the other target"
	case GateNotTheHolder:
		return "another principal fetched it, whose answer counts"
	case GateExceedsPaid:
		return "that is more than was paid and did not come back before"
	case GateReferenceUsed:
		return "a return with this reference is recorded: if it is the same one, nothing is left to do"
	case GateUniqueJobLive:
		return "another job that is unique in the same way is live: wait until it has ended, or cancel it"
	case GateRunning:
		return "an attempt is under way: wait until it has ended"
	case GateNoExecutor:
		return "this process does not call the escrow service of the run, or a remote worker pays it, whom nobody can ask: record a finding"
	case GateNotEligible:
		return "its mark, or else its cause of death, says that it is not worth a retry by itself"
	}
	return "the gate of that name refuses it"
}

// GateNoExecutor refuses a lookup at an escrow service that this process has no executor for, or
// where remote workers pay.
const GateNoExecutor Gate = "no_executor"

// Gates of rules, besides those of forks and holds.
const (
	GateNotDue        Gate = "not_due"                // the rule's delay is not over
	GateMayBeExecuted Gate = "may_be_executed"        // money may have moved
	GateReview        Gate = "manual_review_required" // a person must review the letter first
	GateNotEligible   Gate = "not_reprocess_eligible" // the letter is marked as not worth a retry by itself
	GateReplaysSpent  Gate = "max_replays"            // the rule has replayed it MaxReplays times
	GateMarked        Gate = "marked"                 // the mark is already so, or a person set it
	GateNotSelected   Gate = "not_selected"           // the rule's filter does not match it any more
)
