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
		Use: "set", Short: "Change the policy for new runs of a family", Args: shell.Exactly(),
		Long: `Change the policy for new runs of a family of a tenant. Values without a flag stay
unchanged. The change fails if another change comes first, or if the policy is not at
--if-version.`,
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
	f.Int64Var(&ifVersion, "if-version", 0, "change only if this is the present version (0: never set)")
	return cmd
}

// currentPolicy returns the policy that a change starts from. For a family of tasks that this
// program does not have, the configured policy is unknown here: then it returns the default.
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
		Use: "reset", Short: "Reset the policy for new runs of a family to the configured one", Args: shell.Exactly(),
		Long: `Reset the policy for new runs of a family to the configured one. The reset is a change
with its own version and receipt.`,
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
	cmd.Flags().Int64Var(&ifVersion, "if-version", 0, "reset only if this is the present version")
	return cmd
}
