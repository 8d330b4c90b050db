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

// Usage makes wrong flags and arguments exit 2, with a pointer to the help.
func Usage(cmd *cobra.Command, err error) error {
	return WithCode(ExitUsage, fmt.Errorf("%w; see %s --help", err, cmd.CommandPath()))
}

// UnknownCommand refuses words that name no command.
func UnknownCommand(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return Usage(cmd, errors.New("there is no command "+args[0]))
	}
	return nil
}

// FlagError says what is wrong with a flag. Before a flag that a group of commands does
// not have, a word that names none of its commands is what is wrong.
func FlagError(cmd *cobra.Command, err error) error {
	if words := cmd.Flags().Args(); cmd.HasSubCommands() && len(words) > 0 {
		return Usage(cmd, errors.New("there is no command "+words[0]))
	}
	var value *pflag.InvalidValueError
	var number *strconv.NumError
	if errors.As(err, &value) && errors.As(err, &number) && number.Func == "ParseInt" {
		return Usage(cmd, fmt.Errorf("--%s takes a whole number of up to 64 bits, not %s", value.GetFlag().Name, value.GetValue()))
	}
	return Usage(cmd, err)
}

// Exactly asks for a number of arguments and says which.
func Exactly(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) < len(names):
			return Usage(cmd, errors.New(names[len(args)]+" is missing"))
		case len(args) > len(names):
			return Usage(cmd, errors.New("one argument too many: "+args[len(names)]))
		}
		return nil
	}
}

// AtMostOne takes an argument that may be left out.
func AtMostOne(cmd *cobra.Command, args []string) error {
	if len(args) > 1 {
		return Usage(cmd, errors.New("one argument too many: "+args[1]))
	}
	return nil
}

// TenantFlag defines the flag that says whose rows are meant. There is no default: no
// tenant means no rows.
func TenantFlag(f *pflag.FlagSet, to *string) {
	f.StringVar(to, "tenant", "", "name of the tenant (required)")
}

// NeedTenant refuses to go on without a tenant.
func NeedTenant(cmd *cobra.Command, tenant string) error {
	if tenant == "" {
		return Usage(cmd, errors.New("--tenant is missing"))
	}
	return nil
}

// ActorFlag defines the flag by which somebody beside the database says who they are.
func ActorFlag(f *pflag.FlagSet, to *string, what string) {
	f.Var((*actor)(to), "actor", what)
}

// actor is the name that somebody gives of themselves.
type actor string

func (a *actor) String() string { return string(*a) }

// Type returns the name of the value in usages.
func (a *actor) Type() string { return "string" }

// Set refuses names that are the machine's or that nobody could tell from another.
func (a *actor) Set(text string) error {
	if text != "" { // that it is missing is told as that
		if err := access.CheckActor(text); err != nil {
			return err
		}
	}
	*a = actor(text)
	return nil
}

// NeedReason refuses to go on without a reason.
func NeedReason(cmd *cobra.Command, reason string) error {
	if reason == "" {
		return Usage(cmd, errors.New("--reason is missing"))
	}
	return nil
}

// ParseTime reads a time that may be left out. A word that is no time must not widen
// the filter.
func ParseTime(flag, text string, to *time.Time) (err error) {
	if text == "" {
		return nil
	}
	if *to, err = time.Parse(time.RFC3339, text); err != nil {
		return fmt.Errorf("%s is no RFC 3339 time: %s", flag, text)
	}
	return nil
}

// InRange refuses a number that is not between 1 and the most.
func InRange(flag string, value, most int) error {
	if value < 1 || value > most {
		return fmt.Errorf("%s is not between 1 and %d", flag, most)
	}
	return nil
}

// OneOf refuses a value that is none of some words; an empty one may be left out.
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
