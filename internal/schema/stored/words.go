package stored

import "github.com/recourse-dev/recourse/receipts"

// Subjects of cases without runs: the operation logs, of which a tenant has each once, and the
// beginning of the subject of a circuit breaker's case.
const (
	KeyLog     = "keys"
	RefusalLog = "refusals"
	BulkLog    = "bulks"
	RuleLog    = "rules"
	IndexLog   = "dead-letters"
	PeopleLog  = "people"
	WebhookLog = "webhooks"

	BreakerSubjectPrefix = "breaker:"
)

// OperationLogs are the subjects of all operation logs.
var OperationLogs = []string{KeyLog, RefusalLog, BulkLog, RuleLog, IndexLog, PeopleLog, WebhookLog}

// The kinds of case.
const (
	KindSettlement = "settlement"
	KindPlain      = "plain"
	KindOperations = "operations" // has receipts but no run
)

// The states of a bulk plan in rows and receipts, and the two that stand in receipts only:
// before it was planned, and after it was removed because nobody had started it.
const (
	BulkPlanned   = "planned"
	BulkRunning   = "running"
	BulkPaused    = "paused"
	BulkDone      = "done"
	BulkCancelled = "cancelled"
	BulkRefused   = "refused"

	BulkUnplanned = "none"
	BulkForgotten = "forgotten"
)

// The states of a webhook, in rows and in the definitions of receipts.
const (
	WebhookActive  = "active"
	WebhookPaused  = "paused"
	WebhookDeleted = "deleted" // final
)

// Counts of a bulk plan that are of no item: the dead letters on which its condition was
// evaluated, and those of them on which the evaluation failed.
const (
	BulkScanned   = "-scanned"
	BulkUndecided = "-undecided"
)

// UnnamedWorker is the name in receipts of a remote worker that gave none, as lease.Unnamed; in leases it is empty.
const UnnamedWorker = "unnamed"

// DefaultPeople is the number of people that a tenant's money requires unless another was set.
const DefaultPeople = 2

// PositionsPerReceipt is the distance of receipts in the order of events. The receipt with number n
// of a tenant has its events from position n*PositionsPerReceipt on. The last position of that range
// stands for the whole receipt.
const PositionsPerReceipt = 8

// OverAllTenants ends the changes in a receipt of a tenant's trail that is about the circuit
// breaker over all tenants.
const OverAllTenants = ", over all tenants"

// AnnotationReceipts are the subtypes of the receipts that create, change or remove
// annotations.
var AnnotationReceipts = []receipts.Subtype{
	receipts.HoldPlaced, receipts.HoldReleased, receipts.Marked, receipts.RetentionEnding, receipts.Purged, receipts.RetentionExpired,
}
