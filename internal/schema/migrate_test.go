package schema_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/recourse-dev/recourse/internal/schema"
	"github.com/recourse-dev/recourse/internal/schema/stored"
	"github.com/recourse-dev/recourse/internal/testkit"
)

func TestMain(m *testing.M) { os.Exit(testkit.Main(m)) }

func TestMigratingAtOnceAndAgainIsSafe(t *testing.T) {
	t.Parallel()
	url := testkit.Database(t)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			if _, _, err := schema.Migrate(context.Background(), url); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	from, to, err := schema.Migrate(context.Background(), url)
	if err != nil || from != to || to < 1 {
		t.Errorf("again: %d to %d, %v", from, to, err)
	}
	if err := stored.CheckSchema(context.Background(), testkit.OpenAsOwner(t, url)); err != nil {
		t.Error(err)
	}
}

// A database that can't keep every text is refused before anything is written to it.
func TestADatabaseOfAnotherEncodingIsNotMigrated(t *testing.T) {
	t.Parallel()
	for _, encoding := range []string{"LATIN1", "SQL_ASCII"} {
		url := testkit.Database(t)
		testkit.SetEncoding(t, url, encoding)
		if _, _, err := schema.Migrate(t.Context(), url); !errors.Is(err, schema.ErrSchema) || !strings.Contains(err.Error(), encoding) || !strings.Contains(err.Error(), "UTF8") {
			t.Errorf("%s: %v", encoding, err)
		}
		var there bool
		if err := testkit.OpenAsOwner(t, url).QueryRow(`SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = 'recourse')`).Scan(&there); err != nil || there {
			t.Errorf("%s: a schema was created: %t, %v", encoding, there, err)
		}
	}
}

// Evidence triggers fire in every session after migrating, although the migration itself does
// not create them.
func TestTriggersAreEnabledAfterEveryMigration(t *testing.T) {
	t.Parallel()
	ctx, url := context.Background(), testkit.Database(t)
	if err := schema.MigrateTo(ctx, url, 105); err != nil {
		t.Fatal(err)
	}
	db := testkit.OpenAsOwner(t, url)
	for name := range testkit.EvidenceTriggers(t, db) {
		t.Errorf("the migration creates %s itself", name)
	}
	if _, _, err := schema.Migrate(ctx, url); err != nil {
		t.Fatal(err)
	}
	testkit.CheckEvidenceTriggers(t, db)
}

// A database of before has the counts of days after it is migrated.
func TestDaysOfOldLettersAreCounted(t *testing.T) {
	t.Parallel()
	ctx, url := context.Background(), testkit.Database(t)
	if err := schema.MigrateTo(ctx, url, 103); err != nil {
		t.Fatal(err)
	}
	db := testkit.OpenAsOwner(t, url)
	if _, err := db.Exec(`INSERT INTO recourse.facet_groups (digest, tenant, status, family, queue, job_type, outcome, reason_code, class, error_type, currency, signature, constant, whole, replayed_by, held, unresolved, eligible, review)
		SELECT sha256('a'), 'acme', 'open', 'a', 'a:0', 'a', '', '', '', '', 'EUR', 'x', 'x', true, '', false, false, false, false;
		INSERT INTO recourse.letters (run_id, tenant, facet_group, transaction, submission, escrow, dead_at, last_seen_at, amount, at_risk, attempts, replays, notification_number, error_text)
		SELECT gen_random_uuid(), 'acme', id, '', '', '', at, at, 5, 5, 3, 0, 0, '' FROM recourse.facet_groups, unnest(ARRAY[timestamptz '2026-11-01 23:59:59.999999Z', '2026-11-02 00:00Z', '2026-11-02 12:00Z']) AS at`); err != nil {
		t.Fatal(err)
	}
	if _, _, err := schema.Migrate(ctx, url); err != nil {
		t.Fatal(err)
	}
	var days string
	err := db.QueryRow(`SELECT string_agg(concat_ws(' ', date '1970-01-01' + day, letters, at_risk, attempts), ', ' ORDER BY day) FROM recourse.facet_group_days`).Scan(&days)
	if err != nil || days != "2026-11-01 1 5 3, 2026-11-02 2 10 6" {
		t.Errorf("%s, %v", days, err)
	}
}

// The schema reads like a page: every table and view has a comment in the database, and every
// table, view, index, trigger and function, and every change of a table, one before it.
func TestEveryPartOfTheSchemaIsDescribed(t *testing.T) {
	t.Parallel()
	var undescribed string
	err := testkit.OpenAsOwner(t, testkit.Migrated(t)).QueryRow(`SELECT coalesce(string_agg(relname, ', '), '') FROM pg_class
		WHERE relnamespace = 'recourse'::regnamespace AND relkind IN ('r', 'v') AND obj_description(oid, 'pg_class') IS NULL AND relname <> 'schema_version'`).Scan(&undescribed)
	if err != nil || undescribed != "" {
		t.Errorf("without a comment: %s, %v", undescribed, err)
	}
	pages, err := filepath.Glob("migrations/*.sql")
	if err != nil {
		t.Fatal(err)
	}
	parts := 0
	for _, name := range pages {
		page, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		undescribed, n := partsOf(string(page))
		for _, part := range undescribed {
			t.Errorf("%s: no comment before %s", name, part)
		}
		parts += n
	}
	if len(pages) < 6 || parts < 103 {
		t.Errorf("%d files, %d parts", len(pages), parts)
	}
	if undescribed, n := partsOf("-- a\nCREATE TABLE b (\nCREATE INDEX c ON b\n\nALTER TABLE b\n-- d\nALTER TABLE b"); n != 4 || !slices.Equal(undescribed, []string{"c", "b"}) {
		t.Errorf("found %q of %d parts", undescribed, n)
	}
}

// partsOf returns the parts of a page of the schema that no comment describes, and how many
// parts it has in all.
func partsOf(page string) (undescribed []string, parts int) {
	part := regexp.MustCompile(`^(?:CREATE (?:UNIQUE )?(TABLE|VIEW|INDEX|TRIGGER|FUNCTION)|(ALTER) TABLE) (\S+)`)
	about := "" // the kind that the last comment describes: any until the first part follows
	for _, line := range strings.Split(page, "\n") {
		found := part.FindStringSubmatch(line)
		switch {
		case found != nil:
			kind := found[1] + found[2]
			if about != "any" && about != kind {
				undescribed = append(undescribed, found[3])
			}
			about = kind
			parts++
		case strings.HasPrefix(line, "-- ") && !strings.HasPrefix(line, "-- +goose"):
			about = "any"
		case line == "":
			about = ""
		}
	}
	return undescribed, parts
}
