package journal_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/lib/pq"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/testkit"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/journaltest"
)

// Which runs of unknown outcome are looked up, and of which lookups are kept: each row differs from the first in one thing.
func TestWhichRunsAreLookedUp(t *testing.T) {
	t.Parallel()
	url := testkit.Migrated(t)
	j, db, ctx := journaltest.Open(t, url), testkit.OpenAsOwner(t, url), context.Background()
	const letter = `UPDATE recourse.runs SET state = 'dead_lettered', live = false, letter = 'open', class = 'unknown', dead_at = now(), attempt_count = 1 WHERE id = $1`
	const inPlan = `WITH plan AS (
			INSERT INTO recourse.bulks (id, tenant, state, action, asked, actor, reason, parallel, throttle, items, hash, planned_at, started_by, started_at)
			VALUES (gen_random_uuid(), 'acme', 'running', 'fork', '{}', 'user:ada', 'asked', 1, 0, 1, sha256('x'), now(), 'user:ada', now()) RETURNING id)
		INSERT INTO recourse.bulk_items (bulk_id, position, run_id, case_id, seq, link, amount, currency, outcome) SELECT plan.id, 1, r.id, r.case_id, 1, 'x', 1, 'EUR', `
	unknown := map[string]struct {
		statements []string
		asked      bool // it is looked up
		kept       bool // what is known of lookups is
	}{
		"an open letter":                     {[]string{letter}, true, true},
		"it waits":                           {[]string{`UPDATE recourse.runs SET state = 'scheduled', class = 'unknown', attempt_count = 1 WHERE id = $1`}, true, true},
		"it runs":                            {[]string{`UPDATE recourse.runs SET state = 'running', class = 'unknown', attempt_count = 1, token = gen_random_uuid(), session_id = gen_random_uuid() WHERE id = $1`}, false, true},
		"its call is accepted":               {[]string{`UPDATE recourse.runs SET state = 'scheduled', reason = 'accepted', class = 'unknown', attempt_count = 1 WHERE id = $1`}, false, true},
		"it has surely not paid":             {[]string{letter, `UPDATE recourse.runs SET class = 'not_executed' WHERE id = $1`}, false, true},
		"its letter is on hold":              {[]string{letter, `INSERT INTO recourse.annotations (run_id, tenant, held, hold_reason) VALUES ($1, 'acme', true, 'asked')`}, false, true},
		"its letter was on hold":             {[]string{letter, `INSERT INTO recourse.annotations (run_id, tenant, held) VALUES ($1, 'acme', false)`}, true, true},
		"its letter is settled":              {[]string{letter, `UPDATE recourse.runs SET letter = 'reconciled', active = false WHERE id = $1`}, false, false},
		"its outcome is known":               {[]string{letter, `UPDATE recourse.cases SET unknown_open = 0 WHERE run_id = $1`}, false, false},
		"it waits, and its outcome is known": {[]string{`UPDATE recourse.runs SET state = 'scheduled', attempt_count = 1 WHERE id = $1`, `UPDATE recourse.cases SET unknown_open = 0 WHERE run_id = $1`}, false, false},
		"a plan has it":                      {[]string{letter, inPlan + `'' FROM plan, recourse.runs r WHERE r.id = $1`}, false, true},
		"a plan is done with it":             {[]string{letter, inPlan + `'done' FROM plan, recourse.runs r WHERE r.id = $1`}, true, true},
	}
	names := map[background.RunID]string{}
	for name, c := range unknown {
		s := mustReserve(t, j, "esc_"+name, name, 1)
		names[s.Run.ID] = name
		for _, statement := range append([]string{
			`UPDATE recourse.cases SET unknown_open = 1 WHERE run_id = $1`,
			`INSERT INTO recourse.lookups (run_id, tenant, asked, asked_at, answer, next_at) SELECT id, tenant, 1, now(), 'unknown', now() FROM recourse.runs WHERE id = $1`,
		}, c.statements...) {
			if _, err := db.Exec(statement, s.Run.ID.String()); err != nil {
				t.Fatalf("%s: %s: %v", name, statement, err)
			}
		}
	}
	found, err := j.Lookups.NeverLookedUp(ctx, []string{"plain"}, 100)
	if err != nil {
		t.Fatal(err)
	}
	asked := map[string]bool{}
	for _, u := range found {
		asked[names[u.Run]] = true
	}
	if u := j.Levels.Read(ctx, time.Now()).Unknown; u.ForLookup != 5 || u.ForPerson != 1 {
		t.Errorf("%+v", u)
	}
	if err := j.Lookups.DeleteResolved(ctx); err != nil {
		t.Fatal(err)
	}
	var kept []string
	if err := db.QueryRow(`SELECT array_agg(run_id::text) FROM recourse.lookups`).Scan(pq.Array(&kept)); err != nil {
		t.Fatal(err)
	}
	for id, name := range names {
		if c := unknown[name]; asked[name] != c.asked || slices.Contains(kept, id.String()) != c.kept {
			t.Errorf("%s: it is looked up: %t; lookups are kept: %t", name, asked[name], slices.Contains(kept, id.String()))
		}
	}
}
