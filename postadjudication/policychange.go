package postadjudication

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/recourse-dev/recourse/internal/postgres"
	"github.com/recourse-dev/recourse/retrypolicy"
)

// PolicyChange sets the retry policy of a family for a tenant.
type PolicyChange struct {
	Tenant    string
	Family    string
	Policy    retrypolicy.Policy // whole; what is left zero becomes the default
	Actor     string             // who asks; required
	Reason    string             // why; required
	IfVersion *int64             // refused unless this is the present version; nil sets it in any case
}

func (q PolicyChange) validate() error {
	return errors.Join(requireText("tenant", q.Tenant, 128), requireText("family", q.Family, 32), requireIdentifier("actor", q.Actor, 128), requireText("reason", q.Reason, 1024),
		validatePolicy(q.Policy))
}

// maxPolicyDelay bounds the delays of a policy that somebody sets.
const maxPolicyDelay = 30 * day

// validatePolicy names what is wrong with a policy, each a *FieldError.
func validatePolicy(p retrypolicy.Policy) error {
	var errs []error
	if p.OnExhaustion == retrypolicy.Discard {
		errs = append(errs, &FieldError{Field: "policy.on_exhaustion", Problem: "must be dead_letter: a run that ends without success is always kept"})
	}
	if p.MaxDelay > maxPolicyDelay {
		errs = append(errs, &FieldError{Field: "policy.max_delay", Problem: fmt.Sprintf("must not be over %d days: a run would wait out of everybody's sight", maxPolicyDelay/day)})
	}
	if joined, ok := p.Validate().(interface{ Unwrap() []error }); ok {
		for _, err := range joined.Unwrap() {
			var wrong *retrypolicy.FieldError
			if errors.As(err, &wrong) {
				err = &FieldError{Field: "policy." + wrong.Field, Problem: wrong.Problem}
			}
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// decide gives the policy after the change of the one that is. configured is nil
// where this process does not have the family.
func (q PolicyChange) decide(now postgres.Policy, configured *retrypolicy.Policy, at time.Time) (postgres.Policy, string, error) {
	next := postgres.Policy{Policy: q.Policy.Normalize(), Actor: q.Actor, Reason: cleanText(q.Reason, 1024), At: at}
	switch set := now.Version > 0 && !now.AsConfigured; {
	case set && now.Policy.Encode() == next.Policy.Encode():
		return next, "", errSamePolicy
	case set:
		return next, policyChanges(now.Policy, next.Policy), nil
	case configured == nil:
		return next, "set in the place of what is configured", nil
	}
	changes := policyChanges(*configured, next.Policy)
	if changes == "" {
		changes = "nothing but that it no longer follows what is configured"
	}
	return next, changes, nil
}

// PolicyReset lets new runs of a family have what is configured again.
type PolicyReset struct {
	Tenant    string
	Family    string
	Actor     string // who asks; required
	Reason    string // why; required
	IfVersion *int64 // refused unless this is the present version; nil resets it in any case
}

func (q PolicyReset) validate() error {
	return errors.Join(requireText("tenant", q.Tenant, 128), requireText("family", q.Family, 32), requireIdentifier("actor", q.Actor, 128), requireText("reason", q.Reason, 1024))
}

// decide gives what there is after the reset of a policy.
func (q PolicyReset) decide(now postgres.Policy, configured *retrypolicy.Policy, at time.Time) (postgres.Policy, string, error) {
	next := postgres.Policy{AsConfigured: true, Actor: q.Actor, Reason: cleanText(q.Reason, 1024), At: at}
	if now.Version == 0 || now.AsConfigured {
		return next, "", errSamePolicy
	}
	changes := "as configured again"
	if configured != nil {
		if difference := policyChanges(now.Policy, *configured); difference != "" {
			changes += ": " + difference
		}
	}
	return next, changes, nil
}

// policyChanges tells what a policy has become, field by field; empty when nothing
// has changed. With the policy after it, it tells the one before.
func policyChanges(before, after retrypolicy.Policy) string {
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
	add("coefficient", b.Coefficient, a.Coefficient)
	add("jitter", b.Jitter, a.Jitter)
	add("non_retryable", b.NonRetryable, a.NonRetryable)
	add("on_exhaustion", b.OnExhaustion, a.OnExhaustion)
	return strings.Join(all, "; ")
}
