package failpoint

// Moment is when a point is passed, of whatever it is about.
type Moment string

// The moments; see the package comment.
const (
	JournalBefore Moment = "journal.before"
	JournalAfter  Moment = "journal.after"
	BellBefore    Moment = "bell.before"
	BellAfter     Moment = "bell.after"
	CallBefore    Moment = "call.before"
	CallLast      Moment = "call.last"
	CallAfter     Moment = "call.after"
)

// What the journal writes beside receipts of existing cases.
const (
	Open     = "open"             // a case with its first run
	Escrow   = "escrow"           // an escrow that nobody has named before
	Correct  = "correct"          // another sum of an escrow that no case has used
	Fold     = "fold"             // the open deltas of escrows are added to their rows
	Ask      = "cancel-requested" // the mark on a running run: its transaction commits
	Ring     = "ring"             // the number of a bell
	Install  = "install"          // the database gets its identity
	Timeline = "timeline"         // the timeline that the database is on
	Targets  = "targets"          // by whose circuit breakers targets go: their transaction commits
	Enlist   = "enlist"           // a session begins
	Beat     = "beat"             // it shows its life
	Bury     = "bury"             // it is declared lost
	Dismiss  = "dismiss"          // it is forgotten

	Brake      = "brake"       // a circuit breaker moves: its transaction commits
	BrakeStep  = "brake-step"  // what an open circuit breaker lets through
	BrakeTell  = "brake-tell"  // a tenant's trail says that a circuit breaker over all tenants opened or closed: its transaction commits
	Policy     = "policy"      // a family's policy is set: its transaction commits
	Handler    = "handler"     // a run dies and its letter's handler begins: their transaction commits
	Key        = "key"         // an access key is made or revoked: its transaction commits
	People     = "people"      // how many people it takes to state money by hand is set: its transaction commits
	KeyUse     = "key-use"     // that a key was used
	Refusal    = "refusal"     // somebody was refused something: its transaction commits
	Refused    = "refused"     // a submission was refused by its case: its transaction commits
	Lookup     = "lookup"      // what is known of asking about letters of unknown outcome
	Request    = "request"     // a request with an idempotency key begins, is answered, or is dropped
	Desk       = "desk"        // letters and what was said of them: their transaction commits
	BulkItems  = "bulk-items"  // the items of a bulk plan that is being made: their transaction commits
	BulkPlan   = "bulk-plan"   // a bulk plan, whose items are there: its transaction commits
	BulkForget = "bulk-forget" // a bulk plan that nobody started is forgotten: its transaction commits
	BulkMove   = "bulk-move"   // a bulk plan is started, paused, resumed, cancelled, or done: its transaction commits
	BulkItem   = "bulk-item"   // what became of items of a bulk plan
	BulkRest   = "bulk-rest"   // that nothing of a cancelled bulk plan is in doubt
	Rule       = "rule"        // a rule for dead letters is made, changed or deleted: its transaction commits
	RuleAct    = "rule-act"    // a rule replays or marks a letter: their transaction commits
	Sequence   = "sequence"    // receipts get their places in the order of events
	Rebuild    = "rebuild"     // rows of the list of letters that differed are written: their transaction commits
	Project    = "project"     // letters are brought up to date for searching: their transaction commits
)

// What bells and calls are about.
const (
	Task     = "task"     // the asynq task of a run
	Executor = "executor" // of the family
)

// Point names a moment of something.
func Point(m Moment, what string) string { return string(m) + ":" + what }
