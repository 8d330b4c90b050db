package cli

import (
	"cmp"
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/recourse-dev/recourse/internal/api"
	"github.com/recourse-dev/recourse/internal/app"
	"github.com/recourse-dev/recourse/internal/cli/screen"
	"github.com/recourse-dev/recourse/internal/cli/shell"
)

// serverInfo is what a server says of itself once it is ready.
type serverInfo struct {
	URL      string `json:"url"`
	Ready    string `json:"readyz"`
	Metrics  string `json:"metrics"`
	Asynqmon string `json:"asynqmon"`
	API      string `json:"api"`
	Keys     bool   `json:"keys_needed"` // for the API and asynqmon
	Escrow   string `json:"escrow"`
	Embedded bool   `json:"embedded"` // the escrow service is the one for demonstrations
	// KeyLifetime is how long the escrow service recognises an operation key: a span, "unlimited" or "none".
	KeyLifetime    string `json:"key_lifetime"`
	LookupLifetime string `json:"lookup_lifetime"` // how long a lookup that finds nothing proves something
}

func serveCommand(sh *shell.Shell) *cobra.Command {
	m := &app.Main{}
	var level string
	cmd := &cobra.Command{
		Use: "serve", Short: "Execute settlements until it is told to stop", Args: shell.Exactly(),
		Long: `Execute settlements until it is told to stop (SIGINT or SIGTERM). Attempts that run
then are given 10 seconds. Beside the work it serves the HTTP API at /api/v1, and
/asynqmon to look at only. Both ask for an access key (recourse keys create), unless
they are on loopback with the escrow service for demonstrations. /livez and /readyz ask
for none. /metrics asks for a key with the role platform, unless it is asked for on
loopback; --metrics-listen serves it elsewhere, without a key.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			level, err := logLevel(cmp.Or(level, sh.Getenv(app.LogLevelVariable), "info"))
			if err != nil {
				return shell.Usage(cmd, err)
			}
			m.Log = newLogger(sh.Err, level)
			if err := m.Parse(sh.Getenv); err != nil {
				return err
			}
			return runServer(cmd.Context(), sh, m)
		},
	}
	m.Options.Bind(cmd.Flags())
	cmd.Flags().StringVar(&level, "log-level", "", "debug, info, warn or error (default $"+app.LogLevelVariable+", else info)")
	return cmd
}

func runServer(ctx context.Context, sh *shell.Shell, m *app.Main) (err error) {
	defer func() { err = errors.Join(err, m.Close()) }()
	if err := m.Start(ctx); err != nil {
		return err
	}
	info := serverInfo{
		URL: m.URL, Ready: m.URL + "/readyz", Metrics: m.MetricsURL + "/metrics", Asynqmon: m.URL + "/asynqmon", API: m.URL + api.Prefix, Keys: m.KeysRequired,
		Escrow: m.EscrowURL, Embedded: m.EmbeddedEscrow != nil, KeyLifetime: m.KeyLifetime.String(), LookupLifetime: m.LookupLifetime.String(),
	}
	if err := showServerInfo(sh, info); err != nil {
		return err
	}
	return m.Run(ctx)
}

func showServerInfo(sh *shell.Shell, info serverInfo) error {
	if sh.JSON {
		return sh.Answer(info)
	}
	s := sh.Screen()
	escrow := info.Escrow
	if info.Embedded {
		escrow += " (for demonstrations: it forgets everything at the end)"
	}
	s.Table([]screen.Column{{Name: "Serving"}, {Name: "At", Wraps: true}}, [][]string{
		{"HTTP API", info.API}, {"readiness", info.Ready}, {"metrics", info.Metrics}, {"queues and tasks", info.Asynqmon}, {"escrow service", escrow}, {"operation keys", info.lifetimeText()}, {"access", info.accessText()},
	})
	return s.Err()
}

// lifetimeText says for how long the escrow service knows an operation key, and what follows.
func (s serverInfo) lifetimeText() string {
	looked := "; a lookup that finds nothing is believed for " + shell.Span(s.LookupLifetime)
	if s.LookupLifetime == app.Unlimited {
		looked = "; a lookup that finds nothing is believed without end"
	}
	switch s.KeyLifetime {
	case app.Unlimited:
		return "recognised without end"
	case app.None:
		if s.LookupLifetime == app.None {
			looked = "; a lookup that finds nothing is not believed"
		}
		return "not recognised: an unknown outcome is looked up, and is a dispute if that can't tell" + looked
	}
	return "recognised for " + shell.Span(s.KeyLifetime) + looked
}

// accessText says who may use the API and asynqmon.
func (s serverInfo) accessText() string {
	if s.Keys {
		return "with a key only: recourse keys create"
	}
	return "without a key, as " + api.Local + ": on loopback, with an escrow service for demonstrations; name the tenant in " + api.TenantHeader
}
