package journal_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lib/pq"

	"github.com/recourse-dev/recourse/internal/localpg"
	"github.com/recourse-dev/recourse/internal/schema"
	"github.com/recourse-dev/recourse/internal/testkit"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/journaltest"
)

// What a submission fixed can't be changed, even by the owner, nor can the identity of the database and what it is for.
func TestWhatASubmissionFixedIsRefusedToChange(t *testing.T) {
	t.Parallel()
	url := testkit.Migrated(t)
	j, db := journaltest.Open(t, url), testkit.OpenAsOwner(t, url)
	if _, err := j.Submit(context.Background(), settlementOf("esc_1", "txr_1")); err != nil {
		t.Fatal(err)
	}
	if _, err := j.Database.Install(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	for _, role := range []string{"origin", "replica"} {
		for _, statement := range []string{
			`UPDATE recourse.operations SET request = 'x'`, `UPDATE recourse.operations SET key = sha256('x')`, `UPDATE recourse.operations SET case_id = gen_random_uuid()`,
			`UPDATE recourse.runs SET id = gen_random_uuid()`, `UPDATE recourse.runs SET case_id = gen_random_uuid()`, `UPDATE recourse.runs SET tenant = 'x'`,
			`UPDATE recourse.runs SET family = 'x'`, `UPDATE recourse.runs SET retry_key = 'x'`, `UPDATE recourse.runs SET operation_key = sha256('x')`,
			`UPDATE recourse.runs SET queue = 'x'`, `UPDATE recourse.runs SET target = 'x'`, `UPDATE recourse.runs SET parent_id = gen_random_uuid()`,
			`UPDATE recourse.runs SET payload = 'x'`,
			`UPDATE recourse.cases SET id = gen_random_uuid()`, `UPDATE recourse.cases SET tenant = 'x'`, `UPDATE recourse.cases SET kind = 'plain'`,
			`UPDATE recourse.cases SET subject = 'x'`, `UPDATE recourse.cases SET escrow_id = 7`,
			`UPDATE recourse.escrows SET tenant = 'x'`, `UPDATE recourse.escrows SET reference = 'x'`, `UPDATE recourse.escrows SET held = 999999`, `UPDATE recourse.escrows SET currency = 'SEK'`,
			`UPDATE recourse.installation SET id = gen_random_uuid()`, `UPDATE recourse.installation SET demonstration = true`, `UPDATE recourse.installation SET one = true`,
			`DELETE FROM recourse.installation`, `TRUNCATE recourse.installation`,
			`UPDATE recourse.receipts SET body = 'x'`, `DELETE FROM recourse.receipts`,
		} {
			_, err := db.Exec(`SET session_replication_role = ` + role + `; ` + statement)
			var refused *pq.Error
			if !errors.As(err, &refused) || refused.Code != "42501" {
				t.Errorf("%s, as %s: %v, want a refusal", statement, role, err)
			}
		}
	}
}

// An escrow can be corrected until a case names it.
func TestAnEscrowThatNoCaseNamesCanBeCorrected(t *testing.T) {
	t.Parallel()
	db := testkit.OpenAsOwner(t, testkit.Migrated(t))
	for _, statement := range []string{
		`INSERT INTO recourse.escrows (tenant, reference, currency, held) VALUES ('acme', 'esc_x', 'EUR', 5)`, `UPDATE recourse.escrows SET held = 7, currency = 'SEK' WHERE reference = 'esc_x'`,
	} {
		if _, err := db.Exec(statement); err != nil {
			t.Errorf("%s: %v", statement, err)
		}
	}
}

// A trigger that was disabled or dropped is reported, and migrate enables it again even if
// the schema is current.
func TestDisabledTriggersAreReportedAndEnabledByMigrate(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	url := testkit.Migrated(t)
	owner, db := testkit.Owner(t, url), testkit.OpenAsOwner(t, url)
	for name, harm := range map[string]string{
		"runs.never_changed":       `ALTER TABLE recourse.runs ENABLE TRIGGER never_changed`,
		"receipts.append_only":     `ALTER TABLE recourse.receipts DISABLE TRIGGER append_only`,
		"operations.never_changed": `DROP TRIGGER never_changed ON recourse.operations`,
		"letters.counts_insert":    `ALTER TABLE recourse.letters DISABLE TRIGGER counts_insert`,
	} {
		if _, err := db.Exec(harm); err != nil {
			t.Fatal(err)
		}
		err := schema.CheckGuards(ctx, journaltest.Open(t, url).Reads())
		if !errors.Is(err, schema.ErrSchema) || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), "recourse migrate") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", name, err)
		}
		if _, _, err := schema.Migrate(ctx, owner); err != nil {
			t.Fatal(err)
		}
		if err := schema.CheckGuards(ctx, journaltest.Open(t, url).Reads()); err != nil {
			t.Errorf("%s: after migrate: %v", name, err)
		}
	}
	testkit.CheckEvidenceTriggers(t, db)
}

// A full backup restores the triggers. A data-only restore leaves them disabled, which is
// reported and repaired.
func TestARestoredDatabaseHasItsTriggers(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	source := testkit.Owner(t, testkit.Migrated(t))
	if _, err := journaltest.Open(t, source).Submit(ctx, settlementOf("esc_1", "txr_1")); err != nil {
		t.Fatal(err)
	}
	whole, data := testkit.Database(t), testkit.Owner(t, testkit.Migrated(t))
	restore(t, source, whole)
	testkit.CheckEvidenceTriggers(t, testkit.OpenAsOwner(t, whole))
	if err := schema.CheckGuards(ctx, journaltest.Open(t, whole).Reads()); err != nil {
		t.Error(err)
	}

	if _, err := testkit.OpenAsOwner(t, data).Exec(`DELETE FROM recourse.projected`); err != nil { // else its row is inserted twice
		t.Fatal(err)
	}
	restore(t, source, data, "--data-only", "--disable-triggers", "--exclude-table=recourse.schema_version")
	if err := schema.CheckGuards(ctx, journaltest.Open(t, data).Reads()); !errors.Is(err, schema.ErrSchema) {
		t.Fatalf("after a data-only restore: %v", err)
	}
	if state := testkit.EvidenceTriggers(t, testkit.OpenAsOwner(t, data)); state["receipts.append_only"] != "O" {
		t.Fatalf("%v", state)
	}
	if _, _, err := schema.Migrate(ctx, data); err != nil {
		t.Fatal(err)
	}
	testkit.CheckEvidenceTriggers(t, testkit.OpenAsOwner(t, data))
	for _, url := range []string{whole, data} {
		var runs int
		if err := testkit.OpenAsOwner(t, url).QueryRow(`SELECT count(*) FROM recourse.runs r JOIN recourse.operations o ON o.key = r.operation_key`).Scan(&runs); err != nil || runs != 1 {
			t.Errorf("%d runs, %v", runs, err)
		}
	}
}

// restore copies a database by pg_dump and psql.
func restore(t *testing.T, from, to string, args ...string) {
	t.Helper()
	bin, err := localpg.Find()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "dump.sql")
	for _, c := range [][]string{
		append([]string{"pg_dump", "--schema=recourse", "--file=" + file, "--dbname=" + from}, args...),
		{"psql", "--quiet", "--no-psqlrc", "--set=ON_ERROR_STOP=1", "--output=" + os.DevNull, "--file=" + file, "--dbname=" + to},
	} {
		if out, err := exec.Command(filepath.Join(bin, c[0]), c[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", c[0], err, out)
		}
	}
}

// Rows that runs and cases refer to can't be removed, so that no code has to check for
// them.
func TestWhatIsReferredToIsNeverRemoved(t *testing.T) {
	t.Parallel()
	db := testkit.OpenAsOwner(t, testkit.Migrated(t))
	tables := []string{"escrows", "cases", "runs", "operations", "receipts", "event_log"}
	for _, table := range tables {
		for _, statement := range []string{"DELETE FROM recourse." + table, "TRUNCATE recourse." + table} {
			_, err := db.Exec(statement)
			var refused *pq.Error
			if !errors.As(err, &refused) || refused.Code != "42501" {
				t.Errorf("%s: %v, want a refusal", statement, err)
			}
		}
	}
}
