package postgres_test

import (
	"context"
	"errors"
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
