package testkit

import (
	"database/sql"
	"errors"
	"testing"
)

// LockTables locks tables until unlock is called, or the test ends. tables is what follows LOCK TABLE: names, and
// the mode unless nobody else may read.
func LockTables(t testing.TB, db *sql.DB, tables string) (unlock func()) {
	t.Helper()
	tx, err := db.Begin()
	if err != nil {
		t.Fatal(err)
	}
	unlock = func() {
		if err := tx.Rollback(); err != nil && !errors.Is(err, sql.ErrTxDone) {
			t.Errorf("testkit: %v", err)
		}
	}
	t.Cleanup(unlock)
	if _, err := tx.Exec("LOCK TABLE " + tables); err != nil {
		t.Fatalf("testkit: %s: %v", tables, err)
	}
	return unlock
}
