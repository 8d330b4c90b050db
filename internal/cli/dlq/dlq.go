package dlq

import (
	"context"
	"errors"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/recourse-dev/recourse/internal/cli/backend"
	"github.com/recourse-dev/recourse/internal/cli/shell"
	"github.com/recourse-dev/recourse/receipts"
)

// Command is the group of commands about dead letters.
func Command(sh *shell.Shell) *cobra.Command {
	cmd := &cobra.Command{
		Use: "dlq", Short: "List, retry, reconcile, hold and remove dead letters", Args: shell.UnknownCommand,
		Long: `List dead letters, retry (fork) them, record whether their money moved (reconcile), hold
and remove them. Commands work on the database, or with --server through a server.

  recourse dlq list --tenant acme
  recourse dlq list --server https://recourse.example:8321

A server needs the access key in $` + backend.KeyVariable + `. The key determines the tenant and the
actor: leave out --tenant and --actor. A server on loopback with the escrow service for
demonstrations needs no key; give it --tenant.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(list(sh), inspect(sh), analyze(sh), stats(sh), export(sh), fork(sh), retry(sh), reconcile(sh), hold(sh), release(sh), mark(sh),
		purgeCommand(sh), clearCommand(sh), bulkCommand(sh), rulesCommand(sh), retentionCommand(sh), rebuild(sh))
	cmd.SetGlobalNormalizationFunc(flagOfAlias)
	return cmd
}

// flagOfAlias returns the flag that has the meaning of a flag of another tool for dead letters.
func flagOfAlias(_ *pflag.FlagSet, name string) pflag.NormalizedName {
	switch name {
	case "job-id":
		name = "transaction"
	case "workflow-id":
		name = "family"
	}
	return pflag.NormalizedName(name)
}

// letterCommand has the flags and the run of a command on one letter.
type letterCommand struct {
	backend.Flags
	reason string
	run    receipts.RunID
}

func (l *letterCommand) bind(cmd *cobra.Command) {
	l.BindActor(cmd.Flags())
	cmd.Flags().StringVar(&l.reason, "reason", "", "reason to record (required)")
}

// check parses the run, and returns an error for missing flags.
func (l *letterCommand) check(cmd *cobra.Command, run string) (err error) {
	if l.run, err = receipts.ParseRunID(run); err != nil {
		return shell.Usage(cmd, errors.New("RUN is not a run id: "+run+shell.ValueHint(cmd, run)))
	}
	return shell.NeedReason(cmd, l.reason)
}

// withLetter is backend.With for a command on one letter.
func withLetter(sh *shell.Shell, cmd *cobra.Command, l *letterCommand, run string, work func(context.Context, backend.Backend) error) error {
	if err := l.check(cmd, run); err != nil {
		return err
	}
	return backend.With(sh, cmd, &l.Flags, func(ctx context.Context, be backend.Backend) error {
		return l.NotFound(work(ctx, be), "letter of run "+run)
	})
}
