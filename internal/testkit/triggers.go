package testkit

import (
	"database/sql"
	"testing"
)

// maintaining are the triggers that maintain the search index; they must not fire in a
// replication session, where their changes arrive as well. All others protect evidence.
var maintaining = map[string]bool{
	"letters.counts_insert": true, "letters.counts_update": true, "letters.counts_delete": true,
	"letters.counts_days_insert": true, "letters.counts_days_update": true, "letters.counts_days_delete": true, "letters.forgets_on_insert": true, "letters.forgets_on_update": true,
}

// EvidenceTriggers returns the triggers of the schema that protect evidence, by table.trigger, with
// their tgenabled.
func EvidenceTriggers(t testing.TB, db *sql.DB) map[string]string {
	t.Helper()
	rows, err := db.Query(`SELECT c.relname || '.' || t.tgname, t.tgenabled FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE n.nspname = 'recourse' AND NOT t.tgisinternal`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	out, others := map[string]string{}, 0
	for rows.Next() {
		var name, state string
		if err := rows.Scan(&name, &state); err != nil {
			t.Fatal(err)
		}
		if maintaining[name] {
			others++
			continue
		}
		out[name] = state
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	if others != len(maintaining) {
		t.Errorf("%d triggers maintain the search index, want %d", others, len(maintaining))
	}
	return out
}

// CheckEvidenceTriggers checks that every trigger that protects evidence fires in every session.
func CheckEvidenceTriggers(t testing.TB, db *sql.DB) {
	t.Helper()
	found := EvidenceTriggers(t, db)
	for name, state := range found {
		if state != "A" {
			t.Errorf("%s is %q", name, state)
		}
	}
	if len(found) < 12 {
		t.Errorf("%d triggers", len(found))
	}
}
