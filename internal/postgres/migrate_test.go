package postgres_test

import (
	"context"
	"errors"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/recourse-dev/recourse/internal/postgres"
	"github.com/recourse-dev/recourse/internal/testkit"
)

func TestMigratingAtOnceAndAgainIsSafe(t *testing.T) {
	t.Parallel()
	url := testkit.Database(t)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			if _, _, err := postgres.Migrate(context.Background(), url); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	from, to, err := postgres.Migrate(context.Background(), url)
	if err != nil || from != to || to < 1 {
		t.Errorf("again: %d to %d, %v", from, to, err)
	}
	open(t, url)
}

func TestASchemaThatIsMissingOlderOrNewerIsNamed(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	expect := func(url, words string) {
		t.Helper()
		_, err := postgres.Open(ctx, url)
		if !errors.Is(err, postgres.ErrSchema) || !strings.Contains(err.Error(), words) || strings.Contains(err.Error(), "\n") {
			t.Errorf("want %q: %v", words, err)
		}
	}
	expect(testkit.Database(t), "run: recourse migrate")
	url := testkit.Migrated(t)
	db := database(t, url)
	if _, err := db.Exec(`INSERT INTO recourse.schema_version (version_id, is_applied) VALUES (9999, true)`); err != nil {
		t.Fatal(err)
	}
	expect(url, "newer than this program")
	if _, _, err := postgres.Migrate(ctx, testkit.Owner(t, url)); !errors.Is(err, postgres.ErrSchema) {
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
	if _, _, err := postgres.Migrate(ctx, testkit.Owner(t, url)); !errors.Is(err, postgres.ErrSchema) || !strings.Contains(err.Error(), "was made by a version before 100") || strings.Contains(err.Error(), "\n") {
		t.Errorf("migrating a schema of before: %v", err)
	}
}

func TestAWrongURLIsOneClearLine(t *testing.T) {
	t.Parallel()
	for _, url := range []string{"", "mysql://x", "postgres://", "postgres://127.0.0.1:1/x?sslmode=disable", "postgres://user:se%cret@h/x", "host=127.0.0.1 password=secret"} {
		_, err := postgres.Open(context.Background(), url)
		if err == nil || strings.Contains(err.Error(), "\n") || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v", url, err)
		}
	}
}

// The schema reads like a page: every table and view has a comment in the database, and every
// table, view, index, trigger and function one before it.
func TestEveryPartOfTheSchemaIsDescribed(t *testing.T) {
	t.Parallel()
	var undescribed string
	err := database(t, testkit.Migrated(t)).QueryRow(`SELECT coalesce(string_agg(relname, ', '), '') FROM pg_class
		WHERE relnamespace = 'recourse'::regnamespace AND relkind IN ('r', 'v') AND obj_description(oid, 'pg_class') IS NULL AND relname <> 'schema_version'`).Scan(&undescribed)
	if err != nil || undescribed != "" {
		t.Errorf("without a comment: %s, %v", undescribed, err)
	}
	page, err := os.ReadFile("migrations/00100_schema.sql")
	if err != nil {
		t.Fatal(err)
	}
	created := regexp.MustCompile(`^CREATE (?:UNIQUE )?(TABLE|VIEW|INDEX|TRIGGER|FUNCTION) (\S+)`)
	about, parts := "", 0 // the kind that the last comment describes: any until the first part follows
	for _, line := range strings.Split(string(page), "\n") {
		found := created.FindStringSubmatch(line)
		switch {
		case found != nil:
			if about != "any" && about != found[1] {
				t.Errorf("no comment before %s", found[2])
			}
			about = found[1]
			parts++
		case strings.HasPrefix(line, "-- ") && !strings.HasPrefix(line, "-- +goose"):
			about = "any"
		case line == "":
			about = ""
		}
	}
	if parts < 80 {
		t.Errorf("%d parts", parts)
	}
}

// The columns from which statements are derived are those of the schema.
func TestTheSchemaHasTheDescribedColumns(t *testing.T) {
	t.Parallel()
	db := database(t, testkit.Migrated(t))
	for table, described := range postgres.DescribedColumns() {
		rows, err := db.Query(`SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute WHERE attrelid = ('recourse.' || $1)::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attnum`, table)
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
