package journal_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/recourse-dev/recourse/background/circuit"
	"github.com/recourse-dev/recourse/internal/testkit"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/journaltest"
	"github.com/recourse-dev/recourse/retrypolicy"
)

// holdLocks runs a statement in a transaction that stays open until the test calls release.
func holdLocks(t *testing.T, db *sql.DB, query string, args ...any) (release func()) {
	t.Helper()
	tx, err := db.BeginTx(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.ExecContext(context.Background(), query, args...); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := tx.Rollback(); err != nil && !errors.Is(err, sql.ErrTxDone) {
			t.Error(err)
		}
	}
}

// waitUntilBlocked returns once a statement of the test's database waits for a lock.
func waitUntilBlocked(t *testing.T, db *sql.DB) {
	t.Helper()
	for tick := time.Tick(5 * time.Millisecond); ; <-tick {
		var waits bool
		if err := db.QueryRowContext(t.Context(), `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock')`).Scan(&waits); err != nil {
			t.Fatal(err)
		}
		if waits {
			return
		}
	}
}

// A change of a policy or a circuit breaker that another transaction holds returns ErrBusy
// and changes nothing; later it succeeds.
func TestALockedPolicyOrBreakerIsBusy(t *testing.T) {
	t.Parallel()
	url := testkit.Migrated(t)
	j, db := journaltest.Open(t, url), testkit.OpenAsOwner(t, url)
	ctx := context.Background()
	target := circuit.Scope{Tenant: "acme", Family: "settlement", Name: "escrow"}
	at := time.Now().UTC().Truncate(time.Microsecond)
	setPolicy := func() (journal.Policy, error) {
		return j.Policies.Update(ctx, "acme", "settlement", func(now journal.Policy) (journal.Policy, string, error) {
			return journal.Policy{Policy: retrypolicy.Policy{MaxRetryAttempts: 3 + int(now.Version)}.Normalize(), Actor: "test", Reason: "test", At: at}, "x", nil
		})
	}
	openByHand := func() (circuit.Breaker, bool, error) {
		return j.Breakers.UpdateBreaker(ctx, target, func(b circuit.Breaker) (circuit.Breaker, bool) {
			b.Scope, b.State, b.Actor, b.Reason, b.At, b.Version, b.Manual = target, circuit.Open, "test", "test", at, b.Version+1, true
			return b, true
		})
	}
	if _, err := setPolicy(); err != nil {
		t.Fatal(err)
	}
	if _, _, err := openByHand(); err != nil {
		t.Fatal(err)
	}
	release := holdLocks(t, db, `WITH p AS (SELECT FROM recourse.policies FOR UPDATE), b AS (SELECT FROM recourse.circuit_breakers FOR UPDATE) SELECT (SELECT count(*) FROM p), (SELECT count(*) FROM b)`)
	defer release()
	if p, err := setPolicy(); !errors.Is(err, journal.ErrBusy) {
		t.Errorf("%+v, %v", p, err)
	}
	if b, changed, err := openByHand(); !errors.Is(err, journal.ErrBusy) || changed {
		t.Errorf("%+v, %v, %v", b, changed, err)
	}
	release()
	if p, err := setPolicy(); err != nil || p.Version != 2 {
		t.Errorf("%+v, %v", p, err)
	}
	if b, changed, err := openByHand(); err != nil || !changed || b.Version != 2 {
		t.Errorf("%+v, %v, %v", b, changed, err)
	}
}

// A request locks only the row of its key. While it waits for that, another request begins
// at once, even if both keys have expired.
func TestARequestThatWaitsForItsKeyHoldsNoOther(t *testing.T) {
	t.Parallel()
	url := testkit.Migrated(t)
	j, db := journaltest.Open(t, url), testkit.OpenAsOwner(t, url)
	ctx := context.Background()
	now := time.Now().UTC().Truncate(time.Microsecond)
	enter := func(key string, began time.Time) error {
		_, begun, err := j.Requests.Begin(ctx, journal.IdempotentRequest{Tenant: "acme", Key: key, Token: uuid.New(), Began: began}, began.Add(-time.Minute), began.Add(-24*time.Hour))
		if err == nil && !begun {
			err = errors.New("not begun")
		}
		return err
	}
	for _, key := range []string{"a", "b"} {
		if err := enter(key, now.Add(-48*time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
	release := holdLocks(t, db, `SELECT FROM recourse.requests WHERE key = 'a' FOR UPDATE`)
	defer release()
	waited := make(chan error, 1)
	go func() { waited <- enter("a", now) }()
	waitUntilBlocked(t, db)
	if err := enter("b", now); err != nil {
		t.Errorf("other key: %v", err)
	}
	release()
	if err := <-waited; err != nil {
		t.Errorf("the request that waited: %v", err)
	}
}
