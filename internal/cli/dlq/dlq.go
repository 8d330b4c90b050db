package dlq

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/recourse-dev/recourse/internal/cli/backend"
	"github.com/recourse-dev/recourse/internal/cli/shell"
	"github.com/recourse-dev/recourse/receipts"
)

// Command is the group of commands about dead letters.
func Command(sh *shell.Shell) *cobra.Command {
	cmd := &cobra.Command{
		Use: "dlq", Short: "Look at dead letters, try them again, keep or remove them, record what became of their money", Args: shell.UnknownCommand,
		Long: `Look at dead letters, try them again, keep or remove them, and record what became of
their money: on the database, or by asking a server.

  recourse dlq list --tenant acme
  recourse dlq list --server https://recourse.example:8321

A server is shown the access key in $` + backend.KeyVariable + `: it says whose letters are meant and in
whose name something is done, so that --tenant and --actor are left out. A server on
loopback with the escrow service for demonstrations asks for no key, but for --tenant.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(list(sh), inspect(sh), analyze(sh), stats(sh), export(sh), fork(sh), retry(sh), reconcile(sh), hold(sh), release(sh), mark(sh),
		purgeCommand(sh), clearCommand(sh), bulk(sh), rules(sh), retention(sh), rebuild(sh))
	return cmd
}

// letterCommand are the flags of every action on one letter.
type letterCommand struct {
	backend.Flags
	reason string
	run    receipts.RunID
}

func (l *letterCommand) bind(cmd *cobra.Command) {
	l.BindActor(cmd.Flags())
	cmd.Flags().StringVar(&l.reason, "reason", "", "why (required)")
}

// check reads the run, and refuses flags that are missing.
func (l *letterCommand) check(cmd *cobra.Command, run string) (err error) {
	if l.run, err = receipts.ParseRunID(run); err != nil {
		return shell.Usage(cmd, errors.New("RUN is no run id: "+run))
	}
	return shell.NeedReason(cmd, l.reason)
}

// withLetter is backend.With for an action on one letter.
func withLetter(sh *shell.Shell, cmd *cobra.Command, l *letterCommand, run string, work func(context.Context, backend.Backend) error) error {
	if err := l.check(cmd, run); err != nil {
		return err
	}
	return backend.With(sh, cmd, &l.Flags, func(ctx context.Context, be backend.Backend) error {
		return l.NotFound(work(ctx, be), "letter of run "+run)
	})
}
