package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

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
		breakerChangeCommand(sh, "open", "Stop calls to an escrow service", backend.Breakers.Open),
		breakerChangeCommand(sh, "release", "Resume paused calls; over all tenants the first release probes, a second one resumes at once", backend.Breakers.Release))
	return cmd
}

// breakersAnswer is the answer of breaker list.
type breakersAnswer struct {
	Breakers []casestatus.Breaker `json:"breakers"`
}

func breakerList(sh *shell.Shell) *cobra.Command {
	var o backend.Flags
	var all bool
	cmd := &cobra.Command{
		Use: "list", Short: "List the circuit breakers of a tenant, and those over all tenants", Args: shell.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := tenantOrAll(cmd, &o, all); err != nil {
				return err
			}
			return backend.With(sh, cmd, &o, func(ctx context.Context, be backend.Backend) error {
				found, err := be.Breakers.List(ctx)
				if err != nil {
					return err
				}
				if sh.JSON {
					return sh.Answer(breakersAnswer{Breakers: found})
				}
				return view.Breakers(sh.Screen(), o.TenantLabel(), found)
			})
		},
	}
	o.Bind(cmd.Flags())
	allTenantsFlag(cmd.Flags(), &all)
	return cmd
}

func allTenantsFlag(f *pflag.FlagSet, all *bool) {
	f.BoolVar(all, "all-tenants", false, "act on the circuit breaker over all tenants, instead of --tenant; a server takes it with a key for all tenants")
}

// tenantOrAll returns an error if --tenant and --all-tenants are both given, or neither where no key of a server
// determines the tenant. With --all-tenants it sets the tenant to AllTenants.
func tenantOrAll(cmd *cobra.Command, o *backend.Flags, all bool) error {
	switch {
	case !all && o.Tenant == "" && o.Server == "":
		return shell.Usage(cmd, errors.New("--tenant is missing (or give --all-tenants)"))
	case !all:
		return nil
	case o.Tenant != "" && o.Tenant != postadjudication.AllTenants:
		return shell.Usage(cmd, errors.New("--tenant and --all-tenants exclude each other"))
	}
	o.Tenant = postadjudication.AllTenants
	return nil
}

// breakerChange is Breakers.Open or Breakers.Release.
type breakerChange func(b backend.Breakers, ctx context.Context, target, reason string) (casestatus.Breaker, error)

func breakerChangeCommand(sh *shell.Shell, verb, short string, change breakerChange) *cobra.Command {
	o := backend.Flags{NoRedis: true} // a breaker must open while Redis is down, too
	var target, reason string
	var all, yes bool
	cmd := &cobra.Command{
		Use: verb, Short: short, Args: shell.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.Server == "" && o.Actor == "" || reason == "" {
				return shell.Usage(cmd, errors.New("--actor and --reason are needed"))
			}
			if err := tenantOrAll(cmd, &o, all); err != nil {
				return err
			}
			return backend.With(sh, cmd, &o, func(ctx context.Context, be backend.Backend) error {
				if verb == "open" && !yes {
					if err := needCalled(ctx, cmd, be.Breakers, target); err != nil {
						return err
					}
				}
				b, err := change(be.Breakers, ctx, target, reason)
				if err != nil {
					return err
				}
				if sh.JSON {
					return sh.Answer(b)
				}
				return view.Breaker(sh.Screen(), b)
			})
		},
	}
	f := cmd.Flags()
	o.BindActor(f)
	allTenantsFlag(f, &all)
	f.StringVar(&target, "target", escrow.DefaultTarget, "name of the escrow service, or of a family of tasks")
	f.StringVar(&reason, "reason", "", "reason to record (required)")
	if verb == "open" {
		f.BoolVarP(&yes, "yes", "y", false, "also open it for a name that no running process calls")
	}
	return cmd
}

// needCalled returns an error for a target that no running process calls, such as a misspelt one: its
// circuit breaker would stop nothing. Nothing is known while no process runs, and of remote workers.
func needCalled(ctx context.Context, cmd *cobra.Command, breakers backend.Breakers, target string) error {
	known, err := breakers.Called(ctx)
	if err != nil || len(known) == 0 || slices.Contains(known, target) || escrow.IsRemote(target) {
		return err
	}
	return shell.Usage(cmd, fmt.Errorf("no process calls the target %s; the known ones are %s (--yes opens it nevertheless)", target, strings.Join(known, ", ")))
}

func breakerHistory(sh *shell.Shell) *cobra.Command {
	var o backend.Flags
	var p history.Page
	var target string
	var all bool
	cmd := &cobra.Command{
		Use: "history", Short: "List the state changes of a circuit breaker, from the receipts", Args: shell.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := errors.Join(tenantOrAll(cmd, &o, all), p.Check(cmd)); err != nil {
				return err
			}
			return backend.With(sh, cmd, &o, func(ctx context.Context, be backend.Backend) error {
				found, err := be.Breakers.History(ctx, target, p.After, p.Limit)
				if err != nil {
					return err
				}
				return history.Answer(sh, found, p.Limit)
			})
		},
	}
	f := cmd.Flags()
	o.Bind(f)
	allTenantsFlag(f, &all)
	f.StringVar(&target, "target", escrow.DefaultTarget, "name of the escrow service, or of a family of tasks")
	p.Bind(f)
	return cmd
}
