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
	"github.com/recourse-dev/recourse/retrypolicy"
)

// policyOfForks is what a changed policy of a plan's forks starts from: that of the one
// family that the plan is about. The plan is held to this family, since a policy goes to
// each of its forks, and letters of another family may die before it is made.
func policyOfForks(ctx context.Context, cmd *cobra.Command, be backend.Backend, q *postadjudication.BulkRequest, flag string) (retrypolicy.Policy, error) {
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
		return retrypolicy.Policy{}, shell.Usage(cmd, fmt.Errorf("--%s changes a policy that is not known here: that of %s; ask a server that works on it (--server), or set it", flag, family))
	}
	q.Filter.Family, q.All = family, false
	return all[at].Policy, nil
}

// forkedFamily is the family of the letters that a filter selects: the one that is named,
// that of the queue, or the settlements' when there are no others among them.
func forkedFamily(ctx context.Context, cmd *cobra.Command, be backend.Backend, f postadjudication.LetterFilter, flag string) (string, error) {
	if f.Family != "" {
		return f.Family, nil
	}
	if at := strings.LastIndexByte(f.Queue, ':'); at > 0 {
		return f.Queue[:at], nil
	}
	f.Status = background.LetterOpen // only these are ever meant
	all, err := be.DeadLetters.Count(ctx, f)
	if err != nil {
		return "", err
	}
	f.Family = postadjudication.Family
	theirs, err := be.DeadLetters.Count(ctx, f)
	if err == nil && theirs.Total < all.Total {
		err = shell.Usage(cmd, fmt.Errorf("--%s needs --family: letters of more families than %s are meant, and each has a policy of its own", flag, f.Family))
	}
	return f.Family, err
}

// retryLimit is the flag --max-retries: attempts in all of each new run.
type retryLimit struct{ attempts int }

// forks sets the policy of the forks of a plan, when one is asked for: that of the
// family's new runs, with as many attempts.
func (p *retryLimit) forks(ctx context.Context, cmd *cobra.Command, be backend.Backend, q *postadjudication.BulkRequest) error {
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
