package trail_test

import (
	"context"
	"database/sql"
	"os"
	"testing"
	"time"

	"github.com/google/uuid"
	_ "github.com/lib/pq"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/testkit"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
	"github.com/recourse-dev/recourse/postadjudication/internal/trail"
	"github.com/recourse-dev/recourse/receipts"
)

func TestMain(m *testing.M) { os.Exit(testkit.Main(m)) }

// oneReceipt submits a plain run of acme, numbers its receipt, and opens the database as its
// owner.
func oneReceipt(t *testing.T, url string) *sql.DB {
	t.Helper()
	ctx := context.Background()
	j, err := journal.Open(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(j.Close)
	id, caseID := background.RunID(uuid.Must(uuid.NewV7())), receipts.CaseID(uuid.New())
	run := background.Run{
		ID: id, Case: caseID, Tenant: "acme", Family: "plain", RetryKey: id.String(), Queue: "plain:0", Target: "plain", Payload: []byte("{}"),
		State: background.Pending, LastTransition: uuid.New(), DueAt: time.Now().UTC().Truncate(time.Microsecond), NotificationNumber: 1,
	}
	_, err = j.Submit(ctx, journal.Submission{
		Tenant: "acme", Kind: journal.KindPlain, Subject: "case:" + caseID.String(), Run: id,
		Open: func() (journal.Change, error) {
			return journal.Change{
				Transition: run.LastTransition,
				After:      &journal.Snapshot{Run: run, Case: journal.Case{ID: caseID, Tenant: "acme", Kind: journal.KindPlain, Subject: "case:" + caseID.String(), ActiveRun: id}},
				Drafts:     []receipts.Draft{{Run: id, Subtype: receipts.Submitted, Actor: "test", At: run.DueAt, Payload: receipts.Payload{Family: run.Family, RetryKey: run.RetryKey}}},
			}, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := j.Outbox.Drain(ctx); err != nil {
		t.Fatal(err)
	}
	return testkit.OpenAsOwner(t, url)
}

// Errors in the order of events are found: a receipt without a place, one with two, a place
// without a receipt, receipts of a case in the wrong order, a missing number.
func TestAWrongOrderOfEventsIsFound(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for name, damage := range map[string]string{
		"no place":    `DELETE FROM recourse.event_log`,
		"two places":  `INSERT INTO recourse.outbox (tenant, case_ids, seqs) SELECT tenant, case_ids, seqs FROM recourse.event_log`,
		"no receipt":  `INSERT INTO recourse.outbox (tenant, case_ids, seqs) SELECT tenant, case_ids, '{9}' FROM recourse.event_log`,
		"other owner": `INSERT INTO recourse.event_log (last, tenant, case_ids, seqs) SELECT 2, 'bank', case_ids, seqs FROM recourse.event_log`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := testkit.Migrated(t)
			db := oneReceipt(t, url)
			tenant := "acme"
			if name == "other owner" {
				tenant = "bank"
			}
			misplaced := func() (what []string) {
				if err := trail.New(db).Each(ctx, trail.CheckOrder, trail.Scope{Tenant: tenant}, func(d trail.Discrepancy) { what = append(what, d.Message) }); err != nil {
					t.Fatal(err)
				}
				return what
			}
			if what := misplaced(); len(what) != 0 {
				t.Fatalf("before: %q", what)
			}
			testkit.Tamper(t, db, damage)
			if what := misplaced(); len(what) == 0 {
				t.Error("not found")
			}
		})
	}
	t.Run("gap", func(t *testing.T) {
		t.Parallel()
		url := testkit.Migrated(t)
		db := oneReceipt(t, url)
		gaps := func() (at []int64) {
			if err := trail.New(db).Each(ctx, trail.CheckGaps, trail.Scope{}, func(d trail.Discrepancy) { at = append(at, d.From) }); err != nil {
				t.Fatal(err)
			}
			return at
		}
		if at := gaps(); len(at) != 0 {
			t.Fatalf("before: %d", at)
		}
		if _, err := db.Exec(`INSERT INTO recourse.event_log (last, tenant, case_ids, seqs) SELECT 3, tenant, case_ids, seqs FROM recourse.event_log`); err != nil {
			t.Fatal(err)
		}
		if at := gaps(); len(at) != 1 || at[0] != 2 {
			t.Errorf("%d", at)
		}
	})
}
