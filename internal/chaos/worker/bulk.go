package worker

import (
	"context"

	"github.com/recourse-dev/recourse/postadjudication"
)

// free frees what the tenant's cases have reserved, by a plan.
func (p *process) free(ctx context.Context, c Command) error {
	b, err := p.service.PlanFree(ctx, postadjudication.FreeRequest{Tenant: c.Tenant, All: true, Actor: actor, Reason: reason, Reference: "chaos"})
	if err != nil {
		return err
	}
	_, err = p.service.RunBulk(ctx, c.Tenant, b.ID, b.Hash, second)
	return err
}

// bulk forks all letters of a tenant by a plan, or begins to and cancels it.
func (p *process) bulk(ctx context.Context, c Command) error {
	q := postadjudication.BulkRequest{Tenant: c.Tenant, All: true, Action: postadjudication.BulkFork, Actor: actor, Reason: reason}
	if c.Do == Break {
		q.Throttle = 1 // so that it is not done before it is cancelled
	}
	b, err := p.service.PlanBulk(ctx, q)
	if err != nil {
		return err
	}
	if _, err := p.service.RunBulk(ctx, c.Tenant, b.ID, b.Hash, second); err != nil || c.Do == Bulk {
		return err
	}
	_, err = p.service.CancelBulk(ctx, c.Tenant, b.ID, actor, reason)
	return err
}
