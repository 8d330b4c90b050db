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
	attempts            int
	baseDelay, maxDelay time.Duration
	backoff             string
	coefficient, jitter float64
	nonRetryable        []string
}

// Bind defines the flags.
func (p *Flags) Bind(cmd *cobra.Command) {
	f := cmd.Flags()
	f.IntVar(&p.attempts, "max-attempts", 0, "maximum attempts, including the first")
	f.DurationVar(&p.baseDelay, "base-delay", 0, "delay after the first attempt, such as 25ms")
	f.DurationVar(&p.maxDelay, "max-delay", 0, "maximum delay between attempts, such as 5m")
	f.StringVar(&p.backoff, "backoff", "", "how delays grow: exponential, or linear, which adds the base delay after each attempt")
	f.Float64Var(&p.coefficient, "coefficient", 0, "factor by which each delay grows, such as 2")
	f.Float64Var(&p.jitter, "jitter", 0, "random part of a delay, 0 to 1, that is added or subtracted")
	f.StringSliceVar(&p.nonRetryable, "non-retryable", nil, `error types that are not retried, comma-separated; "prefix.*" matches many; empty for none`)
}

// flagNames are the flags that change a policy, in the order of the help.
var flagNames = []string{"max-attempts", "base-delay", "max-delay", "backoff", "coefficient", "jitter", "non-retryable"}

// Given reports whether a flag changes the policy.
func (p *Flags) Given(cmd *cobra.Command) bool {
	return slices.ContainsFunc(flagNames, cmd.Flags().Changed)
}

// FirstGiven returns the name of the first given flag that changes the policy.
func (p *Flags) FirstGiven(cmd *cobra.Command) string {
	return flagNames[slices.IndexFunc(flagNames, cmd.Flags().Changed)]
}

// Apply returns the policy with the given flags applied, or an error if the result is invalid.
func (p *Flags) Apply(cmd *cobra.Command, now retrypolicy.Policy) (retrypolicy.Policy, error) {
	if err := p.rejectZeros(cmd); err != nil {
		return now, err
	}
	given := cmd.Flags().Changed
	if given("max-attempts") {
		now.MaxRetryAttempts = p.attempts
	}
	if given("base-delay") {
		now.BaseDelay = p.baseDelay
	}
	if given("max-delay") {
		now.MaxDelay = p.maxDelay
	}
	if given("backoff") {
		now.Backoff = retrypolicy.Backoff(p.backoff)
	}
	if given("coefficient") {
		now.Coefficient = p.coefficient
	}
	if given("jitter") {
		now.Jitter = p.jitter
	}
	if given("non-retryable") {
		now.NonRetryable = p.nonRetryable
	}
	return now, Check(cmd, now)
}

// rejectZeros returns an error for a zero, because zero would mean the default.
func (p *Flags) rejectZeros(cmd *cobra.Command) error {
	for name, zero := range map[string]bool{
		"max-attempts": p.attempts == 0, "base-delay": p.baseDelay == 0, "max-delay": p.maxDelay == 0, "coefficient": p.coefficient == 0,
	} {
		if cmd.Flags().Changed(name) && zero {
			return shell.Usage(cmd, fmt.Errorf("--%s is zero", name))
		}
	}
	return nil
}

// Check returns a usage error for an invalid policy.
func Check(cmd *cobra.Command, p retrypolicy.Policy) error {
	if err := p.Validate(); err != nil {
		return shell.Usage(cmd, err)
	}
	return nil
}
