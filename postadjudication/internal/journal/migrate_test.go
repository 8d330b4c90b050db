package journal_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/recourse-dev/recourse/internal/schema"
	"github.com/recourse-dev/recourse/internal/testkit"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
)

func TestASchemaThatIsMissingOlderOrNewerIsNamed(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	expect := func(url, words string) {
		t.Helper()
		_, err := journal.Open(ctx, url)
		if !errors.Is(err, schema.ErrSchema) || !strings.Contains(err.Error(), words) || strings.Contains(err.Error(), "\n") {
			t.Errorf("want %q: %v", words, err)
		}
	}
	expect(testkit.Database(t), "run: recourse migrate")
	url := testkit.Migrated(t)
	db := testkit.OpenAsOwner(t, url)
	if _, err := db.Exec(`INSERT INTO recourse.schema_version (version_id, is_applied) VALUES (9999, true)`); err != nil {
		t.Fatal(err)
	}
	expect(url, "newer than this program")
	if _, _, err := schema.Migrate(ctx, testkit.Owner(t, url)); !errors.Is(err, schema.ErrSchema) {
		t.Errorf("migrating a newer schema: %v", err)
	}
	if _, err := db.Exec(`DELETE FROM recourse.schema_version WHERE version_id > 0`); err != nil {
		t.Fatal(err)
	}
	expect(url, "run: recourse migrate")

	if _, err := db.Exec(`INSERT INTO recourse.schema_version (version_id, is_applied) VALUES (48, true)`); err != nil {
		t.Fatal(err)
	}
	expect(url, "is at version 48 and was made by a version before 100; this version can't read it")
	if _, _, err := schema.Migrate(ctx, testkit.Owner(t, url)); !errors.Is(err, schema.ErrSchema) || !strings.Contains(err.Error(), "was made by a version before 100") || strings.Contains(err.Error(), "\n") {
		t.Errorf("migrating a schema of before: %v", err)
	}
}

func TestAWrongURLIsOneClearLine(t *testing.T) {
	t.Parallel()
	for _, url := range []string{"", "mysql://x", "postgres://", "postgres://127.0.0.1:1/x?sslmode=disable", "postgres://user:se%cret@h/x", "host=127.0.0.1 password=secret"} {
		_, err := journal.Open(context.Background(), url)
		if err == nil || strings.Contains(err.Error(), "\n") || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v", url, err)
		}
	}
}

// The columns from which statements are derived are those of the schema, but for what the server computes.
func TestTheSchemaHasTheDescribedColumns(t *testing.T) {
	t.Parallel()
	db := testkit.OpenAsOwner(t, testkit.Migrated(t))
	for table, described := range journal.DescribedColumns() {
		rows, err := db.Query(`SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute WHERE attrelid = ('recourse.' || $1)::regclass AND attnum > 0 AND NOT attisdropped AND attgenerated = '' ORDER BY attnum`, table)
		if err != nil {
			t.Fatal(err)
		}
		var stored [][2]string
		for rows.Next() {
			var c [2]string
			if err := rows.Scan(&c[0], &c[1]); err != nil {
				t.Fatal(err)
			}
			stored = append(stored, c)
		}
		if err := errors.Join(rows.Err(), rows.Close()); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(described, stored) {
			t.Errorf("%s: described %v, in the schema %v", table, described, stored)
		}
	}
}
