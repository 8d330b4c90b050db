package schema_test

import (
	"flag"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/recourse-dev/recourse/internal/schema"
	"github.com/recourse-dev/recourse/internal/schema/migrations"
	"github.com/recourse-dev/recourse/internal/schema/stored"
	"github.com/recourse-dev/recourse/internal/testkit"
)

var rewrite = flag.Bool("rewrite", false, "rewrite stored/guards.sql")

// What the code holds of the definitions of guards is what the migrations alone make: Migrate restores what the code holds.
func TestTheGuardsAreThoseThatAreCommitted(t *testing.T) {
	t.Parallel()
	url := testkit.Database(t)
	newest, err := migrations.Newest()
	if err == nil {
		err = schema.MigrateTo(t.Context(), url, newest)
	}
	if err != nil {
		t.Fatal(err)
	}
	found, err := stored.ReadGuards(t.Context(), testkit.OpenAsOwner(t, url))
	if err != nil {
		t.Fatal(err)
	}
	const file = "stored/guards.sql"
	text := stored.EncodeGuards(found)
	if *rewrite {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	committed, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(committed) != text {
		t.Error("what the migrations define differs from stored/guards.sql; if the change is intended: go test ./internal/schema -run TheGuardsAreThoseThatAreCommitted -rewrite")
	}
}

// Whoever hollows out what protects evidence, by its owner's rights, is found by what it does then, whatever it is called and whether it is
// on; and migrate restores it.
func TestWhatProtectsEvidenceIsComparedByWhatItDoes(t *testing.T) {
	t.Parallel()
	url := testkit.Owner(t, testkit.Migrated(t))
	db := testkit.OpenAsOwner(t, url)
	for name, harm := range map[string]string{
		"function refuse_rewrite()":             `CREATE OR REPLACE FUNCTION recourse.refuse_rewrite() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'`,
		"function refuse_change()":              `ALTER FUNCTION recourse.refuse_change() SET session_replication_role = replica`,
		"receipts.append_only":                  `CREATE OR REPLACE TRIGGER append_only BEFORE TRUNCATE ON recourse.receipts FOR EACH STATEMENT EXECUTE FUNCTION recourse.refuse_rewrite(); ALTER TABLE recourse.receipts ENABLE ALWAYS TRIGGER append_only`,
		"event_log.append_only":                 `CREATE FUNCTION public.refuse_rewrite() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'; CREATE OR REPLACE TRIGGER append_only BEFORE DELETE OR UPDATE OR TRUNCATE ON recourse.event_log FOR EACH STATEMENT EXECUTE FUNCTION public.refuse_rewrite(); ALTER TABLE recourse.event_log ENABLE ALWAYS TRIGGER append_only`,
		"operations.never_changed":              `CREATE OR REPLACE TRIGGER never_changed BEFORE UPDATE ON recourse.operations FOR EACH STATEMENT WHEN (false) EXECUTE FUNCTION recourse.refuse_change(); ALTER TABLE recourse.operations ENABLE ALWAYS TRIGGER never_changed`,
		"runs.never_removed":                    `ALTER TABLE recourse.runs DISABLE TRIGGER never_removed`,
		"cases.never_changed":                   `DROP TRIGGER never_changed ON recourse.cases`,
		"letters.counts_insert":                 `ALTER TABLE recourse.letters DISABLE TRIGGER counts_insert`,
		"constraint escrows.conservation":       `ALTER TABLE recourse.escrows DROP CONSTRAINT conservation`,
		"constraint runs.live_is_state":         `ALTER TABLE recourse.runs DROP CONSTRAINT live_is_state, ADD CONSTRAINT live_is_state CHECK (live IS NOT NULL)`,
		"constraint operations.operations_pkey": `ALTER TABLE recourse.operations DROP CONSTRAINT operations_pkey`,
		"index runs_one_case":                   `DROP INDEX recourse.runs_one_case; CREATE UNIQUE INDEX runs_one_case ON recourse.runs (case_id, id) WHERE active`,
	} {
		for _, path := range []string{"pg_catalog", "recourse, public"} { // names are written as the schemas of the path need it
			if _, err := db.Exec(harm); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			with := testkit.OpenAsOwner(t, url+"&search_path="+strings.ReplaceAll(path, " ", "%20"))
			off, err := schema.GuardsOff(t.Context(), with)
			if err != nil || !slices.Equal(off, []string{name}) {
				t.Errorf("%s: %v, %v", name, off, err)
			}
			if _, _, err := schema.Migrate(t.Context(), url); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if off, err := schema.GuardsOff(t.Context(), with); err != nil || len(off) > 0 {
				t.Errorf("%s: after migrate: %v, %v", name, off, err)
			}
			if _, err := db.Exec(`DROP FUNCTION IF EXISTS public.refuse_rewrite()`); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// Odd defaults of a database change neither what is migrated nor what is compared.
func TestDefaultsOfADatabaseChangeNoGuard(t *testing.T) {
	t.Parallel()
	url := testkit.Database(t)
	for _, setting := range []string{
		`array_nulls = off`, `standard_conforming_strings = off`, `default_transaction_isolation = serializable`, `synchronous_commit = off`, `quote_all_identifiers = on`, `search_path = recourse, public`, `bytea_output = escape`,
	} {
		if _, err := testkit.OpenAsOwner(t, url).Exec(`DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET ` + setting + `', current_database()); END $$`); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if _, _, err := schema.Migrate(t.Context(), url); err != nil {
			t.Fatal(err)
		}
		if off, err := schema.GuardsOff(t.Context(), testkit.OpenAsOwner(t, url)); err != nil || len(off) > 0 {
			t.Fatalf("%v, %v", off, err)
		}
	}
}
