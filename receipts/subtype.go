package receipts

import "slices"

// Source is the part of the product that a receipt comes from.
type Source string

// The sources.
const (
	SourceRetry      Source = "post_adjudication_retry"
	SourceExecution  Source = "post_adjudication_execution"
	SourceDeadLetter Source = "dead_letter"
	SourceOperations Source = "operations"
)

// Subtype is what happened. Each subtype belongs to exactly one Source.
type Subtype string

// Of SourceRetry.
const (
	RetryScheduled       Subtype = "retry-scheduled"        // an attempt ended, another comes at next_retry_at
	DeadLettered         Subtype = "dead-lettered"          // the run failed for good, its letter waits for a decision
	Discarded            Subtype = "discarded"              // the run failed for good and is not kept as a letter; only of runs that move no money
	ManualRetryRequested Subtype = "manual-retry-requested" // an open letter was forked into new_run
)

// Of SourceExecution.
const (
	Submitted          Subtype = "submitted"           // a run was accepted
	Activated          Subtype = "activated"           // a run that was submitted as pending may be attempted from now on
	AttemptStarted     Subtype = "attempt-started"     // committed before the executor was called
	AttemptInterrupted Subtype = "attempt-interrupted" // an attempt was cut short, and the run continues: its worker was lost, stopped, too late to call, or gave it back
	AttemptSucceeded   Subtype = "attempt-succeeded"   // the executor's success ended the run
	AnsweredLate       Subtype = "answered-late"       // the answer of an attempt came after its end
	CancelRequested    Subtype = "cancel-requested"    // somebody asked to cancel a run while its attempt was open
	Cancelled          Subtype = "cancelled"           // the run ended on request, or because another payment ended its case
	Reconciled         Subtype = "reconciled"          // a finding about the money was recorded
	Superseded         Subtype = "superseded"          // a higher generation took an open letter's place
	ConservationBreach Subtype = "conservation-breach" // more was paid than was decided
	Contradicted       Subtype = "contradicted"        // an answer or a finding states less than is on record under its operation key, another reference, or a sum that can't be recorded
	ReservationFreed   Subtype = "reservation-freed"   // what was reserved was freed by hand; an open letter closed with it
	Returned           Subtype = "returned"            // the payment of the run, or a part of it, came back
)

// Of SourceDeadLetter.
const (
	Replayed         Subtype = "replayed"          // a rule or a bulk plan asked for the fork
	RetentionExpired Subtype = "retention-expired" // the letter outlived its retention and was pruned
	Purged           Subtype = "purged"            // somebody removed the letter
	HoldPlaced       Subtype = "hold-placed"       // retention, purges and rules no longer touch the letter
	HoldReleased     Subtype = "hold-released"     // they apply again
	Marked           Subtype = "marked"            // somebody said whether to try again, or to look first
	RetentionEnding  Subtype = "retention-ending"  // announces when the letter's retention ends; written once, and once more after each hold
	Refused          Subtype = "refused"           // who asked for what, and why not
)

// Of SourceOperations.
const (
	PolicyChanged           Subtype = "policy-changed"
	BreakerOpened           Subtype = "breaker-opened"
	BreakerReleased         Subtype = "breaker-released"
	OutOfBandChangeDetected Subtype = "out-of-band-change-detected"
	KeyCreated              Subtype = "key-created"
	KeyRevoked              Subtype = "key-revoked"
	AccessRefused           Subtype = "access-refused"       // as refused, where no case of the tenant is named
	BulkChanged             Subtype = "bulk-changed"         // a bulk plan was made, started, paused, resumed or cancelled, is done, or was deleted because nobody started it
	RuleChanged             Subtype = "rule-changed"         // a rule for dead letters was made, changed or deleted
	DeadLettersRebuilt      Subtype = "dead-letters-rebuilt" // rows of the list of dead letters that differed were written anew
	LettersPruned           Subtype = "letters-pruned"       // a round of retention pruned letters of jobs; each has its own receipt
	PeopleChanged           Subtype = "people-changed"       // how many people it takes to state or free money by hand, and to fork or purge settlements by a plan
	WebhookChanged          Subtype = "webhook-changed"      // a webhook was created, paused, resumed, rotated, replayed or deleted
)

// subtypesOf has the subtypes of each source. TestEverySubtypeHasItsOneSource counts them.
var subtypesOf = []struct {
	source   Source
	subtypes []Subtype
}{
	{SourceRetry, []Subtype{RetryScheduled, DeadLettered, Discarded, ManualRetryRequested}},
	{SourceExecution, []Subtype{
		Submitted, Activated, AttemptStarted, AttemptInterrupted, AttemptSucceeded, AnsweredLate, CancelRequested, Cancelled, Reconciled,
		Superseded, ConservationBreach, Contradicted, ReservationFreed, Returned,
	}},
	{SourceDeadLetter, []Subtype{Replayed, RetentionExpired, Purged, HoldPlaced, HoldReleased, Marked, RetentionEnding, Refused}},
	{SourceOperations, []Subtype{
		PolicyChanged, BreakerOpened, BreakerReleased, OutOfBandChangeDetected, KeyCreated, KeyRevoked, AccessRefused, BulkChanged, RuleChanged, PeopleChanged,
		DeadLettersRebuilt, LettersPruned, WebhookChanged,
	}},
}

// knownSubtypes and sourceOf are subtypesOf as a list and by subtype.
var knownSubtypes, sourceOf = func() (known []Subtype, of map[Subtype]Source) {
	of = map[Subtype]Source{}
	for _, s := range subtypesOf {
		known = append(known, s.subtypes...)
		for _, subtype := range s.subtypes {
			of[subtype] = s.source
		}
	}
	return known, of
}()

// KnownSubtypes returns every subtype, source by source. The slice is the caller's.
func KnownSubtypes() []Subtype { return slices.Clone(knownSubtypes) }

// Source returns the source that s belongs to, and "" when s is not a known subtype.
func (s Subtype) Source() Source { return sourceOf[s] }

// EndsAttempt reports whether a receipt of the subtype ends the open attempt of its run.
func (s Subtype) EndsAttempt() bool {
	switch s {
	case RetryScheduled, AttemptInterrupted, AttemptSucceeded, DeadLettered, Discarded, Cancelled:
		return true
	}
	return false
}
