package journal_test

import (
	"database/sql"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/testkit"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/journaltest"
	"github.com/recourse-dev/recourse/receipts"
)

// What a failover may contradict is counted by tenant: attempts whose outcome is unknown, and no others.
func TestWhatAFailoverMayContradict(t *testing.T) {
	t.Parallel()
	j := journaltest.Open(t, testkit.Migrated(t))
	for class, attempts := range map[background.Class]int{background.Unknown: 2, background.NotExecuted: 3} {
		for range attempts {
			run := applyUntilRecorded(t, j, journaltest.Transition(receipts.AttemptStarted, journaltest.Submit(t, j).Run))
			ended := journaltest.Transition(receipts.RetryScheduled, run)
			ended.Result.Class = class
			applyUntilRecorded(t, j, ended)
		}
	}
	got, err := j.Database.FailoverExposures(t.Context(), time.Now().Add(-time.Minute), time.Now().Add(time.Minute))
	if err != nil || !slices.Equal(got, []journal.FailoverExposure{{Tenant: "acme", Unknown: 2}}) {
		t.Errorf("%+v, %v", got, err)
	}
}

// A caller's transaction reads what is committed, or it submits nothing. Postgres treats READ UNCOMMITTED as READ COMMITTED.
func TestWhichTransactionsOfCallersMaySubmit(t *testing.T) {
	t.Parallel()
	url := testkit.Migrated(t)
	j, db := journaltest.Open(t, url), testkit.OpenAsOwner(t, url)
	for level, want := range map[sql.IsolationLevel]error{
		sql.LevelDefault: nil, sql.LevelReadCommitted: nil, sql.LevelReadUncommitted: nil, sql.LevelRepeatableRead: journal.ErrIsolation, sql.LevelSerializable: journal.ErrIsolation,
	} {
		tx, err := db.BeginTx(t.Context(), &sql.TxOptions{Isolation: level})
		if err != nil {
			t.Fatal(err)
		}
		if err := j.Database.CheckTx(t.Context(), tx); !errors.Is(err, want) {
			t.Errorf("%s: %v", level, err)
		}
		if err := tx.Rollback(); err != nil {
			t.Error(err)
		}
	}
}
