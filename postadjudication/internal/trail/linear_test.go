package trail_test

import (
	"os"
	"testing"

	"github.com/recourse-dev/recourse/internal/testkit"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/journaltest"
	"github.com/recourse-dev/recourse/postadjudication/internal/trail"
)

// A statement that takes ids reads in proportion to them, before and after the server has statistics: see
// journaltest.CheckReadsInProportion.
func TestStatementsOfManyIDsReadInProportion(t *testing.T) {
	t.Parallel()
	databaseURL := testkit.Migrated(t)
	db, plans := testkit.OpenAsOwner(t, databaseURL), journaltest.OpenPlans(t, databaseURL)
	tenant := "acme"
	journaltest.InsertDeadLetters(t, db, tenant)
	made := func(expression string) func(int) []any {
		return func(n int) []any { return journaltest.Arrays(t, db, n, "recourse.made", expression) }
	}
	tried := map[string]journaltest.ArrayStatement{
		"ownersSQL":            {Args: made("case_id")},
		"countCasesSQL":        {Args: made("tenant || nullif(n, 1)")},
		"annotationsOfRunsSQL": {Args: func(n int) []any { return append(made("run")(n), tenant) }},
	}
	for name, s := range tried {
		s.SQL, s.Pool = trail.ArrayStatements[name], journaltest.ReadPool
		tried[name] = s
	}
	journaltest.CheckArrayStatementsAreTried(t, os.DirFS("."), tried, map[string]string{
		"operationMismatchSQL":         "the operation logs, of which there are a few",
		"annotationsWithoutReceiptSQL": "the subtypes of receipts that annotate",
	})
	journaltest.CheckAllReadInProportion(t, db, plans, tried, 48000, func() {
		tenant = "bank"
		journaltest.InsertDeadLetters(t, db, tenant)
	})
}
