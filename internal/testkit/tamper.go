package testkit

import (
	"database/sql"
	"fmt"
	"testing"
)

// Tamper changes rows without the product's checks, as the owner of the tables can: the
// triggers of the schema are off for the statements, and restored afterwards.
func Tamper(t testing.TB, db *sql.DB, statements ...string) {
	t.Helper()
	tx, err := db.Begin()
	if err != nil {
		t.Fatal(err)
	}
	do := func(statement string) {
		if _, err := tx.Exec(statement); err != nil {
			if rollbackErr := tx.Rollback(); rollbackErr != nil {
				t.Errorf("testkit: %v", rollbackErr)
			}
			t.Fatalf("testkit: %s: %v", statement, err)
		}
	}
	off, on := triggerSwitches(t, tx)
	for _, s := range off {
		do(s)
	}
	for _, s := range statements {
		do(s)
	}
	for _, s := range on {
		do(s)
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
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
