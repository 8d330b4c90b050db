package plans_test

import (
	"context"
	"database/sql"
	"os"
	"testing"

	"github.com/google/uuid"

	"github.com/recourse-dev/recourse/internal/testkit"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/journaltest"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/plans"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/search"
)

// A statement that takes ids reads in proportion to them, with the settings of its pool, before and after the server has
// statistics: see journaltest.CheckReadsInProportion.
func TestStatementsOfManyIDsReadInProportion(t *testing.T) {
	t.Parallel()
	databaseURL := testkit.Migrated(t)
	db, explained := testkit.OpenAsOwner(t, databaseURL), journaltest.OpenPlans(t, databaseURL)
	index, err := search.Open(databaseURL, journaltest.Open(t, databaseURL))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(index.Close)
	var searchPool journaltest.Pool
	if err := index.Do(context.Background(), "acme", func(pool *sql.DB) error { searchPool = journaltest.PoolOf(t, pool); return nil }); err != nil {
		t.Fatal(err)
	}
	var plan uuid.UUID
	newPlan := uuid.Max
	insertPlan := func() {
		journaltest.InsertDeadLetters(t, db, "acme of "+plan.String())
		plan = uuid.Must(uuid.NewV7())
		if _, err := db.Exec(`INSERT INTO recourse.bulk_items (bulk_id, position, run_id, case_id, seq, link, amount, currency, outcome)
			SELECT $1, n + 1, run, case_id, 2, sha256('x'), 1, '', CASE n % 4 WHEN 0 THEN 'failed' ELSE '' END FROM recourse.made`, plan); err != nil {
			t.Fatal(err)
		}
	}
	insertPlan()
	with := func(id *uuid.UUID, expressions ...string) func(int) []any {
		return func(n int) []any {
			return append([]any{id.String()}, journaltest.Arrays(t, db, n, "recourse.made", expressions...)...)
		}
	}
	tried := map[string]journaltest.ArrayStatement{
		"insertGivenItemsSQL": {Pool: searchPool, Args: with(&newPlan, "n + 1", "run", "case_id", "2", "sha256('x')", "1", "'EUR'::text", "''::text")},
		"setGatesSQL":         {Pool: searchPool, Args: with(&plan, "n + 1", "'held'::text")},
		"recordItemsSQL":      {Pool: journaltest.ReadPool, Args: with(&plan, "n + 1", "'done'::text", "run", "''::text")},
		"insertBatchSQL": {Pool: searchPool, Args: func(n int) []any {
			given := journaltest.Arrays(t, db, n, "recourse.made", "run", "died", "case_id")
			return []any{given[0], given[1], newPlan.String(), 0, given[2]}
		}},
	}
	for name, s := range tried {
		s.SQL = plans.ArrayStatements[name]
		tried[name] = s
	}
	journaltest.CheckArrayStatementsAreTried(t, os.DirFS("."), tried, map[string]string{"selectedLettersSQL": "part of insertBatchSQL"})
	journaltest.CheckAllReadInProportion(t, db, explained, tried, 48000, insertPlan)
}
