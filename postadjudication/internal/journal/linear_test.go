package journal_test

import (
	"database/sql"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/recourse-dev/recourse/internal/testkit"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/pg"
)

// arrayArguments are the arguments of the statements. idArguments says what their arrays are.
var arrayArguments = map[string]string{
	"notify again": `($runs, $ones)`, "statuses of runs": `($runs)`, "snapshots of runs": `($runs)`, "list of runs": `($runs, 1000000000)`,
	"dead letters": `($runs)`, "handlers": `($runs, 'acme')`, "active runs": `('acme', 'plain', $subjects)`, "replays of lineages": `($runs, 'acme')`,
	"submitters": `('acme', $runs)`, "outputs": `('acme', $runs, 1000000000)`, "newest receipts": `('acme', $cases, $ones, 1000000000)`,
	"extend leases": `($runs, $texts, $texts, $texts, 0)`, "count replays": `('rule', 'acme', now(), $runs, 3)`, "fingerprints": `($cases)`,
}

// A statement that takes ids reads at most twelve times as much for ten times as many, with the settings of the journal
// and as the server plans, for all arguments and for these. A plan may read the tables whole, ten times, instead: it reads no more for more ids.
func TestStatementsOfManyIDsReadInProportion(t *testing.T) {
	t.Parallel()
	db := testkit.OpenAsOwner(t, testkit.Migrated(t))
	insertRemoteRuns(t, db)
	const few, many, most, whole = 300, 3000, 12, 10 * 24000
	var arguments [2][]string
	for i, n := range []int{few, many} {
		arguments[i] = idArguments(t, db, n)
	}
	if len(arrayArguments) != len(journal.ArrayStatements) {
		t.Errorf("%d of %d statements", len(arrayArguments), len(journal.ArrayStatements))
	}
	for _, analyzed := range []bool{false, true} {
		if analyzed {
			if _, err := db.Exec(`ANALYZE`); err != nil {
				t.Fatal(err)
			}
		}
		for _, name := range slices.Sorted(maps.Keys(journal.ArrayStatements)) {
			for _, settings := range []map[string]string{pg.PlannerSettings, {"plan_cache_mode": "force_generic_plan"}, {"plan_cache_mode": "force_custom_plan"}} {
				var read [2]float64
				var plans [2]string
				for i := range read {
					plan, text := explainPrepared(t, db, settings, journal.ArrayStatements[name], strings.NewReplacer(arguments[i]...).Replace(arrayArguments[name]))
					plan.walk(func(n plannedNode) { read[i] += (n.Rows + n.Removed + n.RemovedByJoin) * n.Loops })
					read[i] += plan.Hit + plan.Read
					plans[i] = text
				}
				if read[1] > most*read[0]+whole {
					t.Errorf("%s, %v, analyzed %t: %.0f rows and blocks for %d ids, %.0f for %d\n%s", name, settings, analyzed, read[0], few, read[1], many, plans[1])
				}
			}
		}
	}
}

// idArguments returns arrays of the first n runs as arrayArguments names them, as SQL literals.
func idArguments(t *testing.T, db *sql.DB, n int) []string {
	t.Helper()
	var runs, cases, subjects string
	err := db.QueryRow(`SELECT array_agg(run)::text, array_agg(kase)::text, array_agg('ojs:' || n)::text FROM recourse.made WHERE n < $1`, n).Scan(&runs, &cases, &subjects)
	if err != nil {
		t.Fatal(err)
	}
	array := func(of string) string { return "'{" + strings.TrimSuffix(strings.Repeat(of+",", n), ",") + "}'" }
	return []string{"$runs", "'" + runs + "'", "$cases", "'" + cases + "'", "$subjects", "'" + subjects + "'", "$ones", array("1"), "$texts", array(`""`)}
}
