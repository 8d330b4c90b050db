package postgres_test

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/postgres"
	"github.com/recourse-dev/recourse/internal/testkit"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/receipts/receiptstest"
)

func TestMain(m *testing.M) { os.Exit(testkit.Main(m)) }

func open(t testing.TB, url string) *postgres.Journal {
	t.Helper()
	j, err := postgres.Open(context.Background(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(j.Close)
	if err := j.Sessions.Register(context.Background(), background.Session{ID: session, Worker: "test"}); err != nil {
		t.Fatal(err)
	}
	return j
}

// session is the session of all claims in these tests.
var session = uuid.New()

// database opens the database as its owner.
func database(t testing.TB, url string) *sql.DB {
	t.Helper()
	db, err := sql.Open("postgres", testkit.Owner(t, url))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db
}

// plainRun returns a pending run of a case.
func plainRun(caseID receipts.CaseID, tenant string) background.Run {
	id := background.RunID(uuid.Must(uuid.NewV7()))
	return background.Run{
		ID: id, Case: caseID, Tenant: tenant, Family: "plain", RetryKey: id.String(), Queue: "plain:0", Target: "plain", Payload: []byte("{}"),
		State: background.Pending, LastTransition: uuid.New(), DueAt: time.Now().UTC().Truncate(time.Microsecond), NotificationNumber: 1,
	}
}

// opening returns the change that opens a plain case with a run.
func opening(r background.Run, drafts ...receipts.Draft) postgres.Change {
	return postgres.Change{Transition: r.LastTransition, Drafts: drafts, After: &postgres.Snapshot{Run: r, Case: postgres.Case{
		ID: r.Case, Tenant: r.Tenant, Kind: postgres.KindPlain, Subject: "case:" + r.Case.String(), ActiveRun: r.ID,
	}}}
}

func submitted(r background.Run) receipts.Draft {
	return receipts.Draft{Run: r.ID, Subtype: receipts.Submitted, Actor: "test", At: r.DueAt, Payload: receipts.Payload{Family: r.Family, RetryKey: r.RetryKey}}
}

// trailLog implements receiptstest.Log with the journal.
type trailLog struct {
	*postgres.Journal
	db *sql.DB
}

func (l *trailLog) Append(ctx context.Context, c receipts.CaseID, tenant string, drafts ...receipts.Draft) error {
	run := plainRun(c, tenant)
	snap, err := l.Submit(ctx, postgres.Submission{
		Tenant: tenant, Kind: postgres.KindPlain, Subject: "case:" + c.String(), Run: run.ID,
		Open: func() (postgres.Change, error) { return opening(run, drafts...), nil },
		Decide: func(s *postgres.Snapshot) (postgres.Change, error) {
			move, after := uuid.New(), *s
			after.Run.LastTransition = move
			return postgres.Change{Transition: move, Before: s, After: &after, Drafts: drafts}, nil
		},
	})
	if err == nil && snap.Case.Tenant != tenant {
		return errors.New("another tenant's case")
	}
	return err
}

func (l *trailLog) Read(ctx context.Context, tenant string, c receipts.CaseID) ([]receipts.Receipt, error) {
	return l.Receipts.Trail(ctx, tenant, c, postgres.TrailPosition{}, 10_000)
}

func (l *trailLog) TryRewrite(ctx context.Context, c receipts.CaseID, seq int64) error {
	for _, q := range []string{
		`UPDATE recourse.receipts SET body = '{}' WHERE case_id = $1 AND seq = $2`,
		`DELETE FROM recourse.receipts WHERE case_id = $1 AND seq = $2`,
	} {
		if _, err := l.db.ExecContext(ctx, q, c.String(), seq); err == nil {
			return nil
		}
	}
	_, err := l.db.ExecContext(ctx, `TRUNCATE recourse.receipts`)
	return err
}

func TestTheTrailKeepsTheContractOfALog(t *testing.T) {
	t.Parallel()
	receiptstest.TestLog(t, func(t *testing.T) receiptstest.Log {
		url := testkit.Migrated(t)
		return &trailLog{Journal: open(t, url), db: database(t, url)}
	})
}
