package journaltest

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
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

	RemovedByJoin float64  `json:"Rows Removed by Join Filter"`
	Hit           float64  `json:"Shared Hit Blocks"` // with those of the nodes below
	Read          float64  `json:"Shared Read Blocks"`
	Filter        string   `json:"Filter"`
	JoinFilter    string   `json:"Join Filter"`
	Output        []string `json:"Output"`
}

// Walk calls do for a node and all below it.
func (n PlanNode) Walk(do func(PlanNode)) {
	do(n)
	for _, below := range n.Plans {
		below.Walk(do)
	}
}

// searchesArray matches a condition of a plan that compares each row with the elements of an argument, one after the
// other. Of the elements of a literal the server makes a hash table.
var searchesArray = regexp.MustCompile(`\b(?:ANY|ALL) \(\(*\$(\d+)`)

// work returns the rows that the nodes of a plan have read, the blocks, and the elements with which the rows were
// compared. lengths are those of the arguments that are arrays.
func (n PlanNode) work(lengths []int) float64 {
	work := n.Hit + n.Read
	n.Walk(func(n PlanNode) {
		compared := 1
		for _, found := range searchesArray.FindAllStringSubmatch(strings.Join(append(n.Output, n.Filter, n.JoinFilter), "; "), -1) {
			if i, err := strconv.Atoi(found[1]); err == nil && i <= len(lengths) {
				compared += lengths[i-1]
			}
		}
		work += (n.Rows + n.Removed + n.RemovedByJoin) * n.Loops * float64(compared)
	})
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
	plan, whole, _ = explain(t, db, settings, text, arguments)
	return plan, whole
}

// explain is Explain, and returns the lengths of the arguments that are arrays.
func explain(t testing.TB, db *sql.DB, settings map[string]string, text string, arguments []any) (plan PlanNode, whole string, lengths []int) {
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
	texts, lengths := literals(t, tx, arguments)
	err = tx.QueryRow(`EXPLAIN (ANALYZE, BUFFERS, VERBOSE, TIMING OFF, FORMAT JSON) EXECUTE explained` + texts).Scan(&whole)
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
	return found[0].Plan, whole, lengths
}

// literals returns the arguments of the prepared statement as EXECUTE takes them, which has no parameters, and the
// lengths of those that are arrays.
func literals(t testing.TB, tx *sql.Tx, arguments []any) (literals string, lengths []int) {
	t.Helper()
	if len(arguments) == 0 {
		return "", nil
	}
	var types []string
	if err := tx.QueryRow(`SELECT parameter_types::text[] FROM pg_prepared_statements WHERE name = 'explained'`).Scan(pq.Array(&types)); err != nil || len(types) != len(arguments) {
		t.Fatalf("%d arguments for the parameters %v, %v", len(arguments), types, err)
	}
	texts, into, columns := make([]sql.NullString, len(types)), make([]any, len(types)), make([]string, len(types))
	lengths = make([]int, len(types))
	for i := range types {
		into[i], columns[i] = &texts[i], fmt.Sprintf("$%d::%s::text", i+1, types[i])
		if strings.HasSuffix(types[i], "[]") {
			into, columns = append(into, &lengths[i]), append(columns, fmt.Sprintf("coalesce(cardinality($%d), 0)", i+1))
		}
	}
	if err := tx.QueryRow(`SELECT `+strings.Join(columns, ", "), arguments...).Scan(into...); err != nil {
		t.Fatal(err)
	}
	for i := range texts {
		if columns[i] = "NULL"; texts[i].Valid {
			columns[i] = pq.QuoteLiteral(texts[i].String)
		}
	}
	return "(" + strings.Join(columns[:len(texts)], ", ") + ")", lengths
}
