package failpoint

// Moment is when a point is passed, whatever its subject.
type Moment string

// The moments; see the package comment.
const (
	JournalBefore Moment = "journal.before"
	JournalAfter  Moment = "journal.after"
	NotifyBefore  Moment = "notify.before"
	NotifyAfter   Moment = "notify.after"
	CallBefore    Moment = "call.before"
	CallLastByte  Moment = "call.last"
	CallAfter     Moment = "call.after"
)

// Subjects that the journal writes besides receipts of existing cases.
const (
	Open                = "open"                // a case with its first run
	Escrow              = "escrow"              // an escrow that no case has named before
	CorrectEscrow       = "correct"             // another sum of an escrow that no case has used
	FoldDeltas          = "fold"                // the open deltas of escrows are added to their rows
	CancelRequest       = "cancel-requested"    // the mark on a running run: its transaction commits
	AdvanceNotification = "notification-number" // the number of a notification
	Install             = "install"             // the database gets its identity
	Timeline            = "timeline"            // the timeline of the database
	Targets             = "targets"             // which targets share a circuit breaker: their transaction commits
	RegisterSession     = "register"            // a session begins
	Beat                = "beat"                // a heartbeat
	MarkLost            = "mark-lost"           // it is declared lost
	RemoveSession       = "remove-session"      // a session is deleted
	UniqueJob           = "unique-job"          // a job that is submitted or retried as unique: its transaction commits
	LeaseClaim          = "lease"               // remote runs are claimed, with their leases: their transaction commits
	LeaseExtension      = "lease-extension"     // a heartbeat of a remote worker
	LeaseEnd            = "lease-end"           // a lease is marked as over

	Breaker              = "breaker"         // a circuit breaker changes: its transaction commits
	BreakerProbes        = "breaker-probes"  // the probes of an open circuit breaker
	BreakerTenantReceipt = "breaker-receipt" // receipt in a tenant's trail that a circuit breaker over all tenants opened or closed: its transaction commits
	Policy               = "policy"          // a family's policy is set: its transaction commits
	LetterHandler        = "handler"         // a run dies and its dead-letter handler starts: their transaction commits
	Key                  = "key"             // an access key is made or revoked: its transaction commits
	ApprovalsRequired    = "people"          // the number of people that a manual statement of money requires is set: its transaction commits
	KeyUse               = "key-use"         // the use of a key
	AccessRefusal        = "refusal"         // a refused access: its transaction commits
	SubmissionRefusal    = "refused"         // a submission was refused by its case: its transaction commits
	Lookup               = "lookup"          // lookups of dead letters of unknown outcome
	Request              = "request"         // a request with an idempotency key begins, is answered, or is dropped
	Annotations          = "annotations"     // dead letters and their annotations: their transaction commits
	ReturnedPayments     = "returns"         // payments that came back: their transaction commits
	BulkItems            = "bulk-items"      // the items of a bulk plan that is being made: their transaction commits
	BulkPlan             = "bulk-plan"       // a bulk plan, whose items are there: its transaction commits
	BulkExpire           = "bulk-expire"     // a bulk plan that nobody started is deleted: its transaction commits
	BulkTransition       = "bulk-transition" // a bulk plan is started, paused, resumed, cancelled, or done: its transaction commits
	BulkItem             = "bulk-item"       // results of items of a bulk plan
	BulkSettled          = "bulk-settled"    // no item of a cancelled bulk plan is in doubt
	Rule                 = "rule"            // a rule for dead letters is made, changed or deleted: its transaction commits
	RuleAction           = "rule-act"        // a rule replays or marks a dead letter: their transaction commits
	Sequence             = "sequence"        // receipts get their places in the order of events
	Rebuild              = "rebuild"         // differing rows of the list of dead letters are written: their transaction commits
	JobQueue             = "job-queue"       // the name of a queue of jobs
	PrunedLetters        = "pruned-letters"  // the receipt of a round of retention: its transaction commits
	Webhook              = "webhook"         // a webhook is created, changed or deleted: its transaction commits
	WebhookPosition      = "webhook-at"      // how far webhooks are
	Projection           = "project"         // dead letters are updated for searching: their transaction commits
)

// Subjects of notifications and calls.
const (
	Task     = "task"     // the asynq task of a run
	Executor = "executor" // of the family
	Delivery = "delivery" // of an event to a webhook
)

// Point returns the name of the point of a moment and a subject.
func Point(m Moment, subject string) string { return string(m) + ":" + subject }
