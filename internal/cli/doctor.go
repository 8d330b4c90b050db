package cli

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/recourse-dev/recourse/internal/app"
	"github.com/recourse-dev/recourse/internal/cli/doctor"
	"github.com/recourse-dev/recourse/internal/cli/screen"
	"github.com/recourse-dev/recourse/internal/cli/shell"
)

func doctorCommand(sh *shell.Shell) *cobra.Command {
	var o app.Options
	cmd := &cobra.Command{
		Use: "doctor", Short: "Check Postgres and Redis, and show how to fix each problem", Args: shell.Exactly(),
		Long: `Check Postgres and Redis, and show how to fix each problem. It changes nothing. If no
Redis is named it checks only Postgres. It also checks that each connection, including
those to the escrow services in the environment, stays on this machine or uses verified
TLS. Exit code 1 means that a check failed; hints do not count.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.FromEnvironment(sh.Getenv)
			config, err := o.UncheckedReadOnlyConfig()
			if err != nil {
				return err
			}
			routes, err := o.Routes()
			if err != nil {
				return err
			}
			checks := append(doctor.Examine(cmd.Context(), config.DatabaseURL, config.Redis), transportChecks(routes)...)
			healthy := doctor.Healthy(checks)
			if sh.JSON {
				err = sh.Answer(map[string]any{"ok": healthy, "checks": checks})
			} else {
				err = showChecks(sh.Screen(), checks)
			}
			if err == nil && !healthy {
				err = errors.New("a check failed")
			}
			return err
		},
	}
	o.BindServers(cmd.Flags())
	return cmd
}

// transportChecks returns a check for each connection: Wrong if others can read it or answer on
// it, Hint if the operator has declared such a connection trusted.
func transportChecks(routes []app.Route) []doctor.Check {
	out := make([]doctor.Check, len(routes))
	for i, r := range routes {
		out[i] = doctor.Check{Name: "TLS of " + r.Name, Verdict: doctor.Fine, Result: r.Protection.String()}
		if !r.Protection.Safe() {
			out[i].Verdict, out[i].Remedy = doctor.Wrong, r.Remedy
		}
		if !r.Protection.Safe() && r.Trusted {
			out[i].Verdict, out[i].Result = doctor.Hint, out[i].Result+"; allowed by --insecure-servers"
		}
	}
	return out
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
		if check.Remedy != "" {
			result += ". Fix: " + check.Remedy
		}
		rows[i] = []string{verdict, check.Name, result}
	}
	s.Table([]screen.Column{{Name: ""}, {Name: "Check"}, {Name: "Result", Wraps: true}}, rows)
	return s.Err()
}
