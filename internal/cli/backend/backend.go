package backend

import (
	"context"
	"io"
	"time"

	"github.com/google/uuid"

	"github.com/recourse-dev/recourse/internal/access"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/bulk"
	"github.com/recourse-dev/recourse/postadjudication/casestatus"
	"github.com/recourse-dev/recourse/postadjudication/deadletter"
	"github.com/recourse-dev/recourse/postadjudication/deadletter/report"
	"github.com/recourse-dev/recourse/postadjudication/replay"
	"github.com/recourse-dev/recourse/postadjudication/retention"
	"github.com/recourse-dev/recourse/postadjudication/webhooks"
	"github.com/recourse-dev/recourse/receipts"
)

// Backend executes the requests of commands for one tenant and one principal, on the database
// or at a server, with the same errors. Requests name neither: the backend has both.
type Backend struct {
	DeadLetters   DeadLetters
	Bulk          Bulk
	Rules         Rules
	Keys          Keys
	Webhooks      Webhooks
	Policies      Policies
	Cases         Cases
	People        People
	OperationLogs OperationLogs
	Breakers      Breakers
	Events        Events

	// Submit hands adjudications over. It returns an answer or an error for each.
	Submit func(context.Context, []postadjudication.Adjudication) ([]postadjudication.Submitted, []error)

	// RunHere runs a purge in this process; nil at a server. If ctx ends first, the plan is paused.
	RunHere func(ctx context.Context, id uuid.UUID, hash string) (bulk.Plan, error)

	// StatsByTenant returns the statistics of every tenant's dead letters, by tenant.
	StatsByTenant func(context.Context, deadletter.Filter) ([]report.TenantStats, error)

	// Tenants returns all tenants that have anything; nil at a server.
	Tenants func(context.Context) ([]string, error)

	close func() error
}

// Close closes the connections of the backend.
func (b Backend) Close() error { return b.close() }

// DeadLetters reads and changes dead letters.
type DeadLetters interface {
	List(context.Context, deadletter.Query) (deadletter.Page, error)
	Count(context.Context, deadletter.Filter) (deadletter.Count, error)
	Search(context.Context, deadletter.Search) (deadletter.Found, error)
	Inspect(context.Context, receipts.RunID) (deadletter.Inspection, error)
	Analyze(context.Context, report.Query) (report.Analysis, error)
	Groups(context.Context, report.GroupQuery) (report.GroupPage, error)
	Stats(context.Context, deadletter.Filter) (report.Stats, error)
	Export(ctx context.Context, f deadletter.Filter, where string, format deadletter.Format, out io.Writer) (deadletter.Exported, error)
	Retention(context.Context) ([]retention.Effective, error)

	Fork(context.Context, receipts.RunID, deadletter.Fork) (deadletter.Forked, error)
	Retry(ctx context.Context, run receipts.RunID, reason string) (deadletter.Forked, error)
	Reconcile(context.Context, receipts.RunID, deadletter.Finding) (casestatus.Case, error)
	Lookup(context.Context, receipts.RunID) (casestatus.Case, error)
	Hold(ctx context.Context, run receipts.RunID, reason string) (deadletter.Annotations, error)
	Release(ctx context.Context, run receipts.RunID, reason string) (deadletter.Annotations, error)
	Mark(context.Context, receipts.RunID, deadletter.Mark) (deadletter.Annotations, error)
}

// Bulk stores and runs plans for many dead letters.
type Bulk interface {
	Plan(context.Context, bulk.Request) (bulk.Plan, error)
	// Run starts a plan. breakGlass is the incident for which its planner runs it alone; else nil.
	Run(ctx context.Context, id uuid.UUID, hash string, breakGlass *bulk.BreakGlass) (bulk.Plan, error)
	Pause(ctx context.Context, id uuid.UUID, reason string) (bulk.Plan, error)
	Resume(ctx context.Context, id uuid.UUID, reason string) (bulk.Plan, error)
	Cancel(ctx context.Context, id uuid.UUID, reason string) (bulk.Plan, error)
	Refuse(ctx context.Context, id uuid.UUID, reason string) (bulk.Plan, error)
	Get(context.Context, uuid.UUID) (bulk.Plan, error)
	List(ctx context.Context, f bulk.Filter, after string) (bulk.Page, error)
	Items(ctx context.Context, id uuid.UUID, outcome, after string, limit int) (bulk.ItemPage, error)
}

// Rules reads and changes the rules of automatic replay.
type Rules interface {
	List(context.Context) ([]replay.StoredRule, error)
	Set(context.Context, replay.Change) (replay.StoredRule, error)
	Try(context.Context, replay.Rule) (replay.Trial, error)
	History(ctx context.Context, name string, after int64, limit int) ([]replay.Version, error)
	Delete(context.Context, replay.Removal) (replay.StoredRule, error)
}

// Keys creates, lists, rotates and revokes access keys.
type Keys interface {
	List(context.Context) ([]access.Key, error)
	Create(context.Context, postadjudication.NewKey) (token string, k access.Key, err error)
	Rotate(context.Context, postadjudication.KeyRotation) (token string, k access.Key, err error)
	Revoke(ctx context.Context, prefix, reason string) (access.Key, error)
}

// Webhooks reads and changes webhooks.
type Webhooks interface {
	List(context.Context) ([]webhooks.Webhook, error)
	Get(context.Context, uuid.UUID) (webhooks.Webhook, error)
	Create(context.Context, webhooks.New) (made webhooks.Webhook, secret string, err error)
	Pause(ctx context.Context, id uuid.UUID, reason string) (webhooks.Webhook, error)
	Resume(ctx context.Context, id uuid.UUID, reason string) (webhooks.Webhook, error)
	Replay(ctx context.Context, id uuid.UUID, after webhooks.Position, reason string) (webhooks.Webhook, error)
	Rotate(ctx context.Context, id uuid.UUID, secret string, overlap time.Duration, reason string) (changed webhooks.Webhook, newSecret string, err error)
	Delete(ctx context.Context, id uuid.UUID, reason string) (webhooks.Webhook, error)
	Test(context.Context, uuid.UUID) (webhooks.Trial, error)
}

// Policies reads and changes the retry policies of families.
type Policies interface {
	List(context.Context) ([]postadjudication.FamilyPolicy, error)
	History(ctx context.Context, family string, after int64, limit int) ([]postadjudication.PolicyVersion, error)
	Set(context.Context, postadjudication.PolicyChange) (postadjudication.FamilyPolicy, error)
	Reset(context.Context, postadjudication.PolicyReset) (postadjudication.FamilyPolicy, error)
}

// Breakers reads and changes circuit breakers.
type Breakers interface {
	List(context.Context) ([]casestatus.Breaker, error)
	Called(context.Context) ([]string, error)
	Open(ctx context.Context, target, reason string) (casestatus.Breaker, error)
	Release(ctx context.Context, target, reason string) (casestatus.Breaker, error)
	History(ctx context.Context, target string, after int64, limit int) ([]postadjudication.OperationLogEntry, error)
}

// Events reads the events of a tenant.
type Events interface {
	List(ctx context.Context, after postadjudication.Position, limit int) ([]postadjudication.Event, postadjudication.Position, error)
	// Follow returns a function that waits for events after a position, and returns those after the ones before. It
	// returns none if its ctx ends.
	Follow(after postadjudication.Position) func(context.Context) ([]postadjudication.Event, error)
}

// Cases reads cases, their runs and receipts, cancels runs, and plans to free their reserved money, to record payments that came back and to permit
// another target.
type Cases interface {
	List(ctx context.Context, f casestatus.Filter, after string, limit int) (casestatus.Page, error)
	Run(context.Context, receipts.RunID) (casestatus.Status, error)
	ByID(context.Context, receipts.CaseID) (casestatus.Case, error)
	Find(ctx context.Context, transaction string) (casestatus.Case, error)
	Receipts(ctx context.Context, id receipts.CaseID, after int64, limit int) (found []receipts.Receipt, more bool, err error)
	FindReceipts(ctx context.Context, f postadjudication.ReceiptFilter, after int64, limit int) (postadjudication.ReceiptsFound, error)
	Cancel(ctx context.Context, run receipts.RunID, reason string) (casestatus.Status, error)
	PlanFree(context.Context, bulk.FreeRequest) (bulk.Plan, error)
	PlanReturns(context.Context, bulk.ReturnsRequest) (bulk.PlannedReturns, error)
	PlanMove(context.Context, bulk.MoveRequest) (bulk.Plan, error)
}

// People reads and changes how many people a manual money decision takes.
type People interface {
	Get(context.Context) (postadjudication.People, error)
	Set(context.Context, postadjudication.PeopleChange) (postadjudication.People, error)
	History(ctx context.Context, after int64, limit int) ([]postadjudication.PeopleVersion, error)
}

// OperationLogs reads the receipts of keys, of plans, of webhooks, and of refused requests.
type OperationLogs interface {
	History(ctx context.Context, of postadjudication.OperationLog, after int64, limit int) ([]postadjudication.OperationLogEntry, error)
}
