package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/recourse-dev/recourse/internal/app"
	"github.com/recourse-dev/recourse/internal/cli/backend"
	"github.com/recourse-dev/recourse/internal/cli/history"
	"github.com/recourse-dev/recourse/internal/cli/shell"
	"github.com/recourse-dev/recourse/internal/cli/view"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/casestatus"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
)

func breakerCommand(sh *shell.Shell) *cobra.Command {
	cmd := &cobra.Command{
		Use: "breaker", Short: "Stop and resume calls to an escrow service", Args: shell.UnknownCommand,
		Long: `Stop and resume calls to an escrow service, for one tenant or for all tenants. While
the circuit breaker is open, submissions are accepted and their runs are paused: nothing
is lost, and no attempt is spent. The circuit breaker over all tenants opens by itself
when the service fails or hangs, probes it with new cases, and closes once they are
answered. A circuit breaker that a person opened stays open until a person releases it.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(breakerList(sh), breakerHistory(sh),
		breakerChangeCommand(sh, "open", "Stop calls to an escrow service", postadjudication.TenantBreakers.Open),
		breakerChangeCommand(sh, "release", "Resume paused calls; over all tenants the first release probes, a second one resumes at once", postadjudication.TenantBreakers.Release))
	return cmd
}

// breakersAnswer is the answer of breaker list.
type breakersAnswer struct {
	Breakers []casestatus.Breaker `json:"breakers"`
}

func breakerList(sh *shell.Shell) *cobra.Command {
	var o app.Options
	var tenant string
	var all bool
	cmd := &cobra.Command{
		Use: "list", Short: "List the circuit breakers of a tenant, and those over all tenants", Args: shell.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if err := tenantOrAll(cmd, &tenant, all); err != nil {
				return err
			}
			service, err := backend.OpenReadOnly(cmd.Context(), sh, o)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, service.Close()) }()
			found, err := service.As(tenant, "").Breakers.List(cmd.Context())
			if err != nil {
				return err
			}
			if sh.JSON {
				return sh.Answer(breakersAnswer{Breakers: found})
			}
			return view.Breakers(sh.Screen(), tenant, found)
		},
	}
	o.BindReadOnly(cmd.Flags())
	tenantOrAllFlags(cmd.Flags(), &tenant, &all)
	return cmd
}

func tenantOrAllFlags(f *pflag.FlagSet, tenant *string, all *bool) {
	f.StringVar(tenant, "tenant", "", "tenant to act on (required without --all-tenants)")
	f.BoolVar(all, "all-tenants", false, "act on the circuit breaker over all tenants, instead of --tenant")
}

// tenantOrAll returns an error unless exactly one of --tenant and --all-tenants is given. With
// --all-tenants it sets tenant to AllTenants.
func tenantOrAll(cmd *cobra.Command, tenant *string, all bool) error {
	if !all && *tenant == "" {
		return shell.Usage(cmd, errors.New("--tenant is missing (or give --all-tenants)"))
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

// breakerChange is TenantBreakers.Open or TenantBreakers.Release.
type breakerChange func(b postadjudication.TenantBreakers, ctx context.Context, target, reason string) (casestatus.Breaker, error)

func breakerChangeCommand(sh *shell.Shell, verb, short string, change breakerChange) *cobra.Command {
	var o app.Options
	var tenant, target, actor, reason string
	var all, yes bool
	cmd := &cobra.Command{
		Use: verb, Short: short, Args: shell.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if actor == "" || reason == "" {
				return shell.Usage(cmd, errors.New("--actor and --reason are needed"))
			}
			if err := tenantOrAll(cmd, &tenant, all); err != nil {
				return err
			}
			service, err := backend.OpenWith(cmd.Context(), sh, o, (*app.Options).ReadOnlyConfig) // a breaker must open while Redis is down, too
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, service.Close()) }()
			breakers := service.As(tenant, actor).Breakers
			if verb == "open" && !yes {
				if err := needCalled(cmd, breakers, target); err != nil {
					return err
				}
			}
			b, err := change(breakers, cmd.Context(), target, reason)
			if err != nil {
				return err
			}
			if sh.JSON {
				return sh.Answer(b)
			}
			return view.Breaker(sh.Screen(), b)
		},
	}
	f := cmd.Flags()
	o.BindReadOnly(f)
	tenantOrAllFlags(f, &tenant, &all)
	f.StringVar(&target, "target", escrow.DefaultTarget, "name of the escrow service, or of a family of tasks")
	shell.ActorFlag(f, &actor, "name to record as the actor, such as user:ada or root (required)")
	f.StringVar(&reason, "reason", "", "reason to record (required)")
	if verb == "open" {
		f.BoolVarP(&yes, "yes", "y", false, "also open it for a name that no running process calls")
	}
	return cmd
}

// needCalled returns an error for a target that no running process calls, such as a misspelt one: its
// circuit breaker would stop nothing. Nothing is known while no process runs, and of remote workers.
func needCalled(cmd *cobra.Command, breakers postadjudication.TenantBreakers, target string) error {
	known, err := breakers.Called(cmd.Context())
	if err != nil || len(known) == 0 || slices.Contains(known, target) || escrow.IsRemote(target) {
		return err
	}
	return shell.Usage(cmd, fmt.Errorf("no process calls the target %s; the known ones are %s (--yes opens it nevertheless)", target, strings.Join(known, ", ")))
}

func breakerHistory(sh *shell.Shell) *cobra.Command {
	var o app.Options
	var p history.Page
	var tenant, target string
	var all bool
	cmd := &cobra.Command{
		Use: "history", Short: "List the state changes of a circuit breaker, from the receipts", Args: shell.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if err := errors.Join(tenantOrAll(cmd, &tenant, all), p.Check(cmd)); err != nil {
				return err
			}
			service, err := backend.OpenReadOnly(cmd.Context(), sh, o)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, service.Close()) }()
			found, err := service.As(tenant, "").Breakers.History(cmd.Context(), target, p.After, p.Limit)
			if err != nil {
				return err
			}
			return history.Answer(sh, found, p.Limit)
		},
	}
	f := cmd.Flags()
	o.BindReadOnly(f)
	tenantOrAllFlags(f, &tenant, &all)
	f.StringVar(&target, "target", escrow.DefaultTarget, "name of the escrow service, or of a family of tasks")
	p.Bind(f)
	return cmd
}
