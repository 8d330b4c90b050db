package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/access"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/retrypolicy"
)

var forkAttemptsDoc = fmt.Sprintf("403 beyond_reach if policy has more attempts than both the family's policy for new runs and %d, and the key may not set policies.", postadjudication.ForkAttempts)

// checkForkAttempts refuses a fork with more attempts than the caller may give it. A refusal
// leaves a receipt.
func (a *API) checkForkAttempts(ctx context.Context, c Caller, run background.RunID, p *retrypolicy.Policy) error {
	if p == nil || access.May(c.Roles, access.Policy) {
		return nil
	}
	status, err := a.service.Status(ctx, c.Tenant, run)
	if errors.Is(err, refusal.ErrNotFound) {
		return nil // Fork returns this error itself
	}
	if err != nil {
		return err
	}
	return a.checkAttempts(ctx, c, status.Family, p, postadjudication.AccessRefusal{Action: string(access.Fork), Run: run})
}

// checkPlanAttempts refuses a plan of forks with more attempts than the caller may give them. A
// refusal leaves a receipt. If the plan names no single family, the strictest policy counts.
func (a *API) checkPlanAttempts(ctx context.Context, c Caller, family string, p *retrypolicy.Policy) error {
	if p == nil || access.May(c.Roles, access.Policy) {
		return nil
	}
	return a.checkAttempts(ctx, c, family, p, postadjudication.AccessRefusal{Action: string(access.BulkPlan)})
}

func (a *API) checkAttempts(ctx context.Context, c Caller, family string, p *retrypolicy.Policy, refusal postadjudication.AccessRefusal) error {
	policies, err := a.service.As(c.Tenant, "").Policies.List(ctx)
	if err != nil {
		return err
	}
	limit := maxForkAttempts(policies, family)
	if p.Normalize().MaxRetryAttempts <= limit {
		return nil
	}
	refusal.Rule = "beyond_reach"
	if err := a.recordRefusal(ctx, c, refusal); err != nil {
		return err
	}
	refused := newProblem(http.StatusForbidden, "beyond_reach", "the access key may not give a fork so many attempts: a key that may set policies may").
		withField("policy.max_retry_attempts", fmt.Sprintf("must be %d at most", limit))
	for _, role := range access.Allowed(access.Policy) {
		refused.Needs = append(refused.Needs, string(role))
	}
	return refused
}

// maxForkAttempts returns how many attempts a fork of the family may have by the policies of
// a tenant. With no family it takes the policy with the fewest attempts.
func maxForkAttempts(policies []postadjudication.FamilyPolicy, family string) int {
	fewest := 0
	for _, p := range policies {
		attempts := p.Policy.Normalize().MaxRetryAttempts
		if (family == "" || p.Family == family) && (fewest == 0 || attempts < fewest) {
			fewest = attempts
		}
	}
	return max(fewest, postadjudication.ForkAttempts)
}
