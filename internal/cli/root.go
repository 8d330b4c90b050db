package cli

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/recourse-dev/recourse/internal/app"
	"github.com/recourse-dev/recourse/internal/build"
	"github.com/recourse-dev/recourse/postadjudication"
)

const overview = `Recourse carries an adjudicated escrow decision (release or refund) to settled, or
to a person's desk, and never loses it in between.

` + demoLine + `Servers are named in the environment or by flags:
  RECOURSE_DATABASE_URL           postgres://user@host:5432/name?sslmode=verify-full
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

func (c *command) root() *cobra.Command {
	var version bool
	root := &cobra.Command{
		Use: "recourse", Short: "Carry adjudicated escrow decisions to settled", Long: overview,
		SilenceErrors: true, SilenceUsage: true, Args: c.noSuch,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if version {
				return c.version()
			}
			return cmd.Help()
		},
		PersistentPreRun: func(cmd *cobra.Command, _ []string) { selfDeclared(cmd) },
	}
	root.Flags().BoolVar(&version, "version", false, "say which version this is, and what it was built from")
	root.CompletionOptions.DisableDefaultCmd = true
	root.PersistentFlags().BoolVar(&c.json, "json", false, "answer with one JSON object on standard output")
	root.SetFlagErrorFunc(flagWrong)
	root.AddCommand(c.demos()...)
	root.AddCommand(c.serve(), c.submit(), c.status(), c.cancel(), c.receipts(), c.dlq(), c.brake(), c.policy(), c.cases(), c.people(), c.keys(), c.access(), c.events(), c.migrate(), c.doctor())
	return root
}

// version tells what this program was built from.
func (c *command) version() error {
	if c.json {
		return c.answer(build.Read())
	}
	_, err := fmt.Fprintln(c.Out, build.Read())
	return err
}

// noSuch refuses words that name no command.
func (c *command) noSuch(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usage(cmd, errors.New("there is no command "+args[0]))
	}
	return nil
}

// flagWrong says what is wrong with a flag. Before a flag that a group of commands does
// not have, a word that names none of its commands is what is wrong.
func flagWrong(cmd *cobra.Command, err error) error {
	if words := cmd.Flags().Args(); cmd.HasSubCommands() && len(words) > 0 {
		return usage(cmd, errors.New("there is no command "+words[0]))
	}
	var value *pflag.InvalidValueError
	var number *strconv.NumError
	if errors.As(err, &value) && errors.As(err, &number) && number.Func == "ParseInt" {
		return usage(cmd, fmt.Errorf("--%s takes a whole number of up to 64 bits, not %s", value.GetFlag().Name, value.GetValue()))
	}
	return usage(cmd, err)
}

// exactly asks for a number of arguments and says which.
func exactly(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) < len(names):
			return usage(cmd, errors.New(names[len(args)]+" is missing"))
		case len(args) > len(names):
			return usage(cmd, errors.New("one argument too many: "+args[len(names)]))
		}
		return nil
	}
}

// tenant defines the flag that says whose rows are meant. There is no default: no
// tenant means no rows.
func tenantFlag(f *pflag.FlagSet, to *string) {
	f.StringVar(to, "tenant", "", "name of the tenant (required)")
}

func needTenant(cmd *cobra.Command, tenant string) error {
	if tenant == "" {
		return usage(cmd, errors.New("--tenant is missing"))
	}
	return nil
}

// open opens a service that hands over and looks.
func (c *command) open(ctx context.Context, o app.Options) (*postadjudication.Service, error) {
	return c.opened(ctx, o, (*app.Options).Service)
}

// look opens a service that only looks, also at a database whose triggers are not in force.
func (c *command) look(ctx context.Context, o app.Options) (*postadjudication.Service, error) {
	service, err := c.opened(ctx, o, unguarded)
	if err != nil {
		return nil, err
	}
	if err := c.warnOfTriggers(ctx, service); err != nil {
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
func (c *command) warnOfTriggers(ctx context.Context, service *postadjudication.Service) error {
	off, err := service.TriggersOff(ctx)
	if err == nil && len(off) > 0 {
		c.note("warning: " + triggersWarning(off))
	}
	return err
}

// triggersWarning says what triggers that are not in force mean to who reads. The order of
// the commands matters: migrate takes away the trace that they were off.
func triggersWarning(off []string) string {
	return plural(len(off), "trigger") + " not in force (" + strings.Join(off, ", ") +
		"): evidence can be changed, and what is read here may have been. Run recourse receipts verify; run recourse migrate, which puts them in force, only after it was looked into."
}

func (c *command) opened(ctx context.Context, o app.Options, as func(*app.Options) (postadjudication.Config, error)) (*postadjudication.Service, error) {
	o.FromEnvironment(c.Getenv)
	config, err := as(&o)
	if err != nil {
		return nil, err
	}
	return postadjudication.Open(ctx, config)
}
