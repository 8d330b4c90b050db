package dlq

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/cli/backend"
	"github.com/recourse-dev/recourse/internal/cli/policy"
	"github.com/recourse-dev/recourse/internal/cli/shell"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/bulk"
	"github.com/recourse-dev/recourse/postadjudication/deadletter"
	"github.com/recourse-dev/recourse/retrypolicy"
)

// policyOfForks returns the policy of the one family of a plan, which the flags then change. It
// limits the request to this family, because the policy is set on each fork, and letters of
// another family may die before the plan is made.
func policyOfForks(ctx context.Context, cmd *cobra.Command, be backend.Backend, q *bulk.Request, flag string) (retrypolicy.Policy, error) {
	family, err := forkedFamily(ctx, cmd, be, q.Filter, flag)
	if err != nil {
		return retrypolicy.Policy{}, err
	}
	all, err := be.Policies.List(ctx)
	if err != nil {
		return retrypolicy.Policy{}, err
	}
	at := slices.IndexFunc(all, func(p postadjudication.FamilyPolicy) bool { return p.Family == family })
	if at < 0 {
		return retrypolicy.Policy{}, shell.Usage(cmd, fmt.Errorf("--%s changes the policy of %s, which this program does not have: use --server with a server that executes it, or recourse policy set", flag, family))
	}
	q.Filter.Family, q.All = family, false
	return all[at].Policy, nil
}

// forkedFamily returns the family of the letters that a filter selects: the family it names, the
// family of its queue, or settlement if all its letters are of that family.
func forkedFamily(ctx context.Context, cmd *cobra.Command, be backend.Backend, f deadletter.Filter, flag string) (string, error) {
	if f.Family != "" {
		return f.Family, nil
	}
	if at := strings.LastIndexByte(f.Queue, ':'); at > 0 {
		return f.Queue[:at], nil
	}
	f.Status = background.LetterOpen // a plan takes open letters only
	all, err := be.DeadLetters.Count(ctx, f)
	if err != nil {
		return "", err
	}
	f.Family = postadjudication.Family
	settlements, err := be.DeadLetters.Count(ctx, f)
	if err == nil && settlements.Total < all.Total {
		err = shell.Usage(cmd, fmt.Errorf("--%s needs --family: the filter selects letters of other families than %s, and each family has its own policy", flag, f.Family))
	}
	return f.Family, err
}

// retryLimit is the flag --max-retries: the maximum attempts of each new run.
type retryLimit struct{ attempts int }

// forks sets the policy of a plan's forks if --max-retries is given: the policy for new runs of
// the family, with that many attempts.
func (p *retryLimit) forks(ctx context.Context, cmd *cobra.Command, be backend.Backend, q *bulk.Request) error {
	if !cmd.Flags().Changed("max-retries") {
		return nil
	}
	if p.attempts < 1 {
		return shell.Usage(cmd, errors.New("--max-retries must be at least 1"))
	}
	forked, err := policyOfForks(ctx, cmd, be, q, "max-retries")
	if err != nil {
		return err
	}
	forked.MaxRetryAttempts = p.attempts
	q.Policy = &forked
	return policy.Check(cmd, forked)
}
