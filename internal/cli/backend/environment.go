package backend

import (
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// KeyVariable is the environment variable of the access key for a server. There is no flag for
// it, because every user of the machine can read the flags of a process.
const KeyVariable = "RECOURSE_KEY"

// The environment variables of flags that most commands have.
const (
	serverVariable = "RECOURSE_SERVER"
	tenantVariable = "RECOURSE_TENANT"
	actorVariable  = "RECOURSE_ACTOR"
)

// FromEnvironment sets --server, --tenant and --actor of a command from the environment, where the command has the flag
// and it is not given. A server records the principal of the key as the actor. A command for all tenants, or
// with a key for all, gets no tenant.
func FromEnvironment(cmd *cobra.Command, getenv func(string) string) error {
	flags := cmd.Flags()
	defaults := func(flag, variable string) error {
		f, value := flags.Lookup(flag), getenv(variable)
		if f == nil || f.Changed || value == "" {
			return nil
		}
		if err := f.Value.Set(value); err != nil {
			return fmt.Errorf("$%s: %w", variable, err)
		}
		return nil
	}
	if err := defaults("server", serverVariable); err != nil {
		return err
	}
	if !isOn(flags, "all-tenants") && !isOn(flags, "platform") {
		if err := defaults("tenant", tenantVariable); err != nil {
			return err
		}
	}
	if server := flags.Lookup("server"); server != nil && server.Value.String() != "" {
		return nil
	}
	return defaults("actor", actorVariable)
}

func isOn(flags *pflag.FlagSet, name string) bool {
	f := flags.Lookup(name)
	return f != nil && f.Value.String() == "true"
}
