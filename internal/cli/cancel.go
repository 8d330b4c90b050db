package cli

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/cli/backend"
	"github.com/recourse-dev/recourse/internal/cli/shell"
	"github.com/recourse-dev/recourse/receipts"
)

func cancelCommand(sh *shell.Shell) *cobra.Command {
	var o backend.Flags
	var reason string
	cmd := &cobra.Command{
		Use: "cancel RUN", Short: "Stop a run before it moves money", Args: shell.Exactly("RUN"),
		Long: `Stop a run before it moves money. A waiting run ends at once. A running one ends after
its current attempt, unless money may have moved. A run cannot be cancelled while it is
unknown whether money moved. Cancelling frees what the run had reserved. The reservation
of a fork stays, as its dead letter kept it, until recourse cases free frees it. The
receipt records the actor and the reason.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			run, err := receipts.ParseRunID(args[0])
			switch {
			case err != nil:
				return shell.Usage(cmd, errors.New("RUN is not a run id: "+args[0]))
			case o.Server == "" && o.Actor == "" || reason == "":
				return shell.Usage(cmd, errors.New("--actor and --reason are required"))
			}
			return backend.With(sh, cmd, &o, func(ctx context.Context, be backend.Backend) error {
				status, err := be.Cases.Cancel(ctx, run, reason)
				if err != nil {
					return o.NotFound(err, "run "+args[0])
				}
				if sh.JSON {
					return sh.Answer(status)
				}
				s := sh.Screen()
				if status.State == background.Cancelled {
					s.Text("Run %s is cancelled.", run)
				} else {
					s.Text("Run %s is %s and will stop after its current attempt, unless money may have moved.", run, status.State)
				}
				return s.Err()
			})
		},
	}
	f := cmd.Flags()
	o.BindActor(f)
	f.StringVar(&reason, "reason", "", "reason to record (required)")
	return cmd
}
