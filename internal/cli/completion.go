package cli

import (
	"context"
	"io"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/recourse-dev/recourse/internal/cli/backend"
	"github.com/recourse-dev/recourse/internal/cli/shell"
	"github.com/recourse-dev/recourse/postadjudication/casestatus"
	"github.com/recourse-dev/recourse/postadjudication/deadletter"
)

const (
	completionTimeout = 2 * time.Second // a person waits at the prompt
	maxCompletions    = 100
)

// completer returns values that may stand at a place of a command line.
type completer func(ctx context.Context, be backend.Backend) ([]string, error)

// completers are those of the flags and arguments that name what the database has.
var completers = map[string]completer{
	"tenant": func(ctx context.Context, be backend.Backend) ([]string, error) {
		if be.Tenants == nil {
			return nil, nil
		}
		return be.Tenants(ctx)
	},
	"transaction": ofCases(func(c casestatus.Row) string { return c.Transaction }),
	"case":        ofCases(func(c casestatus.Row) string { return c.Case.String() }),
	"run":         ofLetters(func(l deadletter.Letter) string { return l.Run.String() }),
	"error-type": ofLetters(func(l deadletter.Letter) string {
		if l.Error == nil {
			return ""
		}
		return l.Error.Type
	}),
}

// constants are the values of flags that have a few.
var constants = map[string][]string{
	"reason-code": deadletter.ReasonCodes(), "class": {"executed", "not_executed", "unknown"}, "outcome": {"release", "refund"}, "status": {"open", "forked", "reconciled", "superseded"},
}

func ofCases(value func(casestatus.Row) string) completer {
	return func(ctx context.Context, be backend.Backend) (out []string, err error) {
		page, err := be.Cases.List(ctx, casestatus.Filter{}, "", maxCompletions)
		for _, c := range page.Cases {
			out = append(out, value(c))
		}
		return out, err
	}
}

func ofLetters(value func(deadletter.Letter) string) completer {
	return func(ctx context.Context, be backend.Backend) (out []string, err error) {
		page, err := be.DeadLetters.List(ctx, deadletter.Query{Filter: deadletter.Filter{Status: "open"}, Limit: maxCompletions})
		for _, l := range page.Letters {
			out = append(out, value(l))
		}
		return out, err
	}
}

// addCompletions has each command under root complete the values of its flags and its argument, from the database or server that
// its flags or the environment name. Without one, or if it does not answer, nothing is completed, without a word.
func addCompletions(sh *shell.Shell, root *cobra.Command) {
	for _, cmd := range root.Commands() {
		addCompletions(sh, cmd)
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			var complete cobra.CompletionFunc
			if values := constants[f.Name]; values != nil && f.Value.Type() == "string" {
				complete = cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)
			} else if completers[f.Name] != nil {
				complete = completeBy(sh, f.Name)
			}
			if complete == nil {
				return
			}
			if err := cmd.RegisterFlagCompletionFunc(f.Name, complete); err != nil {
				panic(err) // the flag is there, and this is the only place that registers
			}
		})
		names := argumentNames(cmd)
		if len(names) == 0 || cmd.Name() == "cancel" { // what can be cancelled is no dead letter
			continue
		}
		cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, begin string) ([]cobra.Completion, cobra.ShellCompDirective) {
			if len(args) > 0 { // one is all
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return completeBy(sh, names...)(cmd, args, begin)
		}
	}
}

// argumentNames returns what the argument of a command may be of what the completers know, by its usage, such as RUN|TRANSACTION.
func argumentNames(cmd *cobra.Command) (out []string) {
	_, arguments, _ := strings.Cut(cmd.Use, " ")
	for _, name := range strings.FieldsFunc(arguments, func(r rune) bool { return !unicode.IsLetter(r) }) {
		if name != "TENANT" && completers[strings.ToLower(name)] != nil && name == strings.ToUpper(name) {
			out = append(out, strings.ToLower(name))
		}
	}
	return out
}

func completeBy(sh *shell.Shell, names ...string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, begin string) ([]cobra.Completion, cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
		defer cancel()
		return completions(ctx, sh, cmd, names, begin), cobra.ShellCompDirectiveNoFileComp
	}
}

// completions reads from the server that a command names. Its flags are parsed, and it did not run.
func completions(ctx context.Context, sh *shell.Shell, of *cobra.Command, names []string, begin string) (out []string) {
	quiet := &shell.Shell{Streams: shell.Streams{In: strings.NewReader(""), Out: io.Discard, Err: io.Discard, Getenv: sh.Getenv}}
	cmd, o := &cobra.Command{Use: of.Name()}, backend.Flags{NoRedis: true}
	o.Bind(cmd.Flags())
	cmd.SetContext(ctx)
	of.Flags().Visit(func(f *pflag.Flag) {
		if known := cmd.Flags().Lookup(f.Name); known != nil {
			_ = cmd.Flags().Set(f.Name, f.Value.String()) // the command accepted it
		}
	})
	if err := backend.FromEnvironment(cmd, sh.Getenv); err != nil {
		return nil
	}
	if names[0] == "tenant" {
		o.Tenant = "-" // which tenants there are is asked of none
	}
	// What can't be read is not completed.
	_ = backend.With(quiet, cmd, &o, func(ctx context.Context, be backend.Backend) error {
		for _, name := range names {
			values, err := completers[name](ctx, be)
			if err != nil {
				return err
			}
			out = append(out, values...)
		}
		return nil
	})
	out = slices.DeleteFunc(out, func(value string) bool {
		return value == "" || !strings.HasPrefix(value, begin) || strings.ContainsFunc(value, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) })
	})
	slices.Sort(out)
	return slices.Compact(out)
}
