package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/recourse-dev/recourse/internal/build"
	"github.com/recourse-dev/recourse/internal/cli/backend"
	"github.com/recourse-dev/recourse/internal/cli/dlq"
	"github.com/recourse-dev/recourse/internal/cli/policy"
	"github.com/recourse-dev/recourse/internal/cli/shell"
	"github.com/recourse-dev/recourse/internal/cli/webhook"
	"github.com/recourse-dev/recourse/postadjudication"
)

const overview = `Recourse executes adjudicated escrow decisions (release or refund). A decision that
cannot be executed becomes a dead letter, which a person handles. None is lost.

` + demoHint + `Environment variables (flags take precedence):
  RECOURSE_DATABASE_URL           Postgres URL: postgres://user@host:5432/name?sslmode=verify-full
  RECOURSE_OWNER_DATABASE_URL     Postgres URL of the role that owns the schema, for migrate and demo
  RECOURSE_REDIS_URL              Redis URL: rediss://host:6379/0
  RECOURSE_ESCROW_URL             https base URL of the escrow service
  RECOURSE_ESCROW_AUTHORIZATION   Authorization header for --escrow; for target NAME: RECOURSE_ESCROW_AUTHORIZATION_NAME, in capitals
  RECOURSE_TARGETS                more escrow services, as serve --target takes them, separated by spaces
  RECOURSE_INSECURE_SERVERS       servers beyond this machine allowed without verified TLS: postgres, redis, escrow
  RECOURSE_PROXY_FROM_ENVIRONMENT true: use HTTP_PROXY and HTTPS_PROXY (default: ignore them)
  RECOURSE_LOG_LEVEL              log level of serve: debug, info, warn or error
  RECOURSE_METRICS_LISTEN         address at which serve serves /metrics, as --metrics-listen
  RECOURSE_KEY                    access key of commands with --server
  RECOURSE_SERVER                 URL of a recourse server, as --server; --server "" uses the database
  RECOURSE_TENANT                 tenant to act on, as --tenant; not for serve and demo, nor beside --all-tenants and --platform
  RECOURSE_ACTOR                  name to record as the actor, as --actor
  RECOURSE_WEBHOOK_KEY            encrypts the secrets of webhooks: 32 random bytes as base64; after a comma the former ones

Other users of the machine can read the flags of a process. Put a URL with a password
in the environment.

Exit codes:
  0  done
  1  something failed or was refused, or an invariant is broken
  2  bad usage or bad input
  3  Postgres or Redis cannot be reached
  4  the schema is missing, older or newer (recourse migrate)
  5  a plan was stored, and another person has to run it: the output has the command`

func rootCommand(sh *shell.Shell) *cobra.Command {
	var version bool
	root := &cobra.Command{
		Use: "recourse", Short: "Execute adjudicated escrow decisions", Long: overview,
		SilenceErrors: true, SilenceUsage: true, Args: shell.UnknownCommand,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if version {
				return showVersion(sh)
			}
			return cmd.Help()
		},
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			switch cmd.Name() {
			case "serve", "demo": // they record the actors of their callers, and --tenant is theirs
				return nil
			case "submit": // it records none
			default:
				markSelfDeclared(cmd)
			}
			if err := backend.FromEnvironment(cmd, sh.Getenv); err != nil {
				return shell.Usage(cmd, err)
			}
			return nil
		},
	}
	root.Flags().BoolVar(&version, "version", false, "print the version and what it was built from")
	root.CompletionOptions.DisableDescriptions = true
	root.PersistentFlags().BoolVar(&sh.JSON, "json", false, "write the result as one JSON object to standard output")
	root.SetFlagErrorFunc(shell.FlagError)
	root.AddCommand(demoCommands(sh)...)
	root.AddCommand(serveCommand(sh), submitCommand(sh), statusCommand(sh), cancelCommand(sh), receiptsCommand(sh), dlq.Command(sh), breakerCommand(sh), policy.Command(sh), casesCommand(sh), returnedCommand(sh), peopleCommand(sh), keysCommand(sh), accessCommand(sh), eventsCommand(sh), webhook.Command(sh), migrateCommand(sh), doctorCommand(sh))
	shell.DecimalFlags(root)
	addReasons(root)
	addCompletions(sh, root)
	return root
}

// showVersion writes what this program was built from.
func showVersion(sh *shell.Shell) error {
	if sh.JSON {
		return sh.Answer(build.Read())
	}
	_, err := fmt.Fprintln(sh.Out, build.Read())
	return err
}

// markSelfDeclared makes the receipts of a command state that its actor's name was typed, not
// verified.
func markSelfDeclared(cmd *cobra.Command) {
	cmd.SetContext(postadjudication.WithCaller(cmd.Context(), postadjudication.Caller{SelfDeclared: true}))
}
