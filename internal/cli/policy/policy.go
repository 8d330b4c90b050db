package policy

import (
	"context"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/recourse-dev/recourse/internal/cli/backend"
	"github.com/recourse-dev/recourse/internal/cli/shell"
	"github.com/recourse-dev/recourse/internal/cli/view"
	"github.com/recourse-dev/recourse/postadjudication"
)

// Command is the group of commands about retry policies.
func Command(sh *shell.Shell) *cobra.Command {
	cmd := &cobra.Command{
		Use: "policy", Short: "List and change retry policies", Args: shell.UnknownCommand,
		Long: `List and change the retry policies of a tenant's families. A change applies to new runs, in
every process within a second. Existing runs keep their policy. Each change is a version
with a receipt.

--server uses a server, with the access key in $` + backend.KeyVariable + `; changes need the role admin.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(list(sh), set(sh), reset(sh), listVersions(sh))
	return cmd
}

func list(sh *shell.Shell) *cobra.Command {
	var o backend.Flags
	cmd := &cobra.Command{
		Use: "list", Short: "List the policies of a tenant's families", Args: shell.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return backend.With(sh, cmd, &o, func(ctx context.Context, be backend.Backend) error {
				found, err := be.Policies.List(ctx)
				if err != nil {
					return err
				}
				if sh.JSON {
					return sh.Answer(map[string]any{"policies": found})
				}
				return view.Policies(sh.Screen(), found)
			})
		},
	}
	o.Bind(cmd.Flags())
	return cmd
}

func listVersions(sh *shell.Shell) *cobra.Command {
	var o backend.Flags
	var family string
	var after int64
	var limit int
	cmd := &cobra.Command{
		Use: "history", Short: "List the changes of a family's policy, from the receipts", Args: shell.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return backend.With(sh, cmd, &o, func(ctx context.Context, be backend.Backend) error {
				found, err := be.Policies.History(ctx, family, after, limit)
				if err != nil {
					return err
				}
				if sh.JSON {
					return sh.Answer(map[string]any{"versions": append([]postadjudication.PolicyVersion{}, found...)})
				}
				return view.PolicyHistory(sh.Screen(), family, found)
			})
		},
	}
	f := cmd.Flags()
	o.Bind(f)
	familyFlag(f, &family)
	f.Int64Var(&after, "after", 0, "list only entries after this version")
	f.IntVar(&limit, "limit", 100, "maximum number to list")
	return cmd
}

func familyFlag(f *pflag.FlagSet, to *string) {
	f.StringVar(to, "family", postadjudication.Family, "family: settlement, or the name of a family of tasks")
}
