package view

import (
	"strings"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/cli/screen"
	"github.com/recourse-dev/recourse/postadjudication"
)

// Breakers writes the circuit breakers of a tenant.
func Breakers(s *screen.Screen, tenant string, breakers []postadjudication.Breaker) error {
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

// Breaker writes what a circuit breaker does now.
func Breaker(s *screen.Screen, b postadjudication.Breaker) error {
	switch b.State {
	case background.BreakerOpen:
		s.Text("The circuit breaker of %s for %s is open, by %s: nothing is called until it is released.", b.Target, BreakerTenant(b.Tenant), b.Actor)
	case background.BreakerHalfOpen:
		s.Text("The circuit breaker of %s for %s is half-open: new cases probe, and it closes once they are answered.", b.Target, BreakerTenant(b.Tenant))
	default:
		s.Text("The circuit breaker of %s for %s is closed: what was paused goes on.", b.Target, BreakerTenant(b.Tenant))
	}
	return s.Err()
}

// BreakerState is the state of a circuit breaker, and whether a person opened it.
func BreakerState(b postadjudication.Breaker) string {
	state := strings.ReplaceAll(string(b.State), "_", "-")
	if b.ByHand {
		return state + " by hand"
	}
	return state
}

// BreakerTenant says for whom a circuit breaker is.
func BreakerTenant(tenant string) string {
	if tenant == postadjudication.AllTenants {
		return "all tenants"
	}
	return tenant
}
