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

// A target is served by a process whose heart beats and that calls it, and a queue of payments by having been named.
func TestWhichTargetsAreServed(t *testing.T) {
	t.Parallel()
	url := testkit.Migrated(t)
	j, db := journaltest.Open(t, url), testkit.OpenAsOwner(t, url)
	if err := j.Targets.Record(t.Context(), "settlement", map[string]string{"bank": "bank", "queue:named": "queue:named"}, time.Now()); err != nil {
		t.Fatal(err)
	}
	if _, err := db.Exec(`INSERT INTO recourse.sessions (id, worker, started_at, beat_at, lost, targets) VALUES
		(gen_random_uuid(), 'alive', now(), now(), false, '{bank}'), (gen_random_uuid(), 'silent', now(), now() - interval '1 h', false, '{slow}'),
		(gen_random_uuid(), 'lost', now(), now(), true, '{gone}')`); err != nil {
		t.Fatal(err)
	}
	for target, want := range map[string]bool{"bank": true, "slow": false, "gone": false, "other": false, "queue:named": true, "queue:other": false} {
		if served, err := j.Targets.Served(t.Context(), "settlement", target, time.Now().Add(-time.Minute)); err != nil || served != want {
			t.Errorf("%s is served: %t, %v", target, served, err)
		}
	}
}

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
