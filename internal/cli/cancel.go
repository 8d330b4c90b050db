package cli

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/app"
	"github.com/recourse-dev/recourse/internal/cli/backend"
	"github.com/recourse-dev/recourse/internal/cli/shell"
	"github.com/recourse-dev/recourse/receipts"
)

func cancelCommand(sh *shell.Shell) *cobra.Command {
	var o app.Options
	var tenant, actor, reason string
	cmd := &cobra.Command{
		Use: "cancel RUN", Short: "Stop a run before it moves money", Args: shell.Exactly("RUN"),
		Long: `Stop a run before it moves money. A waiting run ends at once. A running one ends after
its current attempt, unless money may have moved. A run cannot be cancelled while it is
unknown whether money moved. Cancelling frees what the run had reserved. The reservation
of a fork stays, as its dead letter kept it, until recourse cases free frees it. The
receipt records the actor and the reason.`,
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			run, err := receipts.ParseRunID(args[0])
			switch {
			case err != nil:
				return shell.Usage(cmd, errors.New("RUN is not a run id: "+args[0]))
			case actor == "" || reason == "":
				return shell.Usage(cmd, errors.New("--actor and --reason are required"))
			}
			if err := shell.NeedTenant(cmd, tenant); err != nil {
				return err
			}
			service, err := backend.Open(cmd.Context(), sh, o)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, service.Close()) }()
			status, err := service.As(tenant, actor).Cases.Cancel(cmd.Context(), run, reason)
			if err != nil {
				return shell.NotFound(err, tenant, "run "+args[0])
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
		},
	}
	f := cmd.Flags()
	o.BindServers(f)
	shell.TenantFlag(f, &tenant)
	shell.ActorFlag(f, &actor, "name to record as the actor, such as user:ada or root (required)")
	f.StringVar(&reason, "reason", "", "reason to record (required)")
	return cmd
}
