package postgres_test

import (
	"errors"
	"testing"

	"github.com/lib/pq"

	"github.com/recourse-dev/recourse/internal/testkit"
)

// Runs and cases refer to rows that are never removed, so that nothing has to look
// whether they are still there.
func TestWhatIsReferredToIsNeverRemoved(t *testing.T) {
	t.Parallel()
	db := database(t, testkit.Migrated(t))
	tables := []string{"escrows", "cases", "runs", "operations", "receipts", "event_log"}
	for _, table := range tables {
		for _, statement := range []string{"DELETE FROM recourse." + table, "TRUNCATE recourse." + table} {
			_, err := db.Exec(statement)
			var refused *pq.Error
			if !errors.As(err, &refused) || refused.Code != "42501" {
				t.Errorf("%s: %v, want to be refused", statement, err)
			}
		}
	}
}
