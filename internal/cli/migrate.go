package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/recourse-dev/recourse/internal/app"
	"github.com/recourse-dev/recourse/internal/cli/backend"
	"github.com/recourse-dev/recourse/internal/cli/screen"
	"github.com/recourse-dev/recourse/internal/cli/shell"
	"github.com/recourse-dev/recourse/postadjudication"
)

func migrateCommand(sh *shell.Shell) *cobra.Command {
	var o app.Options
	var appRole, submitRole string
	var noAppRole bool
	cmd := &cobra.Command{
		Use: "migrate", Short: "Migrate the schema of a database to this program's version", Args: shell.Exactly(),
		Long: `Migrate the schema of a database to this program's version.

The role that migrates owns the schema and could disable the triggers that protect the
evidence. All other commands need fewer rights: --app-role names the role that they
connect as, and grants it what they need. The database stores the name, and every later
migrate grants that role what is new. The role must exist and own nothing:

  CREATE ROLE recourse_app LOGIN PASSWORD '...'

To use several roles, make them members of the named role. A different --app-role
replaces the role, and --no-app-role revokes its grants. Both are refused while a process
is connected as the role; the error names these processes.

--submit-role names the role of a program that hands over adjudications in transactions of
its own (SubmitTx), and grants it what that needs and nothing else. There may be several;
every later migrate grants them the same. Set $` + app.OwnerVariable + ` to
the URL for the role that migrates, and $` + app.DatabaseVariable + ` to the URL for the app role.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.DatabaseURL == "" {
				o.DatabaseURL = sh.Getenv(app.OwnerVariable)
			}
			o.FromEnvironment(sh.Getenv)
			if o.DatabaseURL == "" {
				return shell.Usage(cmd, fmt.Errorf("no Postgres is named: set %s or --database", app.DatabaseVariable))
			}
			if cmd.Flags().Changed("app-role") && (appRole == "" || noAppRole) {
				return shell.Usage(cmd, errors.New("give either --app-role with the name of a role, or --no-app-role"))
			}
			if err := app.CheckDatabaseURL(o.DatabaseURL); err != nil {
				return err
			}
			if err := o.CheckTransport(); err != nil {
				return err
			}
			off, err := guardsOff(cmd.Context(), o)
			if err != nil {
				return err
			}
			done, err := postadjudication.Migration{DatabaseURL: o.DatabaseURL, AppRole: appRole, NoAppRole: noAppRole, SubmitRole: submitRole}.Run(cmd.Context())
			if err != nil {
				return err
			}
			m := migrateAnswer{done.From, done.To, off, done.AppRole, done.SubmitRoles}
			if sh.JSON {
				return sh.Answer(m)
			}
			return m.show(sh.Screen())
		},
	}
	o.BindDatabase(cmd.Flags())
	cmd.Flags().StringVar(&appRole, "app-role", "", "role that all other commands connect as; this and every later migrate grants it what they need")
	cmd.Flags().StringVar(&submitRole, "submit-role", "", "role that may submit in its own transactions, and nothing else; this and every later migrate grants it what it needs")
	cmd.Flags().BoolVar(&noAppRole, "no-app-role", false, "revoke what --app-role granted, and forget the role")
	return cmd
}

// migrateAnswer is the answer of migrate.
type migrateAnswer struct {
	From     int64    `json:"from"`
	To       int64    `json:"to"`
	Restored []string `json:"guards_restored,omitempty"` // what protects evidence, was off or changed, and is in force again
	AppRole  string   `json:"app_role,omitempty"`        // role that was granted what processes need

	SubmitRoles []string `json:"submit_roles,omitempty"` // roles that were granted what SubmitTx needs
}

func (m migrateAnswer) show(s *screen.Screen) error {
	if m.From == m.To {
		s.Text("The schema is already at version %d.", m.To)
	} else {
		s.Text("The schema was migrated from version %d to %d.", m.From, m.To)
	}
	if len(m.Restored) > 0 {
		s.Text("What protects evidence and was off or changed: %s. It is in force again. Evidence may have been changed meanwhile: keep this output, and run recourse receipts verify.",
			strings.Join(m.Restored, ", "))
	}
	if m.AppRole != "" {
		s.Text("The role %s has the rights that all other commands need, and no more.", m.AppRole)
	}
	if len(m.SubmitRoles) > 0 {
		s.Text("May submit in their own transactions, and nothing else: %s.", strings.Join(m.SubmitRoles, ", "))
	}
	return s.Err()
}

// guardsOff names what protects evidence in a current schema and is off or changed. For an older schema it
// returns none: the migration makes what is missing.
func guardsOff(ctx context.Context, o app.Options) (off []string, err error) {
	config, err := backend.AllowGuardsOff(&o)
	if err != nil {
		return nil, err
	}
	service, err := postadjudication.Open(ctx, config)
	if errors.Is(err, postadjudication.ErrSchema) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, service.Close()) }()
	return service.Health().GuardsOff(ctx)
}
