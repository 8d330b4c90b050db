package journaltest

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/lib/pq"

	"github.com/recourse-dev/recourse/postadjudication/internal/journal/pg"
)

// PlanNode is a node of a plan that was executed, as EXPLAIN writes it in JSON.
type PlanNode struct {
	Type     string     `json:"Node Type"`
	Relation string     `json:"Relation Name"`
	Index    string     `json:"Index Name"`
	Rows     float64    `json:"Actual Rows"` // of one loop
	Loops    float64    `json:"Actual Loops"`
	Removed  float64    `json:"Rows Removed by Filter"`
	Plans    []PlanNode `json:"Plans"`

	RemovedByJoin float64 `json:"Rows Removed by Join Filter"`
	Hit           float64 `json:"Shared Hit Blocks"` // with those of the nodes below
	Read          float64 `json:"Shared Read Blocks"`
}

// Walk calls do for a node and all below it.
func (n PlanNode) Walk(do func(PlanNode)) {
	do(n)
	for _, below := range n.Plans {
		below.Walk(do)
	}
}

// work returns the rows that the nodes of a plan have read, and the blocks.
func (n PlanNode) work() float64 {
	work := n.Hit + n.Read
	n.Walk(func(n PlanNode) { work += (n.Rows + n.Removed + n.RemovedByJoin) * n.Loops })
	return work
}

// OpenPlans opens a database for Explain, whose arguments may be in the server's binary format.
func OpenPlans(t testing.TB, databaseURL string) *sql.DB {
	t.Helper()
	db, err := pg.OpenPool(databaseURL, pg.PoolConfig{Purpose: "plans", MaxConns: 2, Binary: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// Explain executes a prepared statement with the settings of a pool, rolls back what it did, and returns its plan.
func Explain(t testing.TB, db *sql.DB, settings map[string]string, text string, arguments ...any) (plan PlanNode, whole string) {
	t.Helper()
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := tx.Rollback(); err != nil {
			t.Error(err)
		}
	}()
	for name, value := range settings {
		if _, err := tx.Exec(`SELECT set_config($1, $2, true)`, name, value); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := tx.Exec(`PREPARE explained AS ` + text); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	err = tx.QueryRow(`EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON) EXECUTE explained` + literals(t, tx, arguments)).Scan(&whole)
	if err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	if _, err := tx.Exec(`DEALLOCATE explained`); err != nil {
		t.Fatal(err)
	}
	var found []struct{ Plan PlanNode }
	if err := json.Unmarshal([]byte(whole), &found); err != nil || len(found) != 1 {
		t.Fatalf("%v: %s", err, whole)
	}
	return found[0].Plan, whole
}

// literals returns the arguments of the prepared statement as EXECUTE takes them, which has no parameters.
func literals(t testing.TB, tx *sql.Tx, arguments []any) string {
	t.Helper()
	if len(arguments) == 0 {
		return ""
	}
	var types []string
	if err := tx.QueryRow(`SELECT parameter_types::text[] FROM pg_prepared_statements WHERE name = 'explained'`).Scan(pq.Array(&types)); err != nil || len(types) != len(arguments) {
		t.Fatalf("%d arguments for the parameters %v, %v", len(arguments), types, err)
	}
	texts, into, columns := make([]sql.NullString, len(types)), make([]any, len(types)), make([]string, len(types))
	for i := range types {
		into[i], columns[i] = &texts[i], fmt.Sprintf("$%d::%s::text", i+1, types[i])
	}
	if err := tx.QueryRow(`SELECT `+strings.Join(columns, ", "), arguments...).Scan(into...); err != nil {
		t.Fatal(err)
	}
	for i := range texts {
		if columns[i] = "NULL"; texts[i].Valid {
			columns[i] = pq.QuoteLiteral(texts[i].String)
		}
	}
	return "(" + strings.Join(columns, ", ") + ")"
}
