package policy

import (
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/recourse-dev/recourse/internal/cli/shell"
	"github.com/recourse-dev/recourse/retrypolicy"
)

// Flags are the fields of a policy that a command may change.
type Flags struct {
	attempts          int
	base, most        time.Duration
	coefficient, wide float64
	never             []string
}

// Bind defines the flags.
func (p *Flags) Bind(cmd *cobra.Command) {
	f := cmd.Flags()
	f.IntVar(&p.attempts, "max-attempts", 0, "attempts in all, the first included")
	f.DurationVar(&p.base, "base-delay", 0, "pause after the first attempt, such as 25ms")
	f.DurationVar(&p.most, "max-delay", 0, "no pause is longer")
	f.Float64Var(&p.coefficient, "coefficient", 0, "each pause to the one before")
	f.Float64Var(&p.wide, "jitter", 0, "share of a pause, 0 to 1, that may be added or taken away")
	f.StringSliceVar(&p.never, "non-retryable", nil, `error types that are final, "prefix.*" for many; empty for none`)
}

// flagNames are the flags that change a policy, in the order of the help.
var flagNames = []string{"max-attempts", "base-delay", "max-delay", "coefficient", "jitter", "non-retryable"}

// Given reports whether anything of a policy is to be changed.
func (p *Flags) Given(cmd *cobra.Command) bool {
	return slices.ContainsFunc(flagNames, cmd.Flags().Changed)
}

// First names the first of the given flags that change a policy.
func (p *Flags) First(cmd *cobra.Command) string {
	return flagNames[slices.IndexFunc(flagNames, cmd.Flags().Changed)]
}

// Over gives the policy with what was given changed, if it can be meant: in JSON a policy
// is always one that can be.
func (p *Flags) Over(cmd *cobra.Command, now retrypolicy.Policy) (retrypolicy.Policy, error) {
	if err := p.noZero(cmd); err != nil {
		return now, err
	}
	given := cmd.Flags().Changed
	if given("max-attempts") {
		now.MaxRetryAttempts = p.attempts
	}
	if given("base-delay") {
		now.BaseDelay = p.base
	}
	if given("max-delay") {
		now.MaxDelay = p.most
	}
	if given("coefficient") {
		now.Coefficient = p.coefficient
	}
	if given("jitter") {
		now.Jitter = p.wide
	}
	if given("non-retryable") {
		now.NonRetryable = p.never
	}
	return now, Check(cmd, now)
}

// noZero refuses a zero that would mean the default: who writes one wants something else.
func (p *Flags) noZero(cmd *cobra.Command) error {
	for name, zero := range map[string]bool{
		"max-attempts": p.attempts == 0, "base-delay": p.base == 0, "max-delay": p.most == 0, "coefficient": p.coefficient == 0,
	} {
		if cmd.Flags().Changed(name) && zero {
			return shell.Usage(cmd, fmt.Errorf("--%s is zero", name))
		}
	}
	return nil
}

// Check refuses a policy that can't be meant.
func Check(cmd *cobra.Command, p retrypolicy.Policy) error {
	if err := p.Validate(); err != nil {
		return shell.Usage(cmd, err)
	}
	return nil
}
