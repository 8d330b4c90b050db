package search_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/lib/pq"

	"github.com/recourse-dev/recourse/internal/testkit"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/journaltest"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/search"
)

// arrayExceptions are parts of statements that are tried.
var arrayExceptions = map[string]string{
	"restrictToText":        "part of the statements of heapScanConditions and restrictToPlan",
	"restrictToDeathBounds": "part of the statements of heapScanConditions, restrictToPlan and addMatching",
}

// A statement that takes ids reads in proportion to them, with the settings of its pool, before and after the server has
// statistics: see journaltest.CheckReadsInProportion.
func TestStatementsOfManyIDsReadInProportion(t *testing.T) {
	t.Parallel()
	databaseURL := testkit.Migrated(t)
	db, plans := testkit.OpenAsOwner(t, databaseURL), journaltest.OpenPlans(t, databaseURL)
	tenant := "acme"
	journaltest.InsertDeadLetters(t, db, tenant)
	pools := openIndex(t, databaseURL, journaltest.Open(t, databaseURL)).Pools()
	searchPool, heapOrder, projection := journaltest.PoolOf(t, pools["search"]), journaltest.PoolOf(t, pools["search"]), journaltest.PoolOf(t, pools["projection"])
	heapOrder[0]["enable_bitmapscan"], heapOrder[0]["enable_indexscan"], heapOrder[0]["enable_indexonlyscan"] = "on", "off", "off"
	of := func(table, order string, expressions ...string) func(int) []any {
		return func(n int) []any {
			return journaltest.Arrays(t, db, n, fmt.Sprintf(`(SELECT * FROM recourse.%s WHERE tenant = '%s' ORDER BY %s)`, table, tenant, order), expressions...)
		}
	}
	days := func(n int) []any { return append(of("facet_groups", "id", "id")(n), 0, 100_000) }
	groupColumns := []string{"tenant", "status", "family", "queue", "job_type", "outcome", "'another'::text", "class", "error_type", "currency", "signature", "constant", "replayed_by", "whole", "held", "unresolved", "eligible", "review"}
	removed, written := of("letters", "run_id DESC", "run_id"), of("letters", "run_id",
		"run_id", "tenant", "facet_group", "transaction", "submission", "escrow", "dead_at", "last_seen_at", "amount + 1", "at_risk", "attempts", "replays", "notification_number", "error_text", "trigrams::text")
	tried := map[string]journaltest.ArrayStatement{
		"foundLettersSQL":    {Pool: searchPool, Args: of("made", "n", "run")},
		"groupTalliesSQL":    {Pool: searchPool, Args: of("facet_groups", "id", "id")},
		"daysOfGroupsSQL":    {Pool: searchPool, Args: days},
		"daysOfDeathsSQL":    {Pool: searchPool, Args: days},
		"replaysSQL":         {Pool: projection, Args: of("made", "n", "case_id")},
		"facetGroupIDsSQL":   {Pool: projection, Args: of("facet_groups", "id", "digest")},
		"newFacetGroupsSQL":  {Pool: projection, Args: of("facet_groups", "id", append([]string{"sha256(digest)"}, groupColumns...)...)},
		"repairGroupsSQL":    {Pool: projection, Args: of("facet_groups", "id", append([]string{"digest"}, groupColumns...)...)},
		"upsertLettersSQL":   {Pool: projection, Args: func(n int) []any { return append(removed(n), written(n)...) }},
		"deadOfCasesSQL":     {Pool: projection, Args: of("made", "n", "case_id")},
		"removeExtraRowsSQL": {Pool: projection, Args: removed},
		"shortSubstringsSQL": {Pool: projection, Args: of("facet_groups", "id", "tenant", "constant")},
	}
	for name, s := range tried {
		s.SQL = search.ArrayStatements[name]
		tried[name] = s
	}
	for name, statement := range search.GroupStatements {
		for _, bounded := range []bool{false, true} {
			pool := searchPool
			if strings.HasPrefix(name, "heapScanConditions") {
				pool = heapOrder
			}
			args := func(n int) []any {
				var ids pq.Int64Array
				if err := ids.Scan(of("facet_groups", "id", "id")(n)[0]); err != nil {
					t.Fatal(err)
				}
				_, args := statement(tenant, ids, bounded)
				return args
			}
			query, _ := statement(tenant, []int64{1, 2, 3, 4, 5, 6}, bounded)
			tried[fmt.Sprintf("%s, bounded %t", name, bounded)] = journaltest.ArrayStatement{SQL: query, Pool: pool, Args: args}
		}
	}
	journaltest.CheckArrayStatementsAreTried(t, os.DirFS("."), tried, arrayExceptions)
	journaltest.CheckAllReadInProportion(t, db, plans, tried, 24000, func() {
		tenant = "bank"
		journaltest.InsertDeadLetters(t, db, tenant)
	})
}
