package cli

import (
	"context"
	"io"

	"github.com/google/uuid"

	"github.com/recourse-dev/recourse/internal/access"
	"github.com/recourse-dev/recourse/internal/api"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/receipts"
)

// clerk does what the commands of dead letters, keys and policies ask, for one tenant and
// in one principal's name: on the library, or by asking a server. It refuses with the same
// errors either way. The actor of a request is the clerk's to fill in.
type clerk interface {
	letterReader
	letterAnalyst
	letterMender
	letterRemover
	bulkKeeper
	ruleKeeper
	keyKeeper
	policyKeeper
	caseKeeper
	peopleKeeper
	historian
	Close() error
}

type letterReader interface {
	Letters(context.Context, postadjudication.LetterQuery) (postadjudication.LetterPage, error)
	Count(context.Context, postadjudication.LetterFilter) (postadjudication.LetterCount, error)
	Inspect(context.Context, receipts.RunID) (postadjudication.Inspection, error)
	Run(context.Context, receipts.RunID) (postadjudication.Status, error)
	Retention(context.Context) ([]postadjudication.Kept, error)
}

type policyKeeper interface {
	Policies(context.Context) ([]postadjudication.FamilyPolicy, error)
	PolicyHistory(ctx context.Context, family string, after int64, limit int) ([]postadjudication.PolicyVersion, error)
	SetPolicy(context.Context, postadjudication.PolicyChange) (postadjudication.FamilyPolicy, error)
	ResetPolicy(context.Context, postadjudication.PolicyReset) (postadjudication.FamilyPolicy, error)
}

type caseKeeper interface {
	Cases(ctx context.Context, f postadjudication.CaseFilter, after string, limit int) (postadjudication.CasePage, error)
	PlanFree(context.Context, postadjudication.FreeRequest) (postadjudication.Bulk, error)
}

type peopleKeeper interface {
	People(context.Context) (postadjudication.People, error)
	SetPeople(context.Context, postadjudication.PeopleChange) (postadjudication.People, error)
	PeopleHistory(ctx context.Context, after int64, limit int) ([]postadjudication.PeopleVersion, error)
}

type keyKeeper interface {
	Keys(context.Context) ([]access.Key, error)
	CreateKey(context.Context, postadjudication.NewKey) (keyMade, error)
	RotateKey(context.Context, postadjudication.KeyRotation) (keyMade, error)
	RevokeKey(ctx context.Context, prefix, reason string) (access.Key, error)
}

type letterAnalyst interface {
	Analyze(context.Context, postadjudication.AnalysisQuery) (postadjudication.Analysis, error)
	Groups(context.Context, postadjudication.GroupQuery) (postadjudication.GroupPage, error)
	Stats(context.Context, postadjudication.LetterFilter) (postadjudication.LetterStats, error)
	Search(context.Context, postadjudication.LetterSearch) (postadjudication.LettersFound, error)
	Export(ctx context.Context, f postadjudication.LetterFilter, where string, format postadjudication.ExportFormat, out io.Writer) (postadjudication.Exported, error)
}

type ruleKeeper interface {
	Rules(context.Context) ([]postadjudication.StandingRule, error)
	SetRule(context.Context, postadjudication.RuleChange) (postadjudication.StandingRule, error)
	TryRule(context.Context, postadjudication.Rule) (postadjudication.RuleTrial, error)
	RuleHistory(ctx context.Context, name string, after int64, limit int) ([]postadjudication.RuleVersion, error)
	DeleteRule(context.Context, postadjudication.RuleRemoval) (postadjudication.StandingRule, error)
}

type letterMender interface {
	Fork(context.Context, receipts.RunID, postadjudication.ForkRequest) (api.Forked, error)
	Retry(ctx context.Context, run receipts.RunID, reason string) (api.Forked, error)
	Reconcile(context.Context, receipts.RunID, postadjudication.Finding) (postadjudication.CaseStatus, error)
	Lookup(context.Context, receipts.RunID) (postadjudication.CaseStatus, error)
	Hold(ctx context.Context, run receipts.RunID, reason string) (postadjudication.Desk, error)
	Release(ctx context.Context, run receipts.RunID, reason string) (postadjudication.Desk, error)
	Mark(context.Context, receipts.RunID, postadjudication.MarkRequest) (postadjudication.Desk, error)
}

type letterRemover interface {
	PlanPurge(context.Context, postadjudication.PurgeRequest) (postadjudication.PurgePlan, error)
	Purge(context.Context, postadjudication.PurgeRequest) (postadjudication.Purged, error)
	PlanClear(context.Context, postadjudication.ClearRequest) (postadjudication.PurgePlan, error)
	Clear(context.Context, postadjudication.ClearRequest) (postadjudication.Purged, error)
}

type bulkKeeper interface {
	PlanBulk(context.Context, postadjudication.BulkRequest) (postadjudication.Bulk, error)
	// RunBulk lets a plan run; alone is for one person who does it for an incident, else nil.
	RunBulk(ctx context.Context, id uuid.UUID, hash string, alone *postadjudication.BreakGlass) (postadjudication.Bulk, error)
	TurnBulk(ctx context.Context, id uuid.UUID, turn bulkTurn, reason string) (postadjudication.Bulk, error)
	Bulk(context.Context, uuid.UUID) (postadjudication.Bulk, error)
	Bulks(ctx context.Context, after string) (postadjudication.BulkPage, error)
	BulkItems(ctx context.Context, id uuid.UUID, outcome, after string, limit int) (postadjudication.BulkItemPage, error)
}

// bulkTurn is a change of where a plan stands.
type bulkTurn string

const (
	pauseBulk  bulkTurn = "pause"
	resumeBulk bulkTurn = "resume"
	cancelBulk bulkTurn = "cancel"
)
