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
	"github.com/recourse-dev/recourse/internal/door"
	"github.com/recourse-dev/recourse/internal/ojs"
	"github.com/recourse-dev/recourse/internal/openwop"
)

// serverInfo is what serve writes once it is ready.
type serverInfo struct {
	URL      string `json:"url"`
	Ready    string `json:"readyz"`
	Metrics  string `json:"metrics"`
	Asynqmon string `json:"asynqmon"`
	API      string `json:"api"`
	Jobs     string `json:"jobs,omitempty"`     // Open Job Spec
	Runs     string `json:"runs,omitempty"`     // OpenWOP
	Keys     bool   `json:"keys_needed"`        // the API and asynqmon require an access key
	Database string `json:"database,omitempty"` // URL of a private Postgres, with its password
	Tenant   string `json:"tenant,omitempty"`   // of requests that have no key and name no tenant
	Escrow   string `json:"escrow"`
	Webhooks bool   `json:"webhooks"` // events are sent to webhooks
	Embedded bool   `json:"embedded"` // the escrow service is the one for demonstrations
	// KeyLifetime is how long the escrow service recognises an operation key: a duration, "unlimited" or "none".
	KeyLifetime    string `json:"key_lifetime"`
	LookupLifetime string `json:"lookup_lifetime"`        // how long a lookup that finds nothing proves that nothing was executed
	Asynchronous   string `json:"asynchronous,omitempty"` // how long an accepted call is asked about; empty: the escrow service ends each call with its answer
}

func serveCommand(sh *shell.Shell) *cobra.Command {
	m := &app.Main{}
	var level string
	cmd := &cobra.Command{
		Use: "serve", Short: "Execute settlements and serve the HTTP API until stopped", Args: shell.Exactly(),
		Long: `Execute settlements until SIGINT or SIGTERM. Running attempts then have 10 seconds to
finish. The process also serves:

  /api/v1          the HTTP API
  /ojs             jobs for remote workers, as Open Job Spec has them
  /v1              runs, as OpenWOP has them, discovered by /.well-known/openwop
  /asynqmon        queues and tasks, read-only
  /livez, /readyz  health, without an access key
  /metrics         metrics for Prometheus

/api/v1, /ojs, /v1 and /asynqmon require an access key (recourse keys create), except on loopback
with the escrow service for demonstrations. /metrics requires a key with the role platform,
except for requests on loopback. --metrics-listen serves it at another address, without a
key.`,
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
	cmd.Flags().StringVar(&level, "log-level", "", "log level: debug, info, warn or error (default $"+app.LogLevelVariable+", else info)")
	return cmd
}

func runServer(ctx context.Context, sh *shell.Shell, m *app.Main) (err error) {
	defer func() { err = errors.Join(err, m.Close()) }()
	if err := m.Start(ctx); err != nil {
		return err
	}
	info := serverInfo{
		URL: m.URL, Ready: m.URL + "/readyz", Metrics: m.MetricsURL + "/metrics", Asynqmon: m.URL + "/asynqmon", API: m.URL + api.Prefix, Keys: m.KeysRequired, Tenant: m.Options.Tenant, Webhooks: m.WebhooksSent,
		Escrow: m.EscrowURL, Embedded: m.EmbeddedEscrow != nil, KeyLifetime: m.KeyLifetime.String(), LookupLifetime: m.LookupLifetime.String(),
	}
	if m.Options.Asynchronous > 0 {
		info.Asynchronous = m.Options.Asynchronous.String()
	}
	if !m.Options.NoOJS {
		info.Jobs = m.URL + ojs.Prefix + "/v1"
	}
	if !m.Options.NoOpenWOP {
		info.Runs = m.URL + openwop.Prefix
	}
	if m.Options.Private && m.Options.DatabaseURL == "" {
		info.Database = m.DatabaseURL
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
		escrow += " (for demonstrations: it loses all state at exit)"
	}
	rows := [][]string{{"HTTP API", info.API}}
	if info.Jobs != "" {
		rows = append(rows, []string{"jobs", info.Jobs + " (Open Job Spec)"})
	}
	if info.Runs != "" {
		rows = append(rows, []string{"runs", info.Runs + " (OpenWOP)"})
	}
	s.Table([]screen.Column{{Name: "Serving"}, {Name: "At", Wraps: true}}, append(rows, [][]string{
		{"readiness", info.Ready}, {"metrics", info.Metrics}, {"queues and tasks", info.Asynqmon}, {"escrow service", escrow}, {"operation keys", info.lifetimeText()}, {"webhooks", info.webhooksText()}, {"access", info.accessText()},
	}...))
	if info.Asynchronous != "" {
		s.Text("The escrow service may accept calls and end them later: it is asked about each one until %s after the first call.", shell.Span(info.Asynchronous))
	}
	if info.Database != "" {
		s.Text("Postgres and Redis are private, and end with this process. Commands that need Redis, too, take --server %s. Others need the URL of Postgres:", info.URL)
		s.Command(app.DatabaseVariable + "='" + info.Database + "' recourse receipts verify --tenant " + cmp.Or(info.Tenant, "TENANT"))
	}
	return s.Err()
}

// lifetimeText returns how long the escrow service recognises an operation key, and how long a
// lookup counts, for people.
func (s serverInfo) lifetimeText() string {
	lookups := "; a lookup that finds nothing counts for " + shell.Span(s.LookupLifetime)
	if s.LookupLifetime == app.Unlimited {
		lookups = "; a lookup that finds nothing always counts"
	}
	switch s.KeyLifetime {
	case app.Unlimited:
		return "recognised for ever"
	case app.None:
		if s.LookupLifetime == app.None {
			lookups = "; a lookup that finds nothing never counts"
		}
		return "not recognised: an unknown outcome is looked up, and becomes a dispute if the lookup can't decide it" + lookups
	}
	return "recognised for " + shell.Span(s.KeyLifetime) + lookups
}

// webhooksText returns whether events are sent to webhooks, for people.
func (s serverInfo) webhooksText() string {
	if s.Webhooks {
		return "sent, by one process of all"
	}
	return "not sent: " + app.WebhookKeyVariable + " is not set"
}

// accessText returns who may use the API and asynqmon, for people.
func (s serverInfo) accessText() string {
	if s.Keys {
		return "requires a key: recourse keys create"
	}
	text := "no key, as " + door.Local + ": on loopback with the escrow service for demonstrations; name the tenant in " + door.TenantHeader
	if s.Tenant != "" {
		text += ", or it is " + s.Tenant
	}
	return text
}
