package cli

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/recourse-dev/recourse/internal/app"
	"github.com/recourse-dev/recourse/internal/cli/doctor"
	"github.com/recourse-dev/recourse/internal/cli/screen"
)

func (c *command) doctor() *cobra.Command {
	var o app.Options
	cmd := &cobra.Command{
		Use: "doctor", Short: "Check Postgres and Redis, and say how to cure what is wrong", Args: exactly(),
		Long: `Check Postgres and Redis, and say how to cure what is wrong. It reads only. Without
a Redis it checks Postgres alone, and says so. Exit code 1 when something is wrong; hints
don't count.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.FromEnvironment(c.Getenv)
			config, err := o.Look()
			if err != nil {
				return err
			}
			checks := doctor.Examine(cmd.Context(), config.DatabaseURL, config.Redis)
			healthy := doctor.Healthy(checks)
			if c.json {
				err = c.answer(map[string]any{"ok": healthy, "checks": checks})
			} else {
				err = showChecks(screen.New(c.Out), checks)
			}
			if err == nil && !healthy {
				err = errors.New("something is wrong")
			}
			return err
		},
	}
	o.BindServers(cmd.Flags())
	return cmd
}

func showChecks(s *screen.Screen, checks []doctor.Check) error {
	rows := make([][]string, len(checks))
	for i, check := range checks {
		verdict := string(check.Verdict)
		switch check.Verdict {
		case doctor.Fine:
			verdict = s.Good(verdict)
		case doctor.Wrong:
			verdict = s.Bad(verdict)
		}
		result := check.Result
		if check.Cure != "" {
			result += ". Cure: " + check.Cure
		}
		rows[i] = []string{verdict, check.Name, result}
	}
	s.Table([]screen.Column{{Name: ""}, {Name: "Check"}, {Name: "Result", Wraps: true}}, rows)
	return s.Err()
}
