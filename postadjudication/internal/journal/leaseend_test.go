package journal_test

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/background/lease"
	"github.com/recourse-dev/recourse/internal/testkit"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/journaltest"
)

// A heartbeat that came since a lease was read keeps it, unless the time limit of its attempt is over.
func TestAHeartbeatDoesNotKeepALeaseThatIsOverItsLimit(t *testing.T) {
	t.Parallel()
	db := testkit.OpenAsOwner(t, testkit.Migrated(t))
	for _, c := range []struct {
		version, attempt int
		why              lease.End
		marked           int64
	}{{7, 2, lease.Expired, 1}, {6, 2, lease.Expired, 0}, {6, 2, lease.OverLimit, 1}, {7, 1, lease.OverLimit, 0}} {
		id := uuid.New()
		if _, err := db.Exec(`INSERT INTO recourse.leases (run_id, tenant, worker, attempt, at, length_ms, limit_ms, version) VALUES ($1, 'acme', 'w1', 2, now(), 1000, 1000, 7)`, id); err != nil {
			t.Fatal(err)
		}
		done, err := db.Exec(journal.EndLeaseSQL, id, c.version, string(c.why), c.attempt)
		if err != nil {
			t.Fatal(err)
		}
		if n, err := done.RowsAffected(); err != nil || n != c.marked {
			t.Errorf("%+v: %d leases are marked, %v", c, n, err)
		}
	}
}

// A heartbeat leaves out a lease that another transaction keeps locked, and does not wait for it without end.
func TestAHeartbeatLeavesOutALeaseThatStaysLocked(t *testing.T) {
	t.Parallel()
	url := testkit.Migrated(t)
	j, db := journaltest.Open(t, url), testkit.OpenAsOwner(t, url)
	var held []lease.Held
	for range 2 {
		id := uuid.New()
		if _, err := db.Exec(`INSERT INTO recourse.leases (run_id, tenant, worker, principal, attempt, at, length_ms, limit_ms, version) VALUES ($1, 'acme', 'w1', 'service:w', 1, now(), 1000, 60000, 1)`, id); err != nil {
			t.Fatal(err)
		}
		held = append(held, lease.Held{Run: background.RunID(id), Tenant: "acme", Worker: "w1", Actor: "service:w"})
	}
	release := holdLocks(t, db, `SELECT FROM recourse.leases WHERE run_id = $1 FOR UPDATE`, held[0].Run.String())
	defer release()
	extended, err := j.Leases.ExtendLeases(t.Context(), held, time.Second)
	if err != nil || len(extended) != 1 || extended[0].Run != held[1].Run {
		t.Errorf("%+v, %v", extended, err)
	}
}

// A heartbeat that Postgres refuses to write is an error, and no lease that was left out.
func TestAHeartbeatThatIsNotWrittenIsAnError(t *testing.T) {
	t.Parallel()
	url := testkit.Migrated(t)
	j, db := journaltest.Open(t, url), testkit.OpenAsOwner(t, url)
	id := uuid.New()
	if _, err := db.Exec(`INSERT INTO recourse.leases (run_id, tenant, worker, principal, attempt, at, length_ms, limit_ms, version) VALUES ($1, 'acme', 'w1', 'service:w', 1, now(), 1000, 60000, 1)`, id); err != nil {
		t.Fatal(err)
	}
	if _, err := db.Exec(`CREATE FUNCTION public.refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'no'; END $$; CREATE TRIGGER refused BEFORE UPDATE ON recourse.leases EXECUTE FUNCTION public.refuse()`); err != nil {
		t.Fatal(err)
	}
	held := []lease.Held{{Run: background.RunID(id), Tenant: "acme", Worker: "w1", Actor: "service:w"}}
	if extended, err := j.Leases.ExtendLeases(t.Context(), held, time.Second); err == nil {
		t.Errorf("%+v", extended)
	}
}
