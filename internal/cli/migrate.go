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
	cmd := &cobra.Command{
		Use: "migrate", Short: "Bring the schema of a database up to this program's version", Args: shell.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.FromEnvironment(sh.Getenv)
			if o.DatabaseURL == "" {
				return shell.Usage(cmd, fmt.Errorf("no Postgres is named: set %s or --database", app.DatabaseVariable))
			}
			if err := app.CheckDatabaseURL(o.DatabaseURL); err != nil {
				return err
			}
			if err := o.CheckTransport(); err != nil {
				return err
			}
			m := migrated{}
			var err error
			if m.Restored, err = triggersOff(cmd.Context(), o); err != nil {
				return err
			}
			if m.From, m.To, err = postadjudication.Migrate(cmd.Context(), o.DatabaseURL); err != nil {
				return err
			}
			if sh.JSON {
				return sh.Answer(m)
			}
			return m.show(sh.Screen())
		},
	}
	o.BindDatabase(cmd.Flags())
	return cmd
}

// migrated is the answer of migrate.
type migrated struct {
	From     int64    `json:"from"`
	To       int64    `json:"to"`
	Restored []string `json:"triggers_restored,omitempty"` // were not in force, and are again
}

func (m migrated) show(s *screen.Screen) error {
	if m.From == m.To {
		s.Text("The schema is at version %d already.", m.To)
	} else {
		s.Text("The schema went from version %d to %d.", m.From, m.To)
	}
	if len(m.Restored) > 0 {
		s.Text("Not in force before, and in force again: %s. Evidence may have been changed while they were off: keep this answer, and run recourse receipts verify.",
			strings.Join(m.Restored, ", "))
	}
	return s.Err()
}

// triggersOff names the triggers of a current schema that are not in force. There are none of
// an older schema, whose migration makes those that it lacks.
func triggersOff(ctx context.Context, o app.Options) (off []string, err error) {
	config, err := backend.Unguarded(&o)
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
