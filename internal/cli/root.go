package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/recourse-dev/recourse/internal/app"
	"github.com/recourse-dev/recourse/internal/build"
	"github.com/recourse-dev/recourse/internal/cli/shell"
	"github.com/recourse-dev/recourse/postadjudication"
)

const overview = `Recourse carries an adjudicated escrow decision (release or refund) to settled, or
to a person's desk, and never loses it in between.

See it work, with nothing to configure:   recourse demo

Servers are named in the environment or by flags:
  RECOURSE_DATABASE_URL           postgres://user@host:5432/name?sslmode=verify-full
  RECOURSE_REDIS_URL              rediss://host:6379/0
  RECOURSE_ESCROW_URL             https base URL of the escrow service
  RECOURSE_ESCROW_AUTHORIZATION   sent to it as the header Authorization; with _NAME, in capitals, to the target NAME
  RECOURSE_TARGETS                further escrow services, as of serve --target
  RECOURSE_INSECURE_SERVERS       postgres, redis, escrow: reached beyond this machine without verified TLS
  RECOURSE_PROXY_FROM_ENVIRONMENT true: HTTP_PROXY and HTTPS_PROXY hold; else they do not
  RECOURSE_LOG_LEVEL              of serve: debug, info, warn or error

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
		PersistentPreRun: func(cmd *cobra.Command, _ []string) { selfDeclared(cmd) },
	}
	root.Flags().BoolVar(&version, "version", false, "say which version this is, and what it was built from")
	root.CompletionOptions.DisableDefaultCmd = true
	root.PersistentFlags().BoolVar(&sh.JSON, "json", false, "answer with one JSON object on standard output")
	root.SetFlagErrorFunc(shell.FlagError)
	root.AddCommand(demoCommand(sh), serveCommand(sh), submitCommand(sh), statusCommand(sh), cancelCommand(sh), receiptsCommand(sh), dlqCommand(sh), brakeCommand(sh), policyCommand(sh), casesCommand(sh), peopleCommand(sh), keysCommand(sh), accessCommand(sh), eventsCommand(sh), migrateCommand(sh), doctorCommand(sh))
	return root
}

// version tells what this program was built from.
func showVersion(sh *shell.Shell) error {
	if sh.JSON {
		return sh.Answer(build.Read())
	}
	_, err := fmt.Fprintln(sh.Out, build.Read())
	return err
}

// open opens a service that hands over and looks.
func openService(ctx context.Context, sh *shell.Shell, o app.Options) (*postadjudication.Service, error) {
	return openAs(ctx, sh, o, (*app.Options).Service)
}

// look opens a service that only looks, also at a database whose triggers are not in force.
func openToLook(ctx context.Context, sh *shell.Shell, o app.Options) (*postadjudication.Service, error) {
	service, err := openAs(ctx, sh, o, unguarded)
	if err != nil {
		return nil, err
	}
	if err := warnOfTriggers(ctx, sh, service); err != nil {
		return nil, errors.Join(err, service.Close())
	}
	return service, nil
}

// unguarded is for what only reads: what may have been changed can be read.
func unguarded(o *app.Options) (postadjudication.Config, error) {
	config, err := o.Look()
	config.Unguarded = true
	return config, err
}

// warnOfTriggers tells in one line of triggers that are not in force. It goes to standard
// error, so that what is read stays as it is.
func warnOfTriggers(ctx context.Context, sh *shell.Shell, service *postadjudication.Service) error {
	off, err := service.TriggersOff(ctx)
	if err == nil && len(off) > 0 {
		sh.Note("warning: " + triggersWarning(off))
	}
	return err
}

// triggersWarning says what triggers that are not in force mean to who reads. The order of
// the commands matters: migrate takes away the trace that they were off.
func triggersWarning(off []string) string {
	return shell.Plural(len(off), "trigger") + " not in force (" + strings.Join(off, ", ") +
		"): evidence can be changed, and what is read here may have been. Run recourse receipts verify; run recourse migrate, which puts them in force, only after it was looked into."
}

func openAs(ctx context.Context, sh *shell.Shell, o app.Options, as func(*app.Options) (postadjudication.Config, error)) (*postadjudication.Service, error) {
	o.FromEnvironment(sh.Getenv)
	config, err := as(&o)
	if err != nil {
		return nil, err
	}
	return postadjudication.Open(ctx, config)
}
