package failpoint

// Moment is when a point is passed, of whatever it is about.
type Moment string

// The moments; see the package comment.
const (
	JournalBefore Moment = "journal.before"
	JournalAfter  Moment = "journal.after"
	NotifyBefore  Moment = "bell.before"
	NotifyAfter   Moment = "bell.after"
	CallBefore    Moment = "call.before"
	CallLastByte  Moment = "call.last"
	CallAfter     Moment = "call.after"
)

// What the journal writes beside receipts of existing cases.
const (
	Open                = "open"             // a case with its first run
	Escrow              = "escrow"           // an escrow that nobody has named before
	CorrectEscrow       = "correct"          // another sum of an escrow that no case has used
	FoldDeltas          = "fold"             // the open deltas of escrows are added to their rows
	CancelRequest       = "cancel-requested" // the mark on a running run: its transaction commits
	AdvanceNotification = "ring"             // the number of a bell
	Install             = "install"          // the database gets its identity
	Timeline            = "timeline"         // the timeline that the database is on
	Targets             = "targets"          // by whose circuit breakers targets go: their transaction commits
	RegisterSession     = "enlist"           // a session begins
	Beat                = "beat"             // it shows its life
	MarkLost            = "bury"             // it is declared lost
	RemoveSession       = "dismiss"          // it is forgotten

	Breaker              = "breaker"     // a circuit breaker moves: its transaction commits
	BreakerProbes        = "brake-step"  // what an open circuit breaker lets through
	BreakerTenantReceipt = "brake-tell"  // a tenant's trail says that a circuit breaker over all tenants opened or closed: its transaction commits
	Policy               = "policy"      // a family's policy is set: its transaction commits
	LetterHandler        = "handler"     // a run dies and its letter's handler begins: their transaction commits
	Key                  = "key"         // an access key is made or revoked: its transaction commits
	ApprovalsRequired    = "people"      // how many people it takes to state money by hand is set: its transaction commits
	KeyUse               = "key-use"     // that a key was used
	AccessRefusal        = "refusal"     // somebody was refused something: its transaction commits
	SubmissionRefusal    = "refused"     // a submission was refused by its case: its transaction commits
	Lookup               = "lookup"      // what is known of asking about letters of unknown outcome
	Request              = "request"     // a request with an idempotency key begins, is answered, or is dropped
	Annotations          = "desk"        // letters and what was said of them: their transaction commits
	BulkItems            = "bulk-items"  // the items of a bulk plan that is being made: their transaction commits
	BulkPlan             = "bulk-plan"   // a bulk plan, whose items are there: its transaction commits
	BulkExpire           = "bulk-forget" // a bulk plan that nobody started is forgotten: its transaction commits
	BulkTransition       = "bulk-move"   // a bulk plan is started, paused, resumed, cancelled, or done: its transaction commits
	BulkItem             = "bulk-item"   // what became of items of a bulk plan
	BulkSettled          = "bulk-rest"   // that nothing of a cancelled bulk plan is in doubt
	Rule                 = "rule"        // a rule for dead letters is made, changed or deleted: its transaction commits
	RuleAction           = "rule-act"    // a rule replays or marks a letter: their transaction commits
	Sequence             = "sequence"    // receipts get their places in the order of events
	Rebuild              = "rebuild"     // rows of the list of letters that differed are written: their transaction commits
	Projection           = "project"     // letters are brought up to date for searching: their transaction commits
)

// What bells and calls are about.
const (
	Task     = "task"     // the asynq task of a run
	Executor = "executor" // of the family
)

// Point names a moment of something.
func Point(m Moment, subject string) string { return string(m) + ":" + subject }
