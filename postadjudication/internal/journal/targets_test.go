package journal_test

import (
	"errors"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/background/circuit"
	"github.com/recourse-dev/recourse/internal/testkit"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/journaltest"
)

// A target does not leave the circuit breaker of another one while a person keeps that open, and it does once it is released.
// A breaker that opened by itself keeps nobody.
func TestATargetLeavesNoBreakerThatAPersonOpened(t *testing.T) {
	t.Parallel()
	j := journaltest.Open(t, testkit.Migrated(t))
	bank := circuit.Scope{Tenant: "acme", Family: "settlement", Name: "bank"}
	record := func(breaker string) error {
		return j.Targets.Record(t.Context(), "settlement", map[string]string{"bank": "bank", "bank-eu": breaker}, time.Now())
	}
	for _, manual := range []bool{true, false} {
		if err := record("bank"); err != nil {
			t.Fatal(err)
		}
		mustUpdateBreaker(t, j, bank, func(b circuit.Breaker) (circuit.Breaker, bool) {
			return b.Open(manual, "user:ada", circuit.CauseFailing, "why", micros())
		})
		if err := record("bank-eu"); errors.Is(err, journal.ErrTargetsDiffer) != manual || err != nil && !manual {
			t.Errorf("opened by hand: %t: %v", manual, err)
		}
		mustUpdateBreaker(t, j, bank, closeBreaker)
		if err := record("bank-eu"); err != nil {
			t.Errorf("after it was closed: %v", err)
		}
	}
}
