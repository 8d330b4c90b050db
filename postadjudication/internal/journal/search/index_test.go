package search_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"sync"
	"testing"

	"github.com/google/uuid"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/testkit"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/journaltest"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/search"
	"github.com/recourse-dev/recourse/receipts"
)

func TestMain(m *testing.M) { os.Exit(testkit.Main(m)) }

// die submits a run and lets its only attempt fail.
func die(t testing.TB, j *journal.Journal) background.Run {
	t.Helper()
	run := journaltest.Submit(t, j).Run
	for _, fact := range []receipts.Subtype{receipts.AttemptStarted, receipts.DeadLettered} {
		m := journaltest.Transition(fact, run)
		after, err := j.CommitTransition(context.Background(), run.ID, m.ID, journaltest.Decide(m))
		if err != nil {
			t.Fatal(err)
		}
		run = after.Run
	}
	return run
}

// openIndex opens the search index of a journal.
func openIndex(t testing.TB, url string, j *journal.Journal) *search.Index {
	t.Helper()
	i, err := search.Open(url, j)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(i.Close)
	return i
}

// indexText returns the whole search index as text.
func indexText(t testing.TB, db *sql.DB) (text string, n int) {
	t.Helper()
	if err := db.QueryRow(`SELECT coalesce(string_agg(l::text || s.status || s.letters, E'\n' ORDER BY l.run_id), ''), count(*)
		FROM recourse.letters l JOIN recourse.facet_groups s ON s.id = l.facet_group`).Scan(&text, &n); err != nil {
		t.Fatal(err)
	}
	return text, n
}

func catchUp(t testing.TB, index *search.Index) {
	t.Helper()
	if err := index.CatchUp(context.Background()); err != nil {
		t.Fatal(err)
	}
}

// What was committed before a catch-up is found after it, whether it was numbered or not,
// and even while other processes drain, number and project.
func TestCommittedLettersAreIndexedAfterCatchUp(t *testing.T) {
	t.Parallel()
	url := testkit.Migrated(t)
	db := testkit.OpenAsOwner(t, url)
	var all sync.WaitGroup
	for w := range 6 {
		j := journaltest.Open(t, url)
		index := openIndex(t, url, j)
		all.Go(func() {
			for i := range 15 {
				run := die(t, j)
				if i%4 == w%4 {
					if err := j.Outbox.Drain(context.Background()); err != nil {
						t.Error(err)
					}
				}
				if i%3 == w%3 {
					if _, err := index.Project(context.Background()); err != nil {
						t.Error(err)
					}
				}
				catchUp(t, index)
				var there bool
				if err := db.QueryRow(`SELECT EXISTS (SELECT FROM recourse.letters WHERE run_id = $1)`, run.ID.String()).Scan(&there); err != nil || !there {
					t.Errorf("run %s is not in the index: %v", run.ID, err)
				}
			}
		})
	}
	all.Wait()
	var shaped int
	if err := db.QueryRow(`SELECT sum(letters) FROM recourse.facet_groups`).Scan(&shaped); err != nil || shaped != 90 {
		t.Errorf("%d letters by facet group, %v", shaped, err)
	}
}

// A repeated step changes nothing, an interrupted one has no effect, and a lost index is
// rebuilt with the same rows.
func TestProjectionIsIdempotent(t *testing.T) {
	t.Parallel()
	url := testkit.Migrated(t)
	j, db := journaltest.Open(t, url), testkit.OpenAsOwner(t, url)
	index := openIndex(t, url, j)
	for range 20 {
		die(t, j)
	}
	if err := j.Outbox.Drain(context.Background()); err != nil {
		t.Fatal(err)
	}
	catchUp(t, index)
	want, n := indexText(t, db)
	if n != 20 {
		t.Fatalf("%d letters", n)
	}
	for what, damage := range map[string]string{
		"again":      `UPDATE recourse.projected SET last = 0`,
		"half again": `UPDATE recourse.projected SET last = 17`,
		"lost half":  `UPDATE recourse.projected SET last = 0; DELETE FROM recourse.letters WHERE run_id IN (SELECT run_id FROM recourse.letters LIMIT 9)`,
		"lost":       `UPDATE recourse.projected SET last = 0; DELETE FROM recourse.letters`,
		"stale":      `UPDATE recourse.projected SET last = 0; UPDATE recourse.letters SET attempts = 7, replays = 3`,
	} {
		if _, err := db.Exec(damage); err != nil {
			t.Fatal(err)
		}
		catchUp(t, index)
		if got, _ := indexText(t, db); got != want {
			t.Errorf("%s:\n%s\nwant\n%s", what, got, want)
		}
	}
	if _, err := db.Exec(`CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''no''; END';
		CREATE TRIGGER fail BEFORE UPDATE ON recourse.projected FOR EACH ROW EXECUTE FUNCTION fail()`); err != nil {
		t.Fatal(err)
	}
	die(t, j)
	if err := index.CatchUp(context.Background()); err != nil { // receipts without a number do not change the position
		t.Fatal(err)
	}
	if err := j.Outbox.Drain(context.Background()); err != nil {
		t.Fatal(err)
	}
	die(t, j)
	if err := index.CatchUp(context.Background()); err == nil {
		t.Error("a step without its position was committed")
	}
	if _, n := indexText(t, db); n != 21 {
		t.Errorf("%d letters after a failed step", n)
	}
}

// Purged letters are not in the index.
func TestPurgedLettersAreNotIndexed(t *testing.T) {
	t.Parallel()
	url := testkit.Migrated(t)
	j, db := journaltest.Open(t, url), testkit.OpenAsOwner(t, url)
	index := openIndex(t, url, j)
	run := die(t, j)
	catchUp(t, index)
	if _, err := db.Exec(`UPDATE recourse.runs SET letter = 'purged', active = false`); err != nil {
		t.Fatal(err)
	}
	f := search.Filter{}
	o := search.Order{Column: search.ByDeath}
	if found, _, _, err := index.Search(context.Background(), run.Tenant, f, o, search.Position{}, 0, 10); err != nil || len(found) != 0 {
		t.Errorf("before the projection: %d letters, %v", len(found), err)
	}
	if _, err := db.Exec(`INSERT INTO recourse.outbox (tenant, case_ids, seqs) SELECT tenant, ARRAY[case_id], ARRAY[1] FROM recourse.runs`); err != nil {
		t.Fatal(err)
	}
	catchUp(t, index)
	if _, n := indexText(t, db); n != 0 {
		t.Errorf("%d letters", n)
	}
	if counts, err := index.Count(context.Background(), run.Tenant, f); err != nil || len(counts) != 0 {
		t.Errorf("%v, %v", counts, err)
	}
}

// A backlog of more receipts than one step takes is indexed in bounded steps, and only one
// process makes a step at a time.
func TestABacklogIsProjectedInSteps(t *testing.T) {
	t.Parallel()
	ctx, url := context.Background(), testkit.Migrated(t)
	j, db := journaltest.Open(t, url), testkit.OpenAsOwner(t, url)
	index := openIndex(t, url, j)
	run := die(t, j)
	caseID := run.Case.String()
	var pairs string
	for range 700 {
		pairs += fmt.Sprintf(",'%s'", uuid.New())
	}
	if _, err := db.Exec(`INSERT INTO recourse.event_log (last, tenant, case_ids, seqs)
		SELECT 700 * n, 'acme', ARRAY[` + pairs[1:] + `]::uuid[], array_fill(1::bigint, ARRAY[700]) FROM generate_series(1, 30) n`); err != nil {
		t.Fatal(err)
	}
	if _, err := db.Exec(`UPDATE recourse.event_log SET case_ids = case_ids`); err == nil {
		t.Error("the event log was changed")
	}
	if _, err := db.Exec(`INSERT INTO recourse.event_log (last, tenant, case_ids, seqs) VALUES (21001, 'acme', ARRAY[$1::uuid], ARRAY[1])`, caseID); err != nil {
		t.Fatal(err)
	}
	tx, err := db.Begin()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(`SELECT FROM recourse.projected FOR UPDATE`); err != nil {
		t.Fatal(err)
	}
	if step, err := index.Project(ctx); err != nil || step.More || step.Cases != 0 {
		t.Errorf("while another process holds the lock: %+v, %v", step, err)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	steps := 1
	for more := true; more; steps++ {
		step, err := index.Project(ctx)
		if err != nil {
			t.Fatal(err)
		}
		more = step.More
	}
	if _, n := indexText(t, db); n != 1 || steps < 5 {
		t.Errorf("%d letters after %d steps", n, steps)
	}
}
