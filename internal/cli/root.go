package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/recourse-dev/recourse/internal/build"
	"github.com/recourse-dev/recourse/internal/cli/dlq"
	"github.com/recourse-dev/recourse/internal/cli/policy"
	"github.com/recourse-dev/recourse/internal/cli/shell"
	"github.com/recourse-dev/recourse/postadjudication"
)

const overview = `Recourse carries an adjudicated escrow decision (release or refund) to settled, or
to a person's desk, and never loses it in between.

` + demoHint + `Servers are named in the environment or by flags:
  RECOURSE_DATABASE_URL           postgres://user@host:5432/name?sslmode=verify-full
  RECOURSE_OWNER_DATABASE_URL     of migrate and demo: the same, as the role that owns the schema or is to
  RECOURSE_REDIS_URL              rediss://host:6379/0
  RECOURSE_ESCROW_URL             https base URL of the escrow service
  RECOURSE_ESCROW_AUTHORIZATION   sent to it as the header Authorization; with _NAME, in capitals, to the target NAME
  RECOURSE_TARGETS                further escrow services, as of serve --target
  RECOURSE_INSECURE_SERVERS       postgres, redis, escrow: reached beyond this machine without verified TLS
  RECOURSE_PROXY_FROM_ENVIRONMENT true: HTTP_PROXY and HTTPS_PROXY hold; else they do not
  RECOURSE_LOG_LEVEL              of serve: debug, info, warn or error
  RECOURSE_METRICS_LISTEN         of serve: where /metrics is, as --metrics-listen

Anybody on the machine sees the flags of a process: a URL with a password belongs in the
environment.

Exit codes:
  0  done
  1  something failed or was refused, or an invariant is broken
  2  bad usage or bad input
  3  Postgres or Redis cannot be reached
  4  the schema is missing, older or newer (recourse migrate)
  5  it is planned, and somebody else has to let it run: the answer has the line for it`

func rootCommand(sh *shell.Shell) *cobra.Command {
	var version bool
	root := &cobra.Command{
		Use: "recourse", Short: "Carry adjudicated escrow decisions to settled", Long: overview,
		SilenceErrors: true, SilenceUsage: true, Args: shell.UnknownCommand,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if version {
				return showVersion(sh)
			}
			return cmd.Help()
		},
		PersistentPreRun: func(cmd *cobra.Command, _ []string) { markSelfDeclared(cmd) },
	}
	root.Flags().BoolVar(&version, "version", false, "say which version this is, and what it was built from")
	root.CompletionOptions.DisableDefaultCmd = true
	root.PersistentFlags().BoolVar(&sh.JSON, "json", false, "answer with one JSON object on standard output")
	root.SetFlagErrorFunc(shell.FlagError)
	root.AddCommand(demoCommands(sh)...)
	root.AddCommand(serveCommand(sh), submitCommand(sh), statusCommand(sh), cancelCommand(sh), receiptsCommand(sh), dlq.Command(sh), breakerCommand(sh), policy.Command(sh), casesCommand(sh), peopleCommand(sh), keysCommand(sh), accessCommand(sh), eventsCommand(sh), migrateCommand(sh), doctorCommand(sh))
	return root
}

// showVersion tells what this program was built from.
func showVersion(sh *shell.Shell) error {
	if sh.JSON {
		return sh.Answer(build.Read())
	}
	_, err := fmt.Fprintln(sh.Out, build.Read())
	return err
}

// markSelfDeclared lets the receipts of a command say that its actor is whoever typed the name. A
// server's are those of its callers and of the program, and what is handed over names nobody.
func markSelfDeclared(cmd *cobra.Command) {
	switch cmd.Name() {
	case "serve", "demo", "submit":
		return
	}
	cmd.SetContext(postadjudication.WithCaller(cmd.Context(), postadjudication.Caller{SelfDeclared: true}))
}
