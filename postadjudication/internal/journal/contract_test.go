package journal_test

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"testing"

	"github.com/google/uuid"

	"github.com/recourse-dev/recourse/internal/testkit"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/journaltest"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/receipts/receiptstest"
)

func TestMain(m *testing.M) { os.Exit(testkit.Main(m)) }

// trailLog implements receiptstest.Log with the journal.
type trailLog struct {
	*journal.Journal
	db *sql.DB
}

func (l *trailLog) Append(ctx context.Context, c receipts.CaseID, tenant string, drafts ...receipts.Draft) error {
	run := journaltest.PlainRun(c, tenant)
	snap, err := l.Submit(ctx, journal.Submission{
		Tenant: tenant, Kind: journal.KindPlain, Subject: "case:" + c.String(), Run: run.ID,
		Open: func() (journal.Change, error) { return journaltest.Opening(run, drafts...), nil },
		Decide: func(s *journal.Snapshot) (journal.Change, error) {
			move, after := uuid.New(), *s
			after.Run.LastTransition = move
			return journal.Change{Transition: move, Before: s, After: &after, Drafts: drafts}, nil
		},
	})
	if err == nil && snap.Case.Tenant != tenant {
		return errors.New("another tenant's case")
	}
	return err
}

func (l *trailLog) Read(ctx context.Context, tenant string, c receipts.CaseID) ([]receipts.Receipt, error) {
	return l.Receipts.Trail(ctx, tenant, c, journal.TrailCursor{}, 10_000)
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
		return &trailLog{Journal: journaltest.Open(t, url), db: testkit.OpenAsOwner(t, url)}
	})
}
