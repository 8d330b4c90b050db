package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/recourse-dev/recourse/internal/app"
	"github.com/recourse-dev/recourse/internal/cli/screen"
	"github.com/recourse-dev/recourse/postadjudication"
)

func (c *command) migrate() *cobra.Command {
	var o app.Options
	cmd := &cobra.Command{
		Use: "migrate", Short: "Bring the schema of a database up to this program's version", Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.FromEnvironment(c.Getenv)
			if o.DatabaseURL == "" {
				return usage(cmd, fmt.Errorf("no Postgres is named: set %s or --database", app.DatabaseVariable))
			}
			if err := app.CheckDatabaseURL(o.DatabaseURL); err != nil {
				return err
			}
			from, to, err := postadjudication.Migrate(cmd.Context(), o.DatabaseURL)
			if err != nil {
				return err
			}
			if c.json {
				return c.answer(map[string]int64{"from": from, "to": to})
			}
			s := screen.New(c.Out)
			if from == to {
				s.Text("The schema is at version %d already.", to)
			} else {
				s.Text("The schema went from version %d to %d.", from, to)
			}
			return s.Err()
		},
	}
	o.BindDatabase(cmd.Flags())
	return cmd
}
