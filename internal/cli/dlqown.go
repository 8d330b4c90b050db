package cli

import (
	"context"
	"errors"
	"io"

	"github.com/google/uuid"

	"github.com/recourse-dev/recourse/internal/access"
	"github.com/recourse-dev/recourse/internal/api"
	"github.com/recourse-dev/recourse/internal/app"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/receipts"
)

// own is the clerk of this process: it works on the database.
type own struct {
	*postadjudication.Service
	tenant, actor string
	escrow        *app.Escrow // nil when none is named
}

// openOwn opens the service. An escrow service is only asked what became of money, and
// only when the environment names one.
func (c *command) openOwn(ctx context.Context, o *office) (*own, error) {
	o.FromEnvironment(c.Getenv)
	if err := o.CheckKnowledge(); err != nil {
		return nil, err
	}
	as := o.Look
	if o.rings() {
		as = o.Service
	}
	config, err := as()
	if err != nil {
		return nil, err
	}
	config.Unguarded = !o.acts
	config.TimeLimit, config.InFlight = o.TimeLimit, o.InFlight
	k := &own{tenant: o.tenant, actor: o.actor}
	if o.EscrowURL != "" {
		if k.escrow, err = o.OpenEscrow(); err != nil {
			return nil, err
		}
		config.Executor, config.Targets = k.escrow.Executor, k.escrow.Targets
	}
	if k.Service, err = postadjudication.Open(ctx, config); err != nil {
		k.closeEscrow()
		return nil, err
	}
	if !o.acts {
		if err := c.warnOfTriggers(ctx, k.Service); err != nil {
			return nil, errors.Join(err, k.Close())
		}
	}
	return k, nil
}

func (k *own) Close() error {
	defer k.closeEscrow()
	return k.Service.Close()
}

func (k *own) closeEscrow() {
	if k.escrow != nil {
		k.escrow.Close()
	}
}

func (k *own) Letters(ctx context.Context, q postadjudication.LetterQuery) (postadjudication.LetterPage, error) {
	return k.Service.Letters(ctx, k.tenant, q)
}

func (k *own) Count(ctx context.Context, f postadjudication.LetterFilter) (postadjudication.LetterCount, error) {
	return k.CountLetters(ctx, k.tenant, f)
}

func (k *own) Inspect(ctx context.Context, run receipts.RunID) (postadjudication.Inspection, error) {
	return k.Service.Inspect(ctx, k.tenant, run)
}

func (k *own) Run(ctx context.Context, run receipts.RunID) (postadjudication.Status, error) {
	return k.Status(ctx, k.tenant, run)
}

func (k *own) Policies(ctx context.Context) ([]postadjudication.FamilyPolicy, error) {
	return k.Service.Policies(ctx, k.tenant)
}

func (k *own) PolicyHistory(ctx context.Context, family string, after int64, limit int) ([]postadjudication.PolicyVersion, error) {
	return k.Service.PolicyHistory(ctx, k.tenant, family, after, limit)
}

func (k *own) SetPolicy(ctx context.Context, q postadjudication.PolicyChange) (postadjudication.FamilyPolicy, error) {
	q.Tenant, q.Actor = k.tenant, k.actor
	return k.Service.SetPolicy(ctx, q)
}

func (k *own) ResetPolicy(ctx context.Context, q postadjudication.PolicyReset) (postadjudication.FamilyPolicy, error) {
	q.Tenant, q.Actor = k.tenant, k.actor
	return k.Service.ResetPolicy(ctx, q)
}

func (k *own) Keys(ctx context.Context) ([]access.Key, error) {
	return k.Service.Keys(ctx, k.tenant)
}

func (k *own) CreateKey(ctx context.Context, q postadjudication.NewKey) (keyMade, error) {
	q.Tenant, q.Actor = k.tenant, k.actor
	token, made, err := k.Service.CreateKey(ctx, q)
	return keyMade{token, made}, err
}

func (k *own) RotateKey(ctx context.Context, q postadjudication.KeyRotation) (keyMade, error) {
	q.Tenant, q.Actor = k.tenant, k.actor
	token, made, err := k.Service.RotateKey(ctx, q)
	return keyMade{token, made}, err
}

func (k *own) RevokeKey(ctx context.Context, prefix, reason string) (access.Key, error) {
	return k.Service.RevokeKey(ctx, k.tenant, prefix, k.actor, reason)
}

func (k *own) Retention(context.Context) ([]postadjudication.Kept, error) {
	return k.Service.Retention(), nil
}

func (k *own) Analyze(ctx context.Context, q postadjudication.AnalysisQuery) (postadjudication.Analysis, error) {
	return k.Service.Analyze(ctx, k.tenant, q)
}

func (k *own) Groups(ctx context.Context, q postadjudication.GroupQuery) (postadjudication.GroupPage, error) {
	return k.Service.Groups(ctx, k.tenant, q)
}

func (k *own) Stats(ctx context.Context, f postadjudication.LetterFilter) (postadjudication.LetterStats, error) {
	return k.LetterStats(ctx, k.tenant, f)
}

func (k *own) Search(ctx context.Context, q postadjudication.LetterSearch) (postadjudication.LettersFound, error) {
	return k.SearchLetters(ctx, k.tenant, q)
}

func (k *own) Export(ctx context.Context, f postadjudication.LetterFilter, where string, format postadjudication.ExportFormat, out io.Writer) (postadjudication.Exported, error) {
	return k.Service.Export(ctx, k.tenant, f, where, format, out)
}

func (k *own) Rules(ctx context.Context) ([]postadjudication.StandingRule, error) {
	return k.Service.Rules(ctx, k.tenant)
}

func (k *own) SetRule(ctx context.Context, q postadjudication.RuleChange) (postadjudication.StandingRule, error) {
	q.Tenant, q.Actor = k.tenant, k.actor
	return k.Service.SetRule(ctx, q)
}

func (k *own) TryRule(ctx context.Context, r postadjudication.Rule) (postadjudication.RuleTrial, error) {
	return k.Service.TryRule(ctx, k.tenant, r)
}

func (k *own) RuleHistory(ctx context.Context, name string, after int64, limit int) ([]postadjudication.RuleVersion, error) {
	return k.Service.RuleHistory(ctx, k.tenant, name, after, limit)
}

func (k *own) DeleteRule(ctx context.Context, q postadjudication.RuleRemoval) (postadjudication.StandingRule, error) {
	q.Tenant, q.Actor = k.tenant, k.actor
	return k.Service.DeleteRule(ctx, q)
}

func (k *own) Fork(ctx context.Context, run receipts.RunID, q postadjudication.ForkRequest) (api.Forked, error) {
	q.Actor = k.actor
	made, err := k.Service.Fork(ctx, k.tenant, run, q)
	return api.Forked{Run: made.Run, Case: made.Case, Parent: run, State: made.State}, err
}

func (k *own) Retry(ctx context.Context, run receipts.RunID, reason string) (api.Forked, error) {
	made, err := k.Service.Retry(ctx, k.tenant, run, k.actor, reason)
	if err != nil {
		return api.Forked{}, err
	}
	out := api.Forked{Run: made.Run, Case: made.Case, State: made.State}
	status, err := k.Run(ctx, made.Run)
	if n := len(status.Parents); n > 0 {
		out.Parent = status.Parents[n-1]
	}
	return out, err
}

func (k *own) Reconcile(ctx context.Context, run receipts.RunID, f postadjudication.Finding) (postadjudication.CaseStatus, error) {
	f.Actor = k.actor
	return k.Service.Reconcile(ctx, k.tenant, run, f)
}

func (k *own) Lookup(ctx context.Context, run receipts.RunID) (postadjudication.CaseStatus, error) {
	return k.ReconcileByLookup(ctx, k.tenant, run, k.actor)
}

func (k *own) Hold(ctx context.Context, run receipts.RunID, reason string) (postadjudication.Desk, error) {
	return k.Service.Hold(ctx, k.tenant, run, postadjudication.HoldRequest{Actor: k.actor, Reason: reason})
}

func (k *own) Release(ctx context.Context, run receipts.RunID, reason string) (postadjudication.Desk, error) {
	return k.ReleaseHold(ctx, k.tenant, run, postadjudication.HoldRequest{Actor: k.actor, Reason: reason})
}

func (k *own) Mark(ctx context.Context, run receipts.RunID, q postadjudication.MarkRequest) (postadjudication.Desk, error) {
	q.Actor = k.actor
	return k.Service.Mark(ctx, k.tenant, run, q)
}

func (k *own) PlanPurge(ctx context.Context, q postadjudication.PurgeRequest) (postadjudication.PurgePlan, error) {
	return k.Service.PlanPurge(ctx, k.tenant, q)
}

func (k *own) Purge(ctx context.Context, q postadjudication.PurgeRequest) (postadjudication.Purged, error) {
	q.Actor = k.actor
	return k.Service.Purge(ctx, k.tenant, q)
}

func (k *own) PlanClear(ctx context.Context, q postadjudication.ClearRequest) (postadjudication.PurgePlan, error) {
	return k.Service.PlanClear(ctx, k.tenant, q)
}

func (k *own) Clear(ctx context.Context, q postadjudication.ClearRequest) (postadjudication.Purged, error) {
	q.Actor = k.actor
	return k.Service.Clear(ctx, k.tenant, q)
}

func (k *own) PlanBulk(ctx context.Context, q postadjudication.BulkRequest) (postadjudication.Bulk, error) {
	q.Tenant, q.Actor = k.tenant, k.actor
	return k.Service.PlanBulk(ctx, q)
}

func (k *own) RunBulk(ctx context.Context, id uuid.UUID, hash string, alone *postadjudication.BreakGlass) (postadjudication.Bulk, error) {
	if alone != nil {
		by := *alone
		by.Actor = k.actor
		return k.RunBulkAlone(ctx, k.tenant, id, hash, by)
	}
	return k.Service.RunBulk(ctx, k.tenant, id, hash, k.actor)
}

func (k *own) TurnBulk(ctx context.Context, id uuid.UUID, turn bulkTurn, reason string) (postadjudication.Bulk, error) {
	do := map[bulkTurn]func(context.Context, string, uuid.UUID, string, string) (postadjudication.Bulk, error){
		pauseBulk: k.PauseBulk, resumeBulk: k.ResumeBulk, cancelBulk: k.CancelBulk,
	}[turn]
	return do(ctx, k.tenant, id, k.actor, reason)
}

func (k *own) Bulk(ctx context.Context, id uuid.UUID) (postadjudication.Bulk, error) {
	return k.Service.Bulk(ctx, k.tenant, id)
}

func (k *own) Bulks(ctx context.Context, after string) (postadjudication.BulkPage, error) {
	return k.Service.Bulks(ctx, k.tenant, after)
}

func (k *own) BulkItems(ctx context.Context, id uuid.UUID, outcome, after string, limit int) (postadjudication.BulkItemPage, error) {
	return k.Service.BulkItems(ctx, k.tenant, id, after, limit, outcome)
}
