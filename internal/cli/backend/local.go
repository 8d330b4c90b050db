package backend

import (
	"context"
	"errors"

	"github.com/google/uuid"

	"github.com/recourse-dev/recourse/internal/app"
	"github.com/recourse-dev/recourse/internal/cli/shell"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/bulk"
	"github.com/recourse-dev/recourse/postadjudication/casestatus"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/receipts"
)

// local is the backend on the database.
type local struct {
	service *postadjudication.Service
	escrow  *app.Escrow // nil if the environment names no escrow service
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
	config.AllowUnsuitable = !o.changes()
	config.TimeLimit, config.InFlight, config.Remote = o.TimeLimit, o.InFlight, o.RemoteWorkers()
	if o.Webhooks {
		if config.Webhooks, err = o.WebhookConfig(); err != nil {
			return Backend{}, err
		}
	}
	l := &local{}
	if o.EscrowURL != "" && !o.Submits {
		if l.escrow, err = o.OpenEscrow(); err != nil {
			return Backend{}, err
		}
		config.Executor, config.Targets = l.escrow.Executor, l.escrow.Targets
	}
	if l.service, err = postadjudication.Open(ctx, config); err != nil {
		l.closeEscrowClient()
		return Backend{}, err
	}
	if !o.changes() {
		if err := warnOfGuards(ctx, sh, l.service); err != nil {
			return Backend{}, errors.Join(err, l.Close())
		}
	}
	as := l.service.As(o.Tenant, o.Actor)
	return Backend{
		DeadLetters: as.DeadLetters, Bulk: localBulk{as.Bulk}, Rules: as.Rules, Keys: as.Keys, Webhooks: as.Webhooks, Policies: as.Policies,
		Cases: localCases{as.Cases, as.Bulk, l.service, o.Tenant}, People: as.People, OperationLogs: as.OperationLogs, Breakers: as.Breakers, Events: localEvents{l.service, o.Tenant},
		Submit: l.service.SubmitBatch, RunHere: as.Bulk.RunHere, StatsByTenant: l.service.StatsByTenant, Tenants: l.service.Tenants, close: l.Close,
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

// localBulk starts a plan with or without breaking the glass.
type localBulk struct{ bulk.Plans }

func (b localBulk) Run(ctx context.Context, id uuid.UUID, hash string, breakGlass *bulk.BreakGlass) (bulk.Plan, error) {
	if breakGlass != nil {
		return b.RunBreakGlass(ctx, id, hash, *breakGlass)
	}
	return b.Plans.Run(ctx, id, hash)
}

// localEvents reads the events of a tenant.
type localEvents struct {
	service *postadjudication.Service
	tenant  string
}

func (e localEvents) List(ctx context.Context, after postadjudication.Position, limit int) ([]postadjudication.Event, postadjudication.Position, error) {
	return e.service.Events(ctx, e.tenant, after, limit)
}

func (e localEvents) Follow(after postadjudication.Position) func(context.Context) ([]postadjudication.Event, error) {
	reader := e.service.Follow(e.tenant, after)
	return func(ctx context.Context) ([]postadjudication.Event, error) {
		for ctx.Err() == nil {
			events, _, err := reader.Next(ctx, postadjudication.MaxEvents, func(_ context.Context, _ string, read func()) error {
				read()
				return nil
			})
			if err != nil || len(events) > 0 {
				return events, err
			}
		}
		return nil, nil
	}
}

// localCases reads runs and receipts besides cases, and plans about their money.
type localCases struct {
	postadjudication.TenantCases
	plans   bulk.Plans
	service *postadjudication.Service
	tenant  string
}

func (c localCases) Run(ctx context.Context, run receipts.RunID) (casestatus.Status, error) {
	return c.service.Status(ctx, c.tenant, run)
}

func (c localCases) ByID(ctx context.Context, id receipts.CaseID) (casestatus.Case, error) {
	return c.service.CaseByID(ctx, c.tenant, id)
}

// Find returns the case of a transaction, or of a job.
func (c localCases) Find(ctx context.Context, transaction string) (casestatus.Case, error) {
	found, err := c.service.Case(ctx, c.tenant, transaction)
	if _, bad := receipts.ParseRunID(transaction); bad != nil || !errors.Is(err, refusal.ErrNotFound) {
		return found, err
	}
	job, err := c.service.As(c.tenant, "").Jobs.Find(ctx, transaction)
	if err != nil {
		return casestatus.Case{}, err
	}
	return c.service.CaseByID(ctx, c.tenant, job.Case)
}

func (c localCases) Receipts(ctx context.Context, id receipts.CaseID, after int64, limit int) ([]receipts.Receipt, bool, error) {
	found, err := c.service.Receipts(ctx, c.tenant, id, after, limit)
	return found, len(found) == limit, err
}

func (c localCases) FindReceipts(ctx context.Context, f postadjudication.ReceiptFilter, after int64, limit int) (postadjudication.ReceiptsFound, error) {
	return c.service.FindReceipts(ctx, c.tenant, f, after, limit)
}

func (c localCases) PlanFree(ctx context.Context, q bulk.FreeRequest) (bulk.Plan, error) {
	return c.plans.PlanFree(ctx, q)
}

func (c localCases) PlanReturns(ctx context.Context, q bulk.ReturnsRequest) (bulk.PlannedReturns, error) {
	return c.plans.PlanReturns(ctx, q)
}

func (c localCases) PlanMove(ctx context.Context, q bulk.MoveRequest) (bulk.Plan, error) {
	return c.plans.PlanMove(ctx, q)
}
