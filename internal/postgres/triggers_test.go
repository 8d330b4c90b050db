package postgres_test

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lib/pq"

	"github.com/recourse-dev/recourse/internal/localpg"
	"github.com/recourse-dev/recourse/internal/postgres"
	"github.com/recourse-dev/recourse/internal/testkit"
)

// ordinary are the triggers that maintain the search index; they must not fire in a
// replication session, where their changes arrive as well. All others protect evidence.
var ordinary = map[string]bool{
	"letters.counts_insert": true, "letters.counts_update": true, "letters.counts_delete": true, "letters.forgets_on_insert": true, "letters.forgets_on_update": true,
}

// triggers returns the triggers of the schema, by table.trigger, with their tgenabled.
func triggers(t *testing.T, db *sql.DB) map[string]string {
	t.Helper()
	rows, err := db.Query(`SELECT c.relname || '.' || t.tgname, t.tgenabled FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE n.nspname = 'recourse' AND NOT t.tgisinternal`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	out := map[string]string{}
	for rows.Next() {
		var name, state string
		if err := rows.Scan(&name, &state); err != nil {
			t.Fatal(err)
		}
		out[name] = state
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return out
}

// checkAllTriggers checks that every evidence trigger fires in every session.
func checkAllTriggers(t *testing.T, db *sql.DB) {
	t.Helper()
	found := triggers(t, db)
	for name, state := range found {
		if state != "A" && !ordinary[name] {
			t.Errorf("%s is %q", name, state)
		}
	}
	if len(found) < 17 {
		t.Errorf("%d triggers", len(found))
	}
}

// Evidence triggers fire in every session after migrating, although the migration itself does
// not create them.
func TestTriggersAreEnabledAfterEveryMigration(t *testing.T) {
	t.Parallel()
	ctx, url := context.Background(), testkit.Database(t)
	if err := postgres.MigrateTo(ctx, url, 100); err != nil {
		t.Fatal(err)
	}
	db := database(t, url)
	for name := range triggers(t, db) {
		if !ordinary[name] {
			t.Errorf("the migration creates %s itself", name)
		}
	}
	if _, _, err := postgres.Migrate(ctx, url); err != nil {
		t.Fatal(err)
	}
	checkAllTriggers(t, db)
}

// What a submission fixed can't be changed, even by the owner.
func TestWhatASubmissionFixedIsRefusedToChange(t *testing.T) {
	t.Parallel()
	url := testkit.Migrated(t)
	j, db := open(t, url), database(t, url)
	if _, err := j.Submit(context.Background(), settlementOf("esc_1", "txr_1")); err != nil {
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
	db := database(t, testkit.Migrated(t))
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
	owner, db := testkit.Owner(t, url), database(t, url)
	for name, harm := range map[string]string{
		"runs.never_changed":       `ALTER TABLE recourse.runs ENABLE TRIGGER never_changed`,
		"receipts.append_only":     `ALTER TABLE recourse.receipts DISABLE TRIGGER append_only`,
		"operations.never_changed": `DROP TRIGGER never_changed ON recourse.operations`,
		"letters.counts_insert":    `ALTER TABLE recourse.letters DISABLE TRIGGER counts_insert`,
	} {
		if _, err := db.Exec(harm); err != nil {
			t.Fatal(err)
		}
		err := open(t, url).Database.CheckTriggers(ctx)
		if !errors.Is(err, postgres.ErrSchema) || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), "recourse migrate") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", name, err)
		}
		if _, _, err := postgres.Migrate(ctx, owner); err != nil {
			t.Fatal(err)
		}
		if err := open(t, url).Database.CheckTriggers(ctx); err != nil {
			t.Errorf("%s: after migrate: %v", name, err)
		}
	}
	checkAllTriggers(t, db)
}

// A full backup restores the triggers. A data-only restore leaves them disabled, which is
// reported and repaired.
func TestARestoredDatabaseHasItsTriggers(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	source := testkit.Owner(t, testkit.Migrated(t))
	if _, err := open(t, source).Submit(ctx, settlementOf("esc_1", "txr_1")); err != nil {
		t.Fatal(err)
	}
	whole, data := testkit.Database(t), testkit.Owner(t, testkit.Migrated(t))
	restore(t, source, whole)
	checkAllTriggers(t, database(t, whole))
	if err := open(t, whole).Database.CheckTriggers(ctx); err != nil {
		t.Error(err)
	}

	if _, err := database(t, data).Exec(`DELETE FROM recourse.projected`); err != nil { // else its row is inserted twice
		t.Fatal(err)
	}
	restore(t, source, data, "--data-only", "--disable-triggers", "--exclude-table=recourse.schema_version")
	if err := open(t, data).Database.CheckTriggers(ctx); !errors.Is(err, postgres.ErrSchema) {
		t.Fatalf("after a data-only restore: %v", err)
	}
	if state := triggers(t, database(t, data)); state["receipts.append_only"] != "O" {
		t.Fatalf("%v", state)
	}
	if _, _, err := postgres.Migrate(ctx, data); err != nil {
		t.Fatal(err)
	}
	checkAllTriggers(t, database(t, data))
	for _, url := range []string{whole, data} {
		var runs int
		if err := database(t, url).QueryRow(`SELECT count(*) FROM recourse.runs r JOIN recourse.operations o ON o.key = r.operation_key`).Scan(&runs); err != nil || runs != 1 {
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
	db := database(t, testkit.Migrated(t))
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
