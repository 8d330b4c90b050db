package postadjudication

import (
	"context"
	"fmt"
	"slices"

	"github.com/recourse-dev/recourse/internal/access"
	"github.com/recourse-dev/recourse/internal/postgres"
	"github.com/recourse-dev/recourse/retrypolicy"
)

// ForkAttempts is how many attempts a fork may have if the caller may not set policies and the
// policy of new runs has fewer.
const ForkAttempts = 10

// attemptsWithinReach refuses forks of a plan with more attempts than its planner and starter
// may give. The plan may come from an older version that did not check, or the policy of new
// runs may have been lowered since.
func (w *planWork) attemptsWithinReach(ctx context.Context, family string, p *retrypolicy.Policy, setsPolicies bool) error {
	if p == nil || setsPolicies {
		return nil
	}
	var configured retrypolicy.Policy
	if c := w.configured(family); c != nil {
		configured = *c
	}
	most := max(w.policies.policyFor(ctx, w.plan.Tenant, family, configured).Normalize().MaxRetryAttempts, ForkAttempts)
	if p.Normalize().MaxRetryAttempts <= most {
		return nil
	}
	return &FieldError{Field: "policy.max_retry_attempts", Problem: fmt.Sprintf("must be at most %d now: neither the planner nor the starter may set policies", most)}
}

// setsPolicies reports whether the key of the planner or of the starter may set policies.
// Access next to the database has no roles and may.
func (w *planWork) setsPolicies(ctx context.Context) (bool, error) {
	if w.spec.Policy == "" || w.plan.PlannedKey == "" || w.plan.StartedKey == "" {
		return true, nil
	}
	for _, tenant := range []string{w.plan.Tenant, postgres.AllTenants} {
		keys, err := w.journal.Keys.List(ctx, tenant)
		if err != nil {
			return false, err
		}
		if slices.ContainsFunc(keys, func(k access.Key) bool {
			return (k.Prefix == w.plan.PlannedKey || k.Prefix == w.plan.StartedKey) && access.May(k.Roles, access.Policy)
		}) {
			return true, nil
		}
	}
	return false, nil
}
