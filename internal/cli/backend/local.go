package backend

import (
	"context"
	"errors"
	"io"

	"github.com/google/uuid"

	"github.com/recourse-dev/recourse/internal/api"
	"github.com/recourse-dev/recourse/internal/app"
	"github.com/recourse-dev/recourse/internal/cli/shell"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/receipts"
)

// local is the backend on the database.
type local struct {
	service       *postadjudication.Service
	tenant, actor string
	escrow        *app.Escrow // nil if the environment names no escrow service
}

// openLocal opens the service. It uses an escrow service only for lookups, and only if the
// environment names one.
func openLocal(ctx context.Context, sh *shell.Shell, o *Flags) (Backend, error) {
	o.FromEnvironment(sh.Getenv)
	if err := o.CheckEscrowTimes(); err != nil {
		return Backend{}, err
	}
	configure := o.ReadOnlyConfig
	if o.needsRedis() {
		configure = o.ServiceConfig
	}
	config, err := configure()
	if err != nil {
		return Backend{}, err
	}
	config.AllowUnsuitable = !o.Mutates
	config.TimeLimit, config.InFlight = o.TimeLimit, o.InFlight
	l := &local{tenant: o.Tenant, actor: o.Actor}
	if o.EscrowURL != "" {
		if l.escrow, err = o.OpenEscrow(); err != nil {
			return Backend{}, err
		}
		config.Executor, config.Targets = l.escrow.Executor, l.escrow.Targets
	}
	if l.service, err = postadjudication.Open(ctx, config); err != nil {
		l.closeEscrowClient()
		return Backend{}, err
	}
	if !o.Mutates {
		if err := warnOfTriggers(ctx, sh, l.service); err != nil {
			return Backend{}, errors.Join(err, l.Close())
		}
	}
	as := l.service.As(o.Tenant, o.Actor)
	return Backend{
		DeadLetters: localDeadLetters{l}, Bulk: localBulk{l}, Rules: as.Rules, Keys: as.Keys, Policies: as.Policies,
		Cases: localCases{l}, People: as.People, OperationLogs: as.OperationLogs, close: l.Close,
	}, nil
}

func (l *local) Close() error {
	defer l.closeEscrowClient()
	return l.service.Close()
}

func (l *local) closeEscrowClient() {
	if l.escrow != nil {
		l.escrow.Close()
	}
}

type localDeadLetters struct{ *local }

func (d localDeadLetters) List(ctx context.Context, q postadjudication.LetterQuery) (postadjudication.LetterPage, error) {
	return d.service.As(d.tenant, "").DeadLetters.List(ctx, q)
}

func (d localDeadLetters) Count(ctx context.Context, f postadjudication.LetterFilter) (postadjudication.LetterCount, error) {
	return d.service.As(d.tenant, "").DeadLetters.Count(ctx, f)
}

func (d localDeadLetters) Inspect(ctx context.Context, run receipts.RunID) (postadjudication.Inspection, error) {
	return d.service.As(d.tenant, "").DeadLetters.Inspect(ctx, run)
}

func (d localDeadLetters) Retention(context.Context) ([]postadjudication.EffectiveRetention, error) {
	return d.service.Retention(), nil
}

func (d localDeadLetters) Analyze(ctx context.Context, q postadjudication.AnalysisQuery) (postadjudication.Analysis, error) {
	return d.service.As(d.tenant, "").DeadLetters.Analyze(ctx, q)
}

func (d localDeadLetters) Groups(ctx context.Context, q postadjudication.GroupQuery) (postadjudication.GroupPage, error) {
	return d.service.As(d.tenant, "").DeadLetters.Groups(ctx, q)
}

func (d localDeadLetters) Stats(ctx context.Context, f postadjudication.LetterFilter) (postadjudication.LetterStats, error) {
	return d.service.As(d.tenant, "").DeadLetters.Stats(ctx, f)
}

func (d localDeadLetters) Search(ctx context.Context, q postadjudication.LetterSearch) (postadjudication.LettersFound, error) {
	return d.service.As(d.tenant, "").DeadLetters.Search(ctx, q)
}

func (d localDeadLetters) Export(ctx context.Context, f postadjudication.LetterFilter, where string, format postadjudication.ExportFormat, out io.Writer) (postadjudication.Exported, error) {
	return d.service.As(d.tenant, "").DeadLetters.Export(ctx, f, where, format, out)
}

func (d localDeadLetters) Fork(ctx context.Context, run receipts.RunID, q postadjudication.ForkRequest) (api.Forked, error) {
	q.Actor = d.actor
	made, err := d.service.Fork(ctx, d.tenant, run, q)
	return api.Forked{Run: made.Run, Case: made.Case, Parent: run, State: made.State}, err
}

func (d localDeadLetters) Retry(ctx context.Context, run receipts.RunID, reason string) (api.Forked, error) {
	made, err := d.service.Retry(ctx, d.tenant, run, d.actor, reason)
	if err != nil {
		return api.Forked{}, err
	}
	out := api.Forked{Run: made.Run, Case: made.Case, State: made.State}
	status, err := d.service.Status(ctx, d.tenant, made.Run)
	if n := len(status.Parents); n > 0 {
		out.Parent = status.Parents[n-1]
	}
	return out, err
}

func (d localDeadLetters) Reconcile(ctx context.Context, run receipts.RunID, f postadjudication.Finding) (postadjudication.CaseStatus, error) {
	f.Actor = d.actor
	return d.service.Reconcile(ctx, d.tenant, run, f)
}

func (d localDeadLetters) Lookup(ctx context.Context, run receipts.RunID) (postadjudication.CaseStatus, error) {
	return d.service.ReconcileByLookup(ctx, d.tenant, run, d.actor)
}

func (d localDeadLetters) Hold(ctx context.Context, run receipts.RunID, reason string) (postadjudication.Annotations, error) {
	return d.service.Hold(ctx, d.tenant, run, postadjudication.HoldRequest{Actor: d.actor, Reason: reason})
}

func (d localDeadLetters) Release(ctx context.Context, run receipts.RunID, reason string) (postadjudication.Annotations, error) {
	return d.service.ReleaseHold(ctx, d.tenant, run, postadjudication.HoldRequest{Actor: d.actor, Reason: reason})
}

func (d localDeadLetters) Mark(ctx context.Context, run receipts.RunID, q postadjudication.MarkRequest) (postadjudication.Annotations, error) {
	q.Actor = d.actor
	return d.service.Mark(ctx, d.tenant, run, q)
}

func (d localDeadLetters) PlanPurge(ctx context.Context, q postadjudication.PurgeRequest) (postadjudication.PurgePlan, error) {
	return d.service.PlanPurge(ctx, d.tenant, q)
}

func (d localDeadLetters) Purge(ctx context.Context, q postadjudication.PurgeRequest) (postadjudication.Purged, error) {
	q.Actor = d.actor
	return d.service.Purge(ctx, d.tenant, q)
}

func (d localDeadLetters) PlanClear(ctx context.Context, q postadjudication.ClearRequest) (postadjudication.PurgePlan, error) {
	return d.service.PlanClear(ctx, d.tenant, q)
}

func (d localDeadLetters) Clear(ctx context.Context, q postadjudication.ClearRequest) (postadjudication.Purged, error) {
	q.Actor = d.actor
	return d.service.Clear(ctx, d.tenant, q)
}

type localBulk struct{ *local }

func (b localBulk) Plan(ctx context.Context, q postadjudication.BulkRequest) (postadjudication.Bulk, error) {
	q.Tenant, q.Actor = b.tenant, b.actor
	return b.service.PlanBulk(ctx, q)
}

func (b localBulk) Run(ctx context.Context, id uuid.UUID, hash string, breakGlass *postadjudication.BreakGlass) (postadjudication.Bulk, error) {
	if breakGlass != nil {
		by := *breakGlass
		by.Actor = b.actor
		return b.service.RunBulkBreakGlass(ctx, b.tenant, id, hash, by)
	}
	return b.service.RunBulk(ctx, b.tenant, id, hash, b.actor)
}

func (b localBulk) Get(ctx context.Context, id uuid.UUID) (postadjudication.Bulk, error) {
	return b.service.Bulk(ctx, b.tenant, id)
}

func (b localBulk) List(ctx context.Context, after string) (postadjudication.BulkPage, error) {
	return b.service.Bulks(ctx, b.tenant, after)
}

func (b localBulk) Items(ctx context.Context, id uuid.UUID, outcome, after string, limit int) (postadjudication.BulkItemPage, error) {
	return b.service.BulkItems(ctx, b.tenant, id, after, limit, outcome)
}

func (b localBulk) Pause(ctx context.Context, id uuid.UUID, reason string) (postadjudication.Bulk, error) {
	return b.service.PauseBulk(ctx, b.tenant, id, b.actor, reason)
}

func (b localBulk) Resume(ctx context.Context, id uuid.UUID, reason string) (postadjudication.Bulk, error) {
	return b.service.ResumeBulk(ctx, b.tenant, id, b.actor, reason)
}

func (b localBulk) Cancel(ctx context.Context, id uuid.UUID, reason string) (postadjudication.Bulk, error) {
	return b.service.CancelBulk(ctx, b.tenant, id, b.actor, reason)
}

type localCases struct{ *local }

func (c localCases) List(ctx context.Context, f postadjudication.CaseFilter, after string, limit int) (postadjudication.CasePage, error) {
	return c.service.As(c.tenant, "").Cases.List(ctx, f, after, limit)
}

func (c localCases) Run(ctx context.Context, run receipts.RunID) (postadjudication.Status, error) {
	return c.service.Status(ctx, c.tenant, run)
}

func (c localCases) PlanFree(ctx context.Context, q postadjudication.FreeRequest) (postadjudication.Bulk, error) {
	q.Tenant, q.Actor = c.tenant, c.actor
	return c.service.PlanFree(ctx, q)
}
