package worker

import (
	"context"

	"github.com/recourse-dev/recourse/postadjudication"
)

// rule has all letters of a tenant replayed so many times.
func (p *process) rule(ctx context.Context, c Command) error {
	_, err := p.service.SetRule(ctx, postadjudication.RuleChange{Tenant: c.Tenant, Actor: actor, Reason: reason,
		Rule: postadjudication.Rule{Name: "all", Enabled: true, All: true, Delay: "0s", MaxReplays: c.Attempts}})
	return err
}
