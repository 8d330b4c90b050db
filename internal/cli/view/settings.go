package view

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/recourse-dev/recourse/background/circuit"
	"github.com/recourse-dev/recourse/internal/cli/screen"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/casestatus"
	"github.com/recourse-dev/recourse/retrypolicy"
)

// Policies writes the retry policies of families.
func Policies(s *screen.Screen, policies []postadjudication.FamilyPolicy) error {
	rows := make([][]string, len(policies))
	for i, p := range policies {
		by := "as configured"
		if p.Version > 0 {
			by = fmt.Sprintf("version %d, %s: %s", p.Version, p.Actor, p.Reason)
			if p.AsConfigured {
				by = "as configured again, " + by
			}
		}
		rows[i] = append([]string{p.Family}, append(PolicyCells(p.Policy), by)...)
	}
	s.Table([]screen.Column{{Name: "Family"}, {Name: "Attempts", Right: true}, {Name: "Delays"}, {Name: "Not retried", Wraps: true}, {Name: "Set", Wraps: true}}, rows)
	return s.Err()
}

// PolicyCells returns the attempts, the delays and the non-retryable types of a policy.
func PolicyCells(p retrypolicy.Policy) []string {
	delays := fmt.Sprintf("%s x%s up to %s", p.BaseDelay, strconv.FormatFloat(p.Coefficient, 'g', -1, 64), p.MaxDelay)
	if p.Backoff == retrypolicy.Linear {
		delays = fmt.Sprintf("%s, each %s longer, up to %s", p.BaseDelay, p.BaseDelay, p.MaxDelay)
	}
	if p.Jitter > 0 {
		delays += fmt.Sprintf(", %g%% either way", 100*p.Jitter)
	}
	return []string{strconv.Itoa(p.MaxRetryAttempts), delays, strings.Join(p.NonRetryable, ", ")}
}

// PolicyHistory writes the versions of the policy of a family.
func PolicyHistory(s *screen.Screen, family string, versions []postadjudication.PolicyVersion) error {
	if len(versions) == 0 {
		s.Text("The policy of %s was not changed: the configured policy applies.", family)
		return s.Err()
	}
	rows := make([][]string, len(versions))
	for i, v := range versions {
		rows[i] = []string{strconv.FormatInt(v.Version, 10), v.At.Format(time.RFC3339), v.Actor, v.Changes, v.Reason}
	}
	s.Table([]screen.Column{{Name: "#", Right: true}, {Name: "At"}, {Name: "By"}, {Name: "What", Wraps: true}, {Name: "Why", Wraps: true}}, rows)
	return s.Err()
}

// Breakers writes the circuit breakers of a tenant.
func Breakers(s *screen.Screen, tenant string, breakers []casestatus.Breaker) error {
	if len(breakers) == 0 {
		s.Text("No circuit breaker of %s was ever open.", BreakerTenant(tenant))
		return s.Err()
	}
	rows := make([][]string, len(breakers))
	for i, b := range breakers {
		rows[i] = []string{b.Target, b.Family, BreakerTenant(b.Tenant), BreakerState(b), b.At.Format(time.RFC3339), b.Actor, b.Reason}
	}
	s.Table([]screen.Column{{Name: "Target"}, {Name: "Family", Optional: true}, {Name: "For"}, {Name: "Circuit breaker"}, {Name: "Since"}, {Name: "By"}, {Name: "Why", Wraps: true}}, rows)
	return s.Err()
}

// Breaker writes the state of a circuit breaker and what it means.
func Breaker(s *screen.Screen, b casestatus.Breaker) error {
	switch b.State {
	case circuit.Open:
		s.Text("The circuit breaker of %s for %s is open, by %s: nothing is called until it is released.", b.Target, BreakerTenant(b.Tenant), b.Actor)
	case circuit.HalfOpen:
		s.Text("The circuit breaker of %s for %s is half-open: new cases probe, and it closes once they are answered.", b.Target, BreakerTenant(b.Tenant))
	default:
		s.Text("The circuit breaker of %s for %s is closed: paused runs continue.", b.Target, BreakerTenant(b.Tenant))
	}
	return s.Err()
}

// BreakerState returns the state of a circuit breaker, and whether a person opened it.
func BreakerState(b casestatus.Breaker) string {
	state := strings.ReplaceAll(string(b.State), "_", "-")
	if b.ByHand {
		return state + " by hand"
	}
	return state
}

// BreakerTenant returns the tenant of a circuit breaker for people.
func BreakerTenant(tenant string) string {
	if tenant == postadjudication.AllTenants {
		return "all tenants"
	}
	return tenant
}
