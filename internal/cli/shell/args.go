package shell

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/recourse-dev/recourse/internal/access"
)

// Usage returns err with ExitUsage and a pointer to the help of cmd.
func Usage(cmd *cobra.Command, err error) error {
	return WithCode(ExitUsage, fmt.Errorf("%w; see %s --help", err, cmd.CommandPath()))
}

// UnknownCommand returns an error for an argument of a group of commands.
func UnknownCommand(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return noCommand(cmd, args[0])
	}
	return nil
}

func noCommand(cmd *cobra.Command, name string) error {
	return Usage(cmd, errors.New("there is no command "+name+didYouMean(cmd, name, "")))
}

// didYouMean returns a question that names the commands under cmd whose names are like the given one; empty if
// there is none.
func didYouMean(cmd *cobra.Command, name, before string) string {
	if cmd.SuggestionsMinimumDistance == 0 {
		cmd.SuggestionsMinimumDistance = 2
	}
	alike := cmd.SuggestionsFor(name)
	if len(alike) == 0 {
		return ""
	}
	return " (did you mean " + before + strings.Join(alike, " or "+before) + "?)"
}

// flagsAlike returns a question that names the flags of cmd whose names are like the given one.
func flagsAlike(cmd *cobra.Command, name string) string {
	names := &cobra.Command{}
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		names.AddCommand(&cobra.Command{Use: f.Name, Run: func(*cobra.Command, []string) {}})
	})
	return didYouMean(names, name, "--")
}

// FlagError returns the error of a bad flag. If a group of commands got an unknown command with
// flags, the error names the command and not its first flag.
func FlagError(cmd *cobra.Command, err error) error {
	if words := cmd.Flags().Args(); cmd.HasSubCommands() && len(words) > 0 {
		return noCommand(cmd, words[0])
	}
	var unknown *pflag.NotExistError
	if errors.As(err, &unknown) {
		return Usage(cmd, fmt.Errorf("%w%s", err, flagsAlike(cmd, unknown.GetSpecifiedName())))
	}
	var value *pflag.InvalidValueError
	var form *numberForm
	var number *strconv.NumError
	switch {
	case !errors.As(err, &value):
	case errors.As(err, &form):
		err = fmt.Errorf("--%s takes %s, not %s", value.GetFlag().Name, form.says, value.GetValue())
	case errors.As(err, &number) && (number.Func == "ParseInt" || number.Func == "ParseUint"):
		err = fmt.Errorf("--%s takes a whole number of up to 63 bits, not %s", value.GetFlag().Name, value.GetValue())
	case value.GetFlag().Value.Type() == sumType:
		err = fmt.Errorf("--%s: %s %w", value.GetFlag().Name, value.GetValue(), errors.Unwrap(value))
	}
	return Usage(cmd, err)
}

// Exactly requires one argument for each name, and names the missing one.
func Exactly(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) < len(names):
			return Usage(cmd, errors.New(names[len(args)]+" is missing"))
		case len(args) > len(names):
			return Usage(cmd, tooMany(cmd, args[len(names)]))
		}
		return nil
	}
}

// AtMostOne allows one optional argument.
func AtMostOne(cmd *cobra.Command, args []string) error {
	if len(args) > 1 {
		return Usage(cmd, tooMany(cmd, args[1]))
	}
	return nil
}

// tooMany returns the error for an argument too many.
func tooMany(cmd *cobra.Command, arg string) error {
	return errors.New("one argument too many: " + arg + ValueHint(cmd, arg))
}

// ValueHint returns how to write true or false, which got between the arguments, as the value of the
// flag before it; empty if it can be no such value.
func ValueHint(cmd *cobra.Command, arg string) (hint string) {
	if arg != "true" && arg != "false" {
		return ""
	}
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if f.NoOptDefVal == "true" && f.Value.String() == "true" && hint == "" {
			hint = "; write --" + f.Name + "=" + arg
		}
	})
	return hint
}

// TenantFlag defines --tenant. It has no default but the tenant of the environment, which a person sets (backend.FromEnvironment), so
// that no command acts on a tenant by mistake.
func TenantFlag(f *pflag.FlagSet, to *string) {
	f.StringVar(to, "tenant", "", "tenant to act on (required)")
}

// NeedTenant returns an error if tenant is empty.
func NeedTenant(cmd *cobra.Command, tenant string) error {
	if tenant == "" {
		return Usage(cmd, errors.New("--tenant is missing"))
	}
	return nil
}

// ActorFlag defines --actor, the name that a command on the database records.
func ActorFlag(f *pflag.FlagSet, to *string, what string) {
	f.Var((*actor)(to), "actor", what)
}

// actor is the value of --actor.
type actor string

func (a *actor) String() string { return string(*a) }

// Type returns the name of the value in usages.
func (a *actor) Type() string { return "string" }

// Set returns an error for names that are reserved for the system or easily confused.
func (a *actor) Set(text string) error {
	if text != "" { // the command reports a missing actor
		if err := access.CheckActor(text); err != nil {
			return err
		}
	}
	*a = actor(text)
	return nil
}

// NeedReason returns an error if reason is empty.
func NeedReason(cmd *cobra.Command, reason string) error {
	if reason == "" {
		return Usage(cmd, errors.New("--reason is missing"))
	}
	return nil
}

// ParseTime parses an optional RFC 3339 time, or a date, which is its midnight UTC. An invalid time
// is an error and not an absent filter.
func ParseTime(flag, text string, to *time.Time) (err error) {
	if text == "" {
		return nil
	}
	if *to, err = time.Parse(time.DateOnly, text); err == nil {
		return nil
	}
	if *to, err = time.Parse(time.RFC3339, text); err != nil {
		return fmt.Errorf("%s is not a time such as 2026-11-27T15:04:05Z, nor a date such as 2026-11-27: %s", flag, text)
	}
	return nil
}

// InRange returns an error if value is not between 1 and most.
func InRange(flag string, value, most int) error {
	if value < 1 || value > most {
		return fmt.Errorf("%s is not between 1 and %d", flag, most)
	}
	return nil
}

// OneOf returns an error if value is neither empty nor one of words.
func OneOf(flag, value string, words ...string) error {
	if value == "" {
		return nil
	}
	for _, w := range words {
		if value == w {
			return nil
		}
	}
	return fmt.Errorf("%s must be one of %s", flag, strings.Join(words, ", "))
}
