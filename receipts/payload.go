package receipts

import "time"

// Payload holds the particulars of a receipt: one flat record for all subtypes. Each fills its
// part. A zero value is not written, and what is not written reads back as zero. Integers stay within
// ±(2^53-1), times are kept to the microsecond, strings are valid UTF-8 without U+0000. Amounts are in the
// minor unit of Currency.
type Payload struct {
	// What was accepted: submitted.

	AdjudicationID       string `json:"adjudication_id,omitempty"`        // the decision being executed
	SubmissionReceiptID  string `json:"submission_receipt_id,omitempty"`  // the submission the decision was about
	TransactionReceiptID string `json:"transaction_receipt_id,omitempty"` // the transaction that the case is about
	EscrowReference      string `json:"escrow_reference,omitempty"`       // the escrow that holds the money
	Outcome              string `json:"outcome,omitempty"`                // "release" or "refund"
	Generation           int    `json:"generation,omitempty"`             // higher for each re-adjudication
	Amount               int64  `json:"amount,omitempty"`                 // asked for
	Held                 int64  `json:"held,omitempty"`                   // held by the escrow in all
	Currency             string `json:"currency,omitempty"`               // ISO 4217 code
	RetryKey             string `json:"retry_key,omitempty"`              // "<transaction_receipt_id>:<outcome>"
	OperationKey         string `json:"operation_key,omitempty"`          // hex; the idempotency key given to the escrow service
	Family               string `json:"family,omitempty"`                 // the family of the run
	Queue                string `json:"queue,omitempty"`                  // the queue that delivers it
	Target               string `json:"target,omitempty"`                 // the endpoint that executes it
	Policy               string `json:"policy,omitempty"`                 // the retry policy the run keeps for life
	ContentDigest        string `json:"content_digest,omitempty"`         // hex; digest of the submitted content, of what was refused, of a webhook's secret as it is stored, which is encrypted, or of the digest that is stored of a key's secret
	RequestID            string `json:"request,omitempty"`                // identifies the request with an Idempotency-Key that asked for the run; empty: without one
	RequestDigest        string `json:"request_digest,omitempty"`         // hex; SHA-256 of the bytes that every attempt sends
	ParentRun            RunID  `json:"parent_run,omitzero"`              // of a fork: the run it was forked from, in this case
	LetterOf             RunID  `json:"letter_of,omitzero"`               // of a dead-letter handler's run: the run that died, in any case
	Epoch                int    `json:"epoch,omitempty"`                  // part of the operation key
	Readjudicated        bool   `json:"readjudicated,omitempty"`          // took the place of a lower generation
	Remote               bool   `json:"remote,omitempty"`                 // remote workers fetch it from its queue
	Priority             int    `json:"priority,omitempty"`               // of a remote run: higher is fetched first
	Pending              bool   `json:"pending,omitempty"`                // no attempt starts before it is activated
	UniqueBy             string `json:"unique_by,omitempty"`              // hex; of a unique job: digest of what it is unique by; of a fork that changes that: the new one

	UniqueUntil time.Time `json:"unique_until,omitzero"` // of a unique job: until then; zero: without end

	// What became of an attempt or a run.

	Attempt           int       `json:"attempt,omitempty"`            // number of the attempt, from 1
	Attempts          int       `json:"attempts,omitempty"`           // attempts made in all
	BudgetSpent       int       `json:"budget_spent,omitempty"`       // of the run's policy, after this receipt
	Recoveries        int       `json:"recoveries,omitempty"`         // interruptions of the run, after this receipt
	NextRetryAt       time.Time `json:"next_retry_at,omitzero"`       // no attempt starts before it; of submitted: where that is later than at once
	DeadLetteredAt    time.Time `json:"dead_lettered_at,omitzero"`    // retention counts from it
	DispatchReference string    `json:"dispatch_reference,omitempty"` // the delivery that carried the attempt
	Reason            string    `json:"reason,omitempty"`             // for people
	ReasonCode        string    `json:"reason_code,omitempty"`        // for programs
	OutcomeClass      string    `json:"outcome_class,omitempty"`      // worst unresolved class of the run after this receipt: "executed", "not_executed", "unknown"
	AttemptClass      string    `json:"attempt_class,omitempty"`      // class of this attempt alone
	UnknownOpen       int       `json:"unknown_open,omitempty"`       // unresolved unknown attempts of the case, after this receipt
	DurationUS        int64     `json:"duration_us,omitempty"`        // of the attempt, in microseconds
	Call              string    `json:"call,omitempty"`               // of an end of an attempt that timed out or was interrupted: "out" when its call had not come back, else "over"; not written by versions before
	CallOutstanding   bool      `json:"call_outstanding,omitempty"`   // of reconciled: whoever found that nothing was executed knew that a call could still be on its way
	ContradictsRecord bool      `json:"contradicts_record,omitempty"` // of reconciled: an answer, a lookup or a finding on record said otherwise, and whoever found it knew so; not written by versions before
	KeyForgotten      bool      `json:"key_forgotten,omitempty"`      // of attempt-started: the operation key was forgotten by then, and its lifetime counts from this call; not written by versions before
	HandedBack        bool      `json:"handed_back,omitempty"`        // of attempt-interrupted: the worker gave the attempt back, and it spent no budget
	OutputDigest      string    `json:"output_digest,omitempty"`      // hex; SHA-256 of what the worker returned
	Ended             bool      `json:"ended,omitempty"`              // of reconciled: it ended the run, which waited for an attempt
	Worker            string    `json:"worker,omitempty"`             // the process that made the attempt
	TraceID           string    `json:"trace_id,omitempty"`           // W3C trace id
	Lookup            string    `json:"lookup,omitempty"`             // what the escrow service answered when asked
	LookupURL         string    `json:"lookup_url,omitempty"`         // of reconciled: where the service was asked, as a self-declared person said, without userinfo, query and fragment; not written by versions before
	Moved             int64     `json:"moved,omitempty"`              // moved by this attempt
	Reference         string    `json:"reference,omitempty"`          // the escrow service's own reference; of returned: that of the return, which identifies it; of a key's change: the prefix of the key; of a webhook's change: the id of the webhook
	Recorded          int64     `json:"recorded,omitempty"`           // of a payment: how much of it was on record under its operation key before; of contradicted: how much is. A repeated payment without it changes nothing
	RecordedReference string    `json:"recorded_reference,omitempty"` // of contradicted: the reference of what is on record
	UnderOlderKey     bool      `json:"under_older_key,omitempty"`    // of a payment: it was made under the operation key of an older generation
	CaseUnmoved       bool      `json:"case_unmoved,omitempty"`       // the run ended, and the case, which had ended before, stays
	LetterClosed      bool      `json:"letter_closed,omitempty"`      // of reconciled, not executed: it closed the letter, which can't be forked
	ReservationKept   bool      `json:"reservation_kept,omitempty"`   // of cancelled and reconciled: the run was a fork, or the letter was closed, and what the dead letter had reserved stays so; not written by older versions, which freed it
	Returned          int64     `json:"returned,omitempty"`           // of returned: how much of the run's payment came back
	ReturnedAt        time.Time `json:"returned_at,omitzero"`         // of returned: when, as the bank or escrow service says
	Excess            int64     `json:"excess,omitempty"`             // of a breach: paid beyond what was decided; in receipts of older versions, beyond what was reserved then
	Freed             int64     `json:"freed,omitempty"`              // reservation given back; of submitted: by a higher generation that asks for less than was kept reserved, which older versions did not write
	Error             Failure   `json:"error,omitzero"`               // what went wrong

	// Settlement is the settlement of the case after this receipt, or nil if the receipt leaves it as it was, or the case has none.
	Settlement *SettlementSnapshot `json:"settlement,omitempty"`

	// What a person, a rule or a plan asked for.

	NewRun           RunID  `json:"new_run,omitzero"`            // of a fork: the run created; of a death: the run that handles the letter
	Changes          string `json:"changes,omitempty"`           // what was changed, in words: by a fork or a mark, or of a key, policy, circuit breaker, rule, plan or webhook
	Finding          string `json:"finding,omitempty"`           // "executed" or "not_executed"
	FindingReference string `json:"finding_reference,omitempty"` // where the finding can be checked
	AskedFor         string `json:"asked_for,omitempty"`         // of a refusal: the action; of a plan: what it does; of a webhook's change: what was done
	RefusedBy        string `json:"refused_by,omitempty"`        // of a refusal: the rule
	Bulk             string `json:"bulk,omitempty"`              // the bulk plan that asked for it
	PlannedBy        string `json:"planned_by,omitempty"`        // who made that plan; the actor ran it
	BreakGlass       string `json:"break_glass,omitempty"`       // the incident for which one person ran it without a second one
	People           int    `json:"people,omitempty"`            // 1: no second person was required where usually two are; of people-changed: the new number
	SelfDeclared     bool   `json:"self_declared,omitempty"`     // the actor is the name that was typed beside the database: no key proves it
	Rule             string `json:"rule,omitempty"`              // of a rule's change: the rule as it is then, or was when it was deleted, as JSON
	Webhook          string `json:"webhook,omitempty"`           // of a webhook's change: the webhook as it is then, as JSON without secrets

	// WebhookPosition is where a webhook continues; of changes that set no position: nil.
	WebhookPosition *WebhookPosition `json:"webhook_position,omitempty"`

	// What retention did with a letter.

	Archive       string    `json:"archive,omitempty"`        // names the archive file that holds the letter
	ArchiveDigest string    `json:"archive_digest,omitempty"` // hex; SHA-256 of that file; not written by versions before
	ExpiresAt     time.Time `json:"expires_at,omitzero"`      // when its retention ends; of submitted: no attempt of the run starts from then on
	Letters       int       `json:"letters,omitempty"`        // of letters-pruned: how many the round pruned
}

// Failure is an error as kept in evidence: redacted before it gets here.
type Failure struct {
	Code    string `json:"code,omitempty"`
	Details string `json:"details,omitempty"` // what a remote worker added, as JSON
	Message string `json:"message,omitempty"`
	Stack   string `json:"stack,omitempty"` // of a panic, or as a remote worker sent it
	Type    string `json:"type,omitempty"`
}

// WebhookPosition is the position that a change of a webhook has set. All its members are always written.
type WebhookPosition struct {
	After     int64 `json:"after"`     // the first event that is sent is the first after it
	Delivered int64 `json:"delivered"` // how many events had been delivered then, in all
}

// SettlementSnapshot is the settlement of a case at one receipt. All its members are always written.
type SettlementSnapshot struct {
	Asked                  int64  `json:"asked"` // amount of this generation
	DisputeLifecycleStatus string `json:"dispute_lifecycle_status"`
	EscrowAdjudication     string `json:"escrow_adjudication"`
	Generation             int    `json:"generation"`
	Moved                  int64  `json:"moved"` // moved for this generation
	Refunded               int64  `json:"refunded"`
	Returned               int64  `json:"returned,omitempty"` // of what was released and refunded; not written by versions before
	Released               int64  `json:"released"`
	Reserved               int64  `json:"reserved"`
	ProgressionReason      string `json:"settlement_progression_reason"`
	ProgressionReasonCode  string `json:"settlement_progression_reason_code"`
	ProgressionStatus      string `json:"settlement_progression_status"`
}
