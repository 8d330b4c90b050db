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
	var appRole string
	var noAppRole bool
	cmd := &cobra.Command{
		Use: "migrate", Short: "Bring the schema of a database up to this program's version", Args: shell.Exactly(),
		Long: `Bring the schema of a database up to this program's version.

The role that migrates owns the schema, and could turn off what keeps evidence as it
is. All other commands need less: --app-role names the role that they connect as, and
grants it what they need. The database remembers it, and every later migrate grants it
what is new. The role has to be there, and owns nothing:

  CREATE ROLE recourse_app LOGIN PASSWORD '...'

Several roles are members of one that is named. Another role takes its place, and
--no-app-role its grants, once no process works as it: until then migrate refuses,
and says which ones do. $` + app.OwnerVariable + ` names the
database for the role that migrates, where $` + app.DatabaseVariable + ` does so for the other.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.DatabaseURL == "" {
				o.DatabaseURL = sh.Getenv(app.OwnerVariable)
			}
			o.FromEnvironment(sh.Getenv)
			if o.DatabaseURL == "" {
				return shell.Usage(cmd, fmt.Errorf("no Postgres is named: set %s or --database", app.DatabaseVariable))
			}
			if cmd.Flags().Changed("app-role") && (appRole == "" || noAppRole) {
				return shell.Usage(cmd, errors.New("--app-role names a role, or --no-app-role says that there is none"))
			}
			if err := app.CheckDatabaseURL(o.DatabaseURL); err != nil {
				return err
			}
			if err := o.CheckTransport(); err != nil {
				return err
			}
			off, err := disabledTriggers(cmd.Context(), o)
			if err != nil {
				return err
			}
			done, err := postadjudication.Migration{DatabaseURL: o.DatabaseURL, AppRole: appRole, NoAppRole: noAppRole}.Run(cmd.Context())
			if err != nil {
				return err
			}
			m := migrateAnswer{done.From, done.To, off, done.AppRole}
			if sh.JSON {
				return sh.Answer(m)
			}
			return m.show(sh.Screen())
		},
	}
	o.BindDatabase(cmd.Flags())
	cmd.Flags().StringVar(&appRole, "app-role", "", "role that all other commands connect as: grants it what they need, now and by every later migrate")
	cmd.Flags().BoolVar(&noAppRole, "no-app-role", false, "take back what --app-role granted, and forget the role")
	return cmd
}

// migrateAnswer is the answer of migrate.
type migrateAnswer struct {
	From     int64    `json:"from"`
	To       int64    `json:"to"`
	Restored []string `json:"triggers_restored,omitempty"` // were not in force, and are again
	AppRole  string   `json:"app_role,omitempty"`          // has what processes need
}

func (m migrateAnswer) show(s *screen.Screen) error {
	if m.From == m.To {
		s.Text("The schema is at version %d already.", m.To)
	} else {
		s.Text("The schema went from version %d to %d.", m.From, m.To)
	}
	if len(m.Restored) > 0 {
		s.Text("Not in force before, and in force again: %s. Evidence may have been changed while they were off: keep this answer, and run recourse receipts verify.",
			strings.Join(m.Restored, ", "))
	}
	if m.AppRole != "" {
		s.Text("The role %s has what all other commands need, and no more.", m.AppRole)
	}
	return s.Err()
}

// disabledTriggers names the triggers of a current schema that are not in force. There are none of
// an older schema, whose migration makes those that it lacks.
func disabledTriggers(ctx context.Context, o app.Options) (off []string, err error) {
	config, err := backend.AllowTriggersOff(&o)
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
	return service.TriggersOff(ctx)
}
