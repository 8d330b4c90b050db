package journal_test

import (
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/recourse-dev/recourse/internal/testkit"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/journaltest"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/pg"
	"github.com/recourse-dev/recourse/retrypolicy"
)

// insertRemoteRuns makes 24,000 runs of remote workers in eight queues, half of them of a tenant and half of another, at
// three priorities each: of the lower two priorities a tenth is due; a tenth of all has ended, and the others are due
// later. The table recourse.made has the ids of those that were made last.
func insertRemoteRuns(t *testing.T, db *sql.DB, tenant string) {
	t.Helper()
	for _, query := range []string{
		`DROP TABLE IF EXISTS recourse.made`,
		`CREATE TABLE recourse.made AS SELECT n, gen_random_uuid() AS run, gen_random_uuid() AS kase, CASE n % 2 WHEN 0 THEN '` + tenant + `' ELSE 'not ' || '` + tenant + `' END AS tenant,
			'q' || n / 2 % 4 AS queue, n / 8 % 3 AS priority, n / 24 % 10 AS kind FROM generate_series(0, 23999) n`,
		`INSERT INTO recourse.runs (id, case_id, tenant, family, retry_key, queue, target, policy, payload, state, live, active, attempt_count, last_transition, due_at, remote, priority)
			SELECT run, kase, tenant, 'ojs', 'job_' || n, queue, 'mail.send', '` + retrypolicy.Policy{}.Normalize().Encode() + `', '{}',
			CASE kind WHEN 1 THEN 'succeeded' WHEN 2 THEN 'scheduled' ELSE 'pending' END, kind <> 1, kind <> 1, least(kind, 1), gen_random_uuid(),
			now() + CASE WHEN kind = 1 OR kind = 0 AND priority < 2 THEN -interval '1 s' ELSE interval '1 h' END * (1 + n), true, priority FROM recourse.made`,
		`INSERT INTO recourse.cases (id, tenant, kind, subject, content, run_id, last_seq, last_link) SELECT kase, tenant, 'plain', 'ojs:' || n, 'x', run, 1, sha256('x') FROM recourse.made`,
		`INSERT INTO recourse.receipts (case_id, seq, run_id, tenant, source, subtype, actor, at, body, link)
			SELECT kase, 1, run, tenant, 'post_adjudication_retry', 'submitted', 'test', now(), '{}', sha256('x') FROM recourse.made`,
	} {
		if _, err := db.Exec(query); err != nil {
			t.Fatal(err)
		}
	}
}

// A fetch reads the runs that it takes, by the index that is made for it, and those that are due later cost
// nothing, however many they are: with the settings of the journal, with and without statistics, and as the
// server plans by itself.
func TestAFetchReadsOnlyTheRunsThatItTakes(t *testing.T) {
	t.Parallel()
	databaseURL := testkit.Migrated(t)
	db, plans := testkit.OpenAsOwner(t, databaseURL), journaltest.OpenPlans(t, databaseURL)
	insertRemoteRuns(t, db, "acme")
	const wanted, queues, priorities = 20, 3, 3
	arguments := []any{"{acme,acme,not acme}", "{q1,q3,nothing}", fmt.Sprintf("{%[1]d,%[1]d,%[1]d}", wanted), "{false,false,false}", "now", "{}", 8 << 20}
	for _, c := range []struct {
		name     string
		analyzed bool
		settings map[string]string
	}{
		{"without statistics", false, pg.PlannerSettings},
		{"with statistics", true, pg.PlannerSettings},
		{"with statistics, as the server plans", true, map[string]string{"plan_cache_mode": "force_generic_plan"}},
		{"with statistics, for these arguments", true, map[string]string{"plan_cache_mode": "force_custom_plan"}},
	} {
		if c.analyzed {
			if _, err := db.Exec(`ANALYZE recourse.runs, recourse.cases, recourse.receipts`); err != nil {
				t.Fatal(err)
			}
		}
		plan, whole := journaltest.Explain(t, plans, c.settings, journal.DueRemoteSQL, arguments...)
		if plan.Rows != 2*wanted {
			t.Errorf("%s: %g runs", c.name, plan.Rows)
		}
		read, large, fetches := 0.0, []string{"runs", "cases", "receipts"}, false
		plan.Walk(func(n journaltest.PlanNode) {
			switch {
			case n.Type == "Seq Scan" && slices.Contains(large, n.Relation), strings.HasPrefix(n.Type, "Bitmap") && (n.Relation == "runs" || strings.HasPrefix(n.Index, "runs_")):
				t.Errorf("%s: a %s of %s%s", c.name, n.Type, n.Relation, n.Index)
			case n.Index == "runs_fetch":
				fetches = true
				read += (n.Rows + n.Removed) * n.Loops
			case n.Relation == "runs" && n.Index != "runs_pkey":
				t.Errorf("%s: runs are read by %s", c.name, n.Index)
			}
		})
		// The highest priority of a queue, the next one below each, and the runs.
		if most := float64(2*wanted + queues*(priorities+1)); !fetches || read > most {
			t.Errorf("%s: %g rows are read by runs_fetch, at most %g", c.name, read, most)
		}
		if t.Failed() {
			t.Fatal(whole)
		}
	}
}
