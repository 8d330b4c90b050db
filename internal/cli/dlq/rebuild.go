package dlq

import (
	"context"
	"errors"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/recourse-dev/recourse/internal/app"
	"github.com/recourse-dev/recourse/internal/cli/backend"
	"github.com/recourse-dev/recourse/internal/cli/screen"
	"github.com/recourse-dev/recourse/internal/cli/shell"
	"github.com/recourse-dev/recourse/postadjudication"
)

// rebuilt is the answer of dlq rebuild.
type rebuilt struct {
	Tenants []rebuiltTenant `json:"tenants"`
}

type rebuiltTenant struct {
	Tenant string `json:"tenant"`
	postadjudication.Rebuilt
}

func rebuild(sh *shell.Shell) *cobra.Command {
	var o app.Options
	var tenant, actor, reason string
	var all bool
	cmd := &cobra.Command{
		Use: "rebuild", Short: "Repair missing or wrong rows in the list of dead letters", Args: shell.Exactly(),
		Long: `Rebuild the list of dead letters from the runs and cases. Only rows that differ are
written, and a receipt records how many. It is safe while workers run, and can be repeated
after an interruption. The command works on the database only; it has no --server.`,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			switch {
			case tenant == "" && !all:
				return shell.Usage(cmd, errors.New("--tenant is missing (or give --all-tenants)"))
			case tenant != "" && all:
				return shell.Usage(cmd, errors.New("--tenant and --all-tenants exclude each other"))
			case actor == "" || reason == "":
				return shell.Usage(cmd, errors.New("--actor and --reason are needed"))
			}
			service, err := backend.OpenWith(cmd.Context(), sh, o, (*app.Options).ReadOnlyConfig) // rebuild writes, so disabled triggers must be an error
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, service.Close()) }()
			tenants := []string{tenant}
			if all {
				if tenants, err = service.Tenants(cmd.Context()); err != nil {
					return err
				}
			}
			return rebuildTenants(cmd.Context(), sh, service, tenants, actor, reason)
		},
	}
	f := cmd.Flags()
	o.BindReadOnly(f)
	f.StringVar(&tenant, "tenant", "", "tenant to act on (required without --all-tenants)")
	f.BoolVar(&all, "all-tenants", false, "all tenants, instead of --tenant")
	shell.ActorFlag(f, &actor, "name to record as the actor, such as user:ada or root (required)")
	f.StringVar(&reason, "reason", "", "reason to record (required)")
	return cmd
}

func rebuildTenants(ctx context.Context, sh *shell.Shell, service *postadjudication.Service, tenants []string, actor, reason string) error {
	out := rebuilt{Tenants: []rebuiltTenant{}}
	for _, tenant := range tenants {
		bar := &screen.Progress{}
		if !sh.JSON {
			bar = screen.NewProgress(sh.Err, "dead letters of "+tenant, -1)
		}
		var shown error
		done, err := service.As(tenant, actor).DeadLetters.Rebuild(ctx, reason, func(r postadjudication.Rebuilt) {
			if err := bar.At(r.Scanned); shown == nil {
				shown = err
			}
		})
		if err := errors.Join(err, shown, bar.End()); err != nil {
			return err
		}
		out.Tenants = append(out.Tenants, rebuiltTenant{tenant, done})
	}
	if sh.JSON {
		return sh.Answer(out)
	}
	s := sh.Screen()
	var rows [][]string
	for _, r := range out.Tenants {
		rows = append(rows, []string{r.Tenant, strconv.Itoa(r.Inserted), strconv.Itoa(r.Updated), strconv.Itoa(r.Removed), strconv.Itoa(r.FacetGroups)})
	}
	s.Table([]screen.Column{{Name: "Tenant"}, {Name: "Inserted", Right: true}, {Name: "Updated", Right: true}, {Name: "Removed", Right: true}, {Name: "Counts repaired", Right: true}}, rows)
	return s.Err()
}
