package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/recourse-dev/recourse/internal/cli/shell"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/retrypolicy"
)

// policyFlags are the fields of a policy that a command may change.
type policyFlags struct {
	attempts          int
	base, most        time.Duration
	coefficient, wide float64
	never             []string
}

func (p *policyFlags) bind(cmd *cobra.Command) {
	f := cmd.Flags()
	f.IntVar(&p.attempts, "max-attempts", 0, "attempts in all, the first included")
	f.DurationVar(&p.base, "base-delay", 0, "pause after the first attempt, such as 25ms")
	f.DurationVar(&p.most, "max-delay", 0, "no pause is longer")
	f.Float64Var(&p.coefficient, "coefficient", 0, "each pause to the one before")
	f.Float64Var(&p.wide, "jitter", 0, "share of a pause, 0 to 1, that may be added or taken away")
	f.StringSliceVar(&p.never, "non-retryable", nil, `error types that are final, "prefix.*" for many; empty for none`)
}

// policyFlag names the flags that change a policy, in the order of the help.
var policyFlag = []string{"max-attempts", "base-delay", "max-delay", "coefficient", "jitter", "non-retryable"}

// given reports whether anything of a policy is to be changed.
func (p *policyFlags) given(cmd *cobra.Command) bool {
	return slices.ContainsFunc(policyFlag, cmd.Flags().Changed)
}

// over gives the policy with what was given changed, if it can be meant: in JSON a policy
// is always one that can be.
func (p *policyFlags) over(cmd *cobra.Command, now retrypolicy.Policy) (retrypolicy.Policy, error) {
	if err := p.noZero(cmd); err != nil {
		return now, err
	}
	given := cmd.Flags().Changed
	if given("max-attempts") {
		now.MaxRetryAttempts = p.attempts
	}
	if given("base-delay") {
		now.BaseDelay = p.base
	}
	if given("max-delay") {
		now.MaxDelay = p.most
	}
	if given("coefficient") {
		now.Coefficient = p.coefficient
	}
	if given("jitter") {
		now.Jitter = p.wide
	}
	if given("non-retryable") {
		now.NonRetryable = p.never
	}
	return now, validPolicy(cmd, now)
}

// noZero refuses a zero that would mean the default: who writes one wants something else.
func (p *policyFlags) noZero(cmd *cobra.Command) error {
	for name, zero := range map[string]bool{
		"max-attempts": p.attempts == 0, "base-delay": p.base == 0, "max-delay": p.most == 0, "coefficient": p.coefficient == 0,
	} {
		if cmd.Flags().Changed(name) && zero {
			return shell.Usage(cmd, fmt.Errorf("--%s is zero", name))
		}
	}
	return nil
}

func validPolicy(cmd *cobra.Command, p retrypolicy.Policy) error {
	if err := p.Validate(); err != nil {
		return shell.Usage(cmd, err)
	}
	return nil
}

func policySet(sh *shell.Shell) *cobra.Command {
	var o ordered
	var p policyFlags
	var family string
	var ifVersion int64
	cmd := &cobra.Command{
		Use: "set", Short: "Change the policy of a family's new runs", Args: shell.Exactly(),
		Long: `Change the policy of a family's new runs for a tenant. What is not given stays as it
is. It is refused when somebody else changes the policy meanwhile, or when it is not
at the version given.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.check(cmd); err != nil {
				return err
			}
			if !p.given(cmd) {
				return shell.Usage(cmd, errors.New("nothing to set: give at least one of --"+strings.Join(policyFlag, ", --")))
			}
			if err := p.noZero(cmd); err != nil {
				return err
			}
			return withBackend(sh, cmd, &o.office, func(ctx context.Context, be Backend) error {
				now, err := presentPolicy(ctx, be, family)
				if err != nil {
					return err
				}
				if !cmd.Flags().Changed("if-version") {
					ifVersion = now.Version
				}
				q := postadjudication.PolicyChange{Family: family, Reason: o.reason, IfVersion: &ifVersion}
				if q.Policy, err = p.over(cmd, now.Policy); err != nil {
					return err
				}
				set, err := be.Policies.Set(ctx, q)
				if err != nil {
					return err
				}
				if sh.JSON {
					return sh.Answer(set)
				}
				return showPolicies(sh.Screen(), []postadjudication.FamilyPolicy{set})
			})
		},
	}
	o.bind(cmd)
	familyFlag(cmd.Flags(), &family)
	p.bind(cmd)
	f := cmd.Flags()
	f.Int64Var(&ifVersion, "if-version", 0, "only if this is the present version; 0: nobody has set it")
	return cmd
}

// presentPolicy is the policy that a change starts from. Of a family of tasks that this
// program does not have, nobody here knows what is configured: then it is the default.
func presentPolicy(ctx context.Context, be Backend, family string) (postadjudication.FamilyPolicy, error) {
	all, err := be.Policies.List(ctx)
	if err != nil {
		return postadjudication.FamilyPolicy{}, err
	}
	if at := slices.IndexFunc(all, func(p postadjudication.FamilyPolicy) bool { return p.Family == family }); at >= 0 {
		return all[at], nil
	}
	return postadjudication.FamilyPolicy{Policy: retrypolicy.Policy{}.Normalize()}, nil
}
