package policy

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/recourse-dev/recourse/internal/cli/backend"
	"github.com/recourse-dev/recourse/internal/cli/shell"
	"github.com/recourse-dev/recourse/internal/cli/view"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/retrypolicy"
)

func set(sh *shell.Shell) *cobra.Command {
	var o backend.ChangeFlags
	var p Flags
	var family string
	var ifVersion int64
	cmd := &cobra.Command{
		Use: "set", Short: "Change the policy of a family's new runs", Args: shell.Exactly(),
		Long: `Change the policy of a family's new runs for a tenant. What is not given stays as it
is. It is refused when somebody else changes the policy meanwhile, or when it is not
at the version given.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.Check(cmd); err != nil {
				return err
			}
			if !p.Given(cmd) {
				return shell.Usage(cmd, errors.New("nothing to set: give at least one of --"+strings.Join(flagNames, ", --")))
			}
			if err := p.rejectZeros(cmd); err != nil {
				return err
			}
			return backend.With(sh, cmd, &o.Flags, func(ctx context.Context, be backend.Backend) error {
				now, err := currentPolicy(ctx, be, family)
				if err != nil {
					return err
				}
				if !cmd.Flags().Changed("if-version") {
					ifVersion = now.Version
				}
				q := postadjudication.PolicyChange{Family: family, Reason: o.Reason, IfVersion: &ifVersion}
				if q.Policy, err = p.Apply(cmd, now.Policy); err != nil {
					return err
				}
				set, err := be.Policies.Set(ctx, q)
				if err != nil {
					return err
				}
				if sh.JSON {
					return sh.Answer(set)
				}
				return view.Policies(sh.Screen(), []postadjudication.FamilyPolicy{set})
			})
		},
	}
	o.Bind(cmd)
	familyFlag(cmd.Flags(), &family)
	p.Bind(cmd)
	f := cmd.Flags()
	f.Int64Var(&ifVersion, "if-version", 0, "only if this is the present version; 0: nobody has set it")
	return cmd
}

// currentPolicy is the policy that a change starts from. Of a family of tasks that this
// program does not have, nobody here knows what is configured: then it is the default.
func currentPolicy(ctx context.Context, be backend.Backend, family string) (postadjudication.FamilyPolicy, error) {
	all, err := be.Policies.List(ctx)
	if err != nil {
		return postadjudication.FamilyPolicy{}, err
	}
	if at := slices.IndexFunc(all, func(p postadjudication.FamilyPolicy) bool { return p.Family == family }); at >= 0 {
		return all[at], nil
	}
	return postadjudication.FamilyPolicy{Policy: retrypolicy.Policy{}.Normalize()}, nil
}

func reset(sh *shell.Shell) *cobra.Command {
	var o backend.ChangeFlags
	var family string
	var ifVersion int64
	cmd := &cobra.Command{
		Use: "reset", Short: "Let a family's new runs have the policy that is configured again", Args: shell.Exactly(),
		Long: `Let a family's new runs have the policy again that is configured, as before anybody set
one: a change like any other, with its version and its receipt.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.Check(cmd); err != nil {
				return err
			}
			q := postadjudication.PolicyReset{Family: family, Reason: o.Reason}
			if cmd.Flags().Changed("if-version") {
				q.IfVersion = &ifVersion
			}
			return backend.With(sh, cmd, &o.Flags, func(ctx context.Context, be backend.Backend) error {
				now, err := be.Policies.Reset(ctx, q)
				if err != nil {
					return err
				}
				if sh.JSON {
					return sh.Answer(now)
				}
				return view.Policies(sh.Screen(), []postadjudication.FamilyPolicy{now})
			})
		},
	}
	o.Bind(cmd)
	familyFlag(cmd.Flags(), &family)
	cmd.Flags().Int64Var(&ifVersion, "if-version", 0, "only if this is the present version")
	return cmd
}
