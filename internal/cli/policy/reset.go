package policy

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/recourse-dev/recourse/internal/cli/backend"
	"github.com/recourse-dev/recourse/internal/cli/shell"
	"github.com/recourse-dev/recourse/internal/cli/view"
	"github.com/recourse-dev/recourse/postadjudication"
)

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
