package worker

import (
	"context"
	"errors"

	"github.com/recourse-dev/recourse/postadjudication"
)

// free frees what the tenant's cases have reserved, by a plan.
func (p *process) free(ctx context.Context, c Command) error {
	b, err := p.service.PlanFree(ctx, postadjudication.FreeRequest{Tenant: c.Tenant, All: true, Actor: actor, Reason: reason, Reference: "chaos"})
	if err != nil {
		return unlessNothing(err)
	}
	_, err = p.service.RunBulk(ctx, c.Tenant, b.ID, b.Hash, secondActor)
	return err
}

// unlessNothing returns the error of a plan, nil where there was nothing to plan.
func unlessNothing(err error) error {
	var nothing *postadjudication.NothingSelectedError
	if errors.As(err, &nothing) {
		return nil
	}
	return err
}

// bulk forks all letters of a tenant by a plan, or begins to and cancels it.
func (p *process) bulk(ctx context.Context, c Command) error {
	q := postadjudication.BulkRequest{Tenant: c.Tenant, All: true, Action: postadjudication.BulkFork, Actor: actor, Reason: reason}
	if c.Do == CancelBulk {
		q.Throttle = 1 // so that it is not done before it is cancelled
	}
	b, err := p.service.PlanBulk(ctx, q)
	if err != nil {
		return unlessNothing(err)
	}
	if _, err := p.service.RunBulk(ctx, c.Tenant, b.ID, b.Hash, secondActor); err != nil || c.Do == Bulk {
		return err
	}
	_, err = p.service.CancelBulk(ctx, c.Tenant, b.ID, actor, reason)
	return err
}
