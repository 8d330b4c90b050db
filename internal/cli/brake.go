package cli

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/app"
	"github.com/recourse-dev/recourse/internal/cli/screen"
	"github.com/recourse-dev/recourse/internal/cli/shell"
	"github.com/recourse-dev/recourse/postadjudication"
)

func brakeCommand(sh *shell.Shell) *cobra.Command {
	cmd := &cobra.Command{
		Use: "brake", Short: "Stop and resume the calls of an escrow service", Args: shell.UnknownCommand,
		Long: `Stop and resume the calls of an escrow service, for a tenant or for all of them.
While its circuit breaker is open, what is handed over is accepted and paused: nothing
is lost and nothing is spent. The one over all tenants opens by itself when the service
fails or hangs, probes it with new cases, and closes once they are answered. One that a
person opened stays open until a person releases it.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(brakeList(sh), brakeHistory(sh),
		brakeOrder(sh, "pull", "Stop calling an escrow service", (*postadjudication.Service).PullBrake),
		brakeOrder(sh, "release", "Let the paused work of an escrow service go; over all tenants by probes first, twice: at once", (*postadjudication.Service).ReleaseBrake))
	return cmd
}

// brakesListed is the answer of brake list.
type brakesListed struct {
	Brakes []postadjudication.Brake `json:"brakes"`
}

func brakeList(sh *shell.Shell) *cobra.Command {
	var o app.Options
	var tenant string
	var all bool
	cmd := &cobra.Command{
		Use: "list", Short: "List the circuit breakers of a tenant, and those over all tenants", Args: shell.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if err := tenantOrAll(cmd, &tenant, all); err != nil {
				return err
			}
			service, err := openToLook(cmd.Context(), sh, o)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, service.Close()) }()
			found, err := service.Brakes(cmd.Context(), tenant)
			if err != nil {
				return err
			}
			if sh.JSON {
				return sh.Answer(brakesListed{Brakes: found})
			}
			return showBrakes(sh.Screen(), tenant, found)
		},
	}
	o.BindLook(cmd.Flags())
	tenantOrAllFlags(cmd.Flags(), &tenant, &all)
	return cmd
}

func tenantOrAllFlags(f *pflag.FlagSet, tenant *string, all *bool) {
	f.StringVar(tenant, "tenant", "", "name of the tenant (or --all-tenants)")
	f.BoolVar(all, "all-tenants", false, "the circuit breaker over all tenants, instead of --tenant")
}

// tenantOrAll wants either a tenant or all of them.
func tenantOrAll(cmd *cobra.Command, tenant *string, all bool) error {
	if !all && *tenant == "" {
		return shell.Usage(cmd, errors.New("--tenant is missing (or say --all-tenants)"))
	}
	if !all {
		return nil
	}
	if *tenant != "" && *tenant != postadjudication.AllTenants {
		return shell.Usage(cmd, errors.New("--tenant and --all-tenants exclude each other"))
	}
	*tenant = postadjudication.AllTenants
	return nil
}

func showBrakes(s *screen.Screen, tenant string, brakes []postadjudication.Brake) error {
	if len(brakes) == 0 {
		s.Text("No circuit breaker of %s was ever open.", whose(tenant))
		return s.Err()
	}
	rows := make([][]string, len(brakes))
	for i, b := range brakes {
		rows[i] = []string{b.Target, b.Family, whose(b.Tenant), stateOf(b), b.At.Format(time.RFC3339), b.Actor, b.Reason}
	}
	s.Table([]screen.Column{{Name: "Target"}, {Name: "Family", Spare: true}, {Name: "For"}, {Name: "Circuit breaker"}, {Name: "Since"}, {Name: "By"}, {Name: "Why", Wraps: true}}, rows)
	return s.Err()
}

func stateOf(b postadjudication.Brake) string {
	state := strings.ReplaceAll(string(b.State), "_", "-")
	if b.ByHand {
		return state + " by hand"
	}
	return state
}

func whose(tenant string) string {
	if tenant == postadjudication.AllTenants {
		return "all tenants"
	}
	return tenant
}

// brakeMove is PullBrake or ReleaseBrake.
type brakeMove func(s *postadjudication.Service, ctx context.Context, tenant, target, actor, reason string) (postadjudication.Brake, error)

func brakeOrder(sh *shell.Shell, verb, short string, move brakeMove) *cobra.Command {
	var o app.Options
	var tenant, target, actor, reason string
	var all bool
	cmd := &cobra.Command{
		Use: verb, Short: short, Args: shell.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if actor == "" || reason == "" {
				return shell.Usage(cmd, errors.New("--actor and --reason are needed"))
			}
			if err := tenantOrAll(cmd, &tenant, all); err != nil {
				return err
			}
			service, err := openService(cmd.Context(), sh, o)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, service.Close()) }()
			b, err := move(service, cmd.Context(), tenant, target, actor, reason)
			if err != nil {
				return err
			}
			if sh.JSON {
				return sh.Answer(b)
			}
			return showBrake(sh.Screen(), b)
		},
	}
	f := cmd.Flags()
	o.BindServers(f)
	tenantOrAllFlags(f, &tenant, &all)
	f.StringVar(&target, "target", postadjudication.DefaultTarget, "the escrow service, or a family of tasks by its name")
	shell.ActorFlag(f, &actor, "who asks, such as user:ada or root (required)")
	f.StringVar(&reason, "reason", "", "why (required)")
	return cmd
}

func showBrake(s *screen.Screen, b postadjudication.Brake) error {
	switch b.State {
	case background.BreakerOpen:
		s.Text("The circuit breaker of %s for %s is open, by %s: nothing is called until it is released.", b.Target, whose(b.Tenant), b.Actor)
	case background.BreakerHalfOpen:
		s.Text("The circuit breaker of %s for %s is half-open: new cases probe, and it closes once they are answered.", b.Target, whose(b.Tenant))
	default:
		s.Text("The circuit breaker of %s for %s is closed: what was paused goes on.", b.Target, whose(b.Tenant))
	}
	return s.Err()
}
