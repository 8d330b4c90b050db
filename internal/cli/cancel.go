package cli

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/app"
	"github.com/recourse-dev/recourse/internal/cli/screen"
	"github.com/recourse-dev/recourse/receipts"
)

func (c *command) cancel() *cobra.Command {
	var o app.Options
	var tenant, actor, reason string
	cmd := &cobra.Command{
		Use: "cancel RUN", Short: "Stop a run before it moves money", Args: exactly("RUN"),
		Long: `Stop a run before it moves money. One that waits ends now; one that runs is asked,
and ends when its attempt is over, unless money may have moved. A run of which it
is not known whether money moved can't be cancelled. What the run had reserved is freed;
of a fork it stays reserved, as its dead letter kept it, until it is freed by recourse
cases free. Who asks and why are kept in the receipt.`,
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			run, err := receipts.ParseRunID(args[0])
			switch {
			case err != nil:
				return usage(cmd, errors.New("RUN is no run id: "+args[0]))
			case actor == "" || reason == "":
				return usage(cmd, errors.New("--actor and --reason are needed"))
			}
			if err := needTenant(cmd, tenant); err != nil {
				return err
			}
			service, err := c.open(cmd.Context(), o)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, service.Close()) }()
			status, err := service.Cancel(cmd.Context(), tenant, run, actor, reason)
			if err != nil {
				return missing(err, tenant, "run "+args[0])
			}
			if c.json {
				return c.answer(status)
			}
			s := screen.New(c.Out)
			if status.State == background.Cancelled {
				s.Text("Run %s is cancelled.", run)
			} else {
				s.Text("Run %s is asked to stop; it is %s now, and ends with its attempt unless money may have moved.", run, status.State)
			}
			return s.Err()
		},
	}
	f := cmd.Flags()
	o.BindServers(f)
	tenantFlag(f, &tenant)
	f.Var((*actorFlag)(&actor), "actor", "who asks, such as user:ada or root (required)")
	f.StringVar(&reason, "reason", "", "why (required)")
	return cmd
}
