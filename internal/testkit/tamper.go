package testkit

import (
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/lib/pq"
)

// Tamper changes rows without the product's checks, as the owner of the tables can: the
// triggers of the schema are off for the statements, and restored afterwards. Where the server ends
// the transaction since it and one of the product wait for each other, Tamper repeats it.
func Tamper(t testing.TB, db *sql.DB, statements ...string) {
	t.Helper()
	for {
		statement, err := tamper(t, db, statements)
		if deadlock := new(pq.Error); errors.As(err, &deadlock) && deadlock.Code == "40P01" {
			continue
		}
		if err != nil {
			t.Fatalf("testkit: %s: %v", statement, err)
		}
		return
	}
}

// tamper runs the statements in one transaction, and returns the one that failed.
func tamper(t testing.TB, db *sql.DB, statements []string) (statement string, err error) {
	t.Helper()
	tx, err := db.Begin()
	if err != nil {
		return "BEGIN", err
	}
	off, on := triggerSwitches(t, tx)
	for _, statement = range slices.Concat(off, statements, on) {
		if _, err := tx.Exec(statement); err != nil {
			if rollbackErr := tx.Rollback(); rollbackErr != nil {
				t.Errorf("testkit: %v", rollbackErr)
			}
			return statement, err
		}
	}
	return "COMMIT", tx.Commit()
}

// triggerSwitches returns the statements that turn the triggers of the schema off, and back to
// their present states.
func triggerSwitches(t testing.TB, tx *sql.Tx) (off, on []string) {
	t.Helper()
	rows, err := tx.Query(`SELECT c.relname, t.tgname, t.tgenabled FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE n.nspname = 'recourse' AND NOT t.tgisinternal ORDER BY c.relname, t.tgname`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	enable := map[string]string{"O": "ENABLE", "A": "ENABLE ALWAYS", "R": "ENABLE REPLICA", "D": "DISABLE"}
	for rows.Next() {
		var table, trigger, state string
		if err := rows.Scan(&table, &trigger, &state); err != nil {
			t.Fatal(err)
		}
		off = append(off, fmt.Sprintf("ALTER TABLE recourse.%s DISABLE TRIGGER %s", table, trigger))
		on = append(on, fmt.Sprintf("ALTER TABLE recourse.%s %s TRIGGER %s", table, enable[state], trigger))
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return off, on
}

// SetEncoding gives the database of a URL another encoding, for the connections from now on. Its texts stay as they are.
func SetEncoding(t testing.TB, databaseURL, encoding string) {
	t.Helper()
	if _, err := OpenAsOwner(t, databaseURL).Exec(`UPDATE pg_database SET encoding = pg_char_to_encoding($1) WHERE datname = current_database()`, encoding); err != nil {
		t.Fatalf("testkit: %v", err)
	}
}
