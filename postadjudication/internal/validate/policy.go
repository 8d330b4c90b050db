package validate

import (
	"errors"
	"fmt"
	"strings"

	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/retrypolicy"
)

// maxPolicyDelay bounds the delays of a policy that is set.
const maxPolicyDelay = 30 * Day

// ErrDiscard refuses a policy that discards runs.
var ErrDiscard = &refusal.FieldError{Field: "policy.on_exhaustion", Problem: "must be dead_letter: a run that may move money, or that a plan or a rule forks, is always kept"}

// Policy returns a *FieldError for each problem of a policy, joined. mayDiscard allows the policy to
// discard runs that fail for good.
func Policy(p retrypolicy.Policy, mayDiscard bool) error {
	var errs []error
	if !mayDiscard && p.OnExhaustion == retrypolicy.Discard {
		errs = append(errs, ErrDiscard)
	}
	if p.MaxDelay > maxPolicyDelay {
		errs = append(errs, &refusal.FieldError{Field: "policy.max_delay", Problem: fmt.Sprintf("must not be over %d days: nobody would notice a run that waits longer", maxPolicyDelay/Day)})
	}
	if joined, ok := p.Validate().(interface{ Unwrap() []error }); ok {
		for _, err := range joined.Unwrap() {
			var wrong *retrypolicy.FieldError
			if errors.As(err, &wrong) {
				err = &refusal.FieldError{Field: "policy." + wrong.Field, Problem: wrong.Problem}
			}
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// PolicyChanges returns the differences of two policies, field by field; empty if there are none.
// From it and the policy after, the policy before can be derived.
func PolicyChanges(before, after retrypolicy.Policy) string {
	b, a := before.Normalize(), after.Normalize()
	var all []string
	add := func(field string, from, to any) {
		if f, t := fmt.Sprint(from), fmt.Sprint(to); f != t {
			all = append(all, field+" "+f+" to "+t)
		}
	}
	add("max_retry_attempts", b.MaxRetryAttempts, a.MaxRetryAttempts)
	add("base_delay", b.BaseDelay, a.BaseDelay)
	add("max_delay", b.MaxDelay, a.MaxDelay)
	add("backoff", b.Backoff, a.Backoff)
	add("coefficient", b.Coefficient, a.Coefficient)
	add("jitter", b.Jitter, a.Jitter)
	add("non_retryable", b.NonRetryable, a.NonRetryable)
	add("on_exhaustion", b.OnExhaustion, a.OnExhaustion)
	return strings.Join(all, "; ")
}
