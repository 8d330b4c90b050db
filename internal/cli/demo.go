//go:build !production

package cli

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"strings"

	"github.com/spf13/cobra"

	"github.com/recourse-dev/recourse/internal/app"
	"github.com/recourse-dev/recourse/internal/cli/demo"
	"github.com/recourse-dev/recourse/internal/cli/shell"
	"github.com/recourse-dev/recourse/testdata"
)

const demoHint = "Run a demonstration, with nothing to configure:   recourse demo\n\n"

// demoCommands returns the commands that a production build does not have.
func demoCommands(sh *shell.Shell) []*cobra.Command { return []*cobra.Command{demoCommand(sh)} }

func demoCommand(sh *shell.Shell) *cobra.Command {
	var input, redisURL, listen string
	var serve bool
	cmd := &cobra.Command{
		Use: "demo", Short: "Settle a sample file of adjudications, with nothing to configure", Args: shell.Exactly(),
		Long: `Settle a sample file of adjudications, with nothing to configure.

The demonstration starts:
  - a private Postgres, or with RECOURSE_DATABASE_URL a new database on that server,
    created and migrated as the role in RECOURSE_OWNER_DATABASE_URL if that is set
  - a Redis in this process, or an empty logical database of the Redis that is named
  - an escrow service with its own ledger that refuses, hangs, drops answers, answers
    late, and panics

It submits every line of the input, waits until every run has ended, and compares the
state of Recourse with that ledger. Exit code 0 means that every invariant holds.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o := demo.Options{DatabaseURL: sh.Getenv(app.DatabaseVariable), OwnerURL: sh.Getenv(app.OwnerVariable), RedisURL: redisURL, Insecure: app.InsecureFrom(sh.Getenv), Progress: sh.Err}
			if o.RedisURL == "" {
				o.RedisURL = sh.Getenv(app.RedisVariable)
			}
			if serve {
				if host, _, err := net.SplitHostPort(listen); err == nil && host != "localhost" && !net.ParseIP(host).IsLoopback() {
					return shell.Usage(cmd, errors.New("--listen "+listen+" is not on loopback: a demonstration needs no key, so it serves this machine only"))
				}
				o.Listen = listen
			}
			from, err := openInput(sh, input)
			if err != nil {
				return err
			}
			defer from.Close() // only read from
			o.Input = from
			return play(cmd.Context(), sh, o, serve)
		},
	}
	f := cmd.Flags()
	f.StringVar(&input, "input", "", "file of JSON lines to settle, - for standard input (default: the built-in sample)")
	f.StringVar(&redisURL, "redis", "", "URL of a Redis with an empty logical database (default $"+app.RedisVariable+", else a Redis in this process)")
	f.BoolVar(&serve, "serve", false, "keep serving the HTTP API and asynqmon until Ctrl-C")
	f.StringVar(&listen, "listen", app.DefaultListen, "loopback address for --serve")
	return cmd
}

func openInput(sh *shell.Shell, name string) (io.ReadCloser, error) {
	if name == "" {
		return io.NopCloser(bytes.NewReader(testdata.Adjudications)), nil
	}
	return sh.Open(name)
}

func play(ctx context.Context, sh *shell.Shell, o demo.Options, serve bool) (err error) {
	if !sh.JSON {
		sh.Note("starting Postgres, Redis, an escrow service and workers ...")
	}
	d, err := demo.Start(ctx, o)
	defer func() { err = errors.Join(err, d.Close()) }()
	if err != nil {
		return err
	}
	report, err := d.Run(ctx)
	if err != nil {
		return err
	}
	if sh.JSON {
		err = sh.Answer(report)
	} else {
		err = report.Show(sh.Screen())
	}
	if err == nil && serve {
		if err = showNextSteps(sh, d); err == nil {
			<-ctx.Done()
		}
	}
	if err == nil && !report.OK() {
		err = errInvariantBroken
	}
	return err
}

// showNextSteps writes the URLs and commands to try on a running demonstration.
func showNextSteps(sh *shell.Shell, d *demo.Demo) error {
	database, err := d.Database()
	if err != nil {
		return err
	}
	for _, line := range nextSteps(d.URL(), database, d.Archive()) {
		sh.Note(line)
	}
	return nil
}

// nextSteps returns those URLs and commands, one a line, ready to be typed.
func nextSteps(url, database, archive string) []string {
	fill := strings.NewReplacer("{url}", url, "{database}", database, "{archive}", archive)
	lines := []string{
		"queues and tasks    {url}/asynqmon",
		"metrics             {url}/metrics",
		"HTTP API            {url}/api/v1   (name a tenant in Recourse-Tenant)",
		"dead letters        recourse dlq list --server {url} --tenant northwind-homes",
		"receipts            RECOURSE_DATABASE_URL='{database}' recourse receipts verify --tenant northwind-homes",
		"two people          without keys one person may move money here (people: 1); with keys it takes two:",
		"                    RECOURSE_DATABASE_URL='{database}' recourse keys create --tenant northwind-homes --principal user:ada --roles operator,approver --actor root --reason demo",
		"repair the escrow   curl -X POST {url}/demo/repair",
		"advance the clock   curl -X POST '{url}/demo/clock?forward=P180D'   (announces that letters expire; after P8D more they move to {archive})",
		"Ctrl-C ends it.",
	}
	for i := range lines {
		lines[i] = fill.Replace(lines[i])
	}
	return lines
}
