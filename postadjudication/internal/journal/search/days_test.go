package search_test

import (
	"database/sql"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/lib/pq"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/testkit"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/journaltest"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/search"
)

// lettersOverDays are letters of ten days, many of which died at midnight or beside it.
func lettersOverDays(d *rand.Rand, n int) []testLetter {
	letters := randomLetters(d, n)
	for i := range letters {
		letters[i].dead = randomDayTime(d)
		letters[i].seen = letters[i].dead
	}
	return letters
}

// randomDayTime returns a time in the ten days after died.
func randomDayTime(d *rand.Rand) time.Time {
	day := died.AddDate(0, 0, d.IntN(10))
	switch d.IntN(4) {
	case 0:
		return day
	case 1:
		return day.Add(-time.Microsecond)
	case 2:
		return day.Add(time.Microsecond)
	}
	return day.Add(time.Duration(d.Int64N(int64(24*time.Hour/time.Microsecond))) * time.Microsecond)
}

// dayFilter returns a filter of facets and times of death, and a function that reports what it selects.
func dayFilter(d *rand.Rand) (search.Filter, func(testLetter) bool) {
	var f search.Filter
	if d.IntN(3) == 0 {
		f.Facets.Status = "open"
	}
	if d.IntN(3) == 0 {
		f.Facets.Queue = "a:1"
	}
	if d.IntN(2) == 0 {
		f.DeadFrom = randomDayTime(d)
	}
	if d.IntN(2) == 0 {
		f.DeadTo = randomDayTime(d)
	}
	return f, func(l testLetter) bool {
		return (f.Facets.Status == "" || l.status == f.Facets.Status) && (f.Facets.Queue == "" || l.queue == f.Facets.Queue) &&
			(f.DeadFrom.IsZero() || !l.dead.Before(f.DeadFrom)) && (f.DeadTo.IsZero() || l.dead.Before(f.DeadTo))
	}
}

// insertLettersAtRisk inserts letters. The amounts of the open ones are at risk.
func insertLettersAtRisk(t *testing.T, db *sql.DB, letters []testLetter) {
	t.Helper()
	insertLetters(t, db, letters)
	if _, err := db.Exec(`UPDATE recourse.letters l SET at_risk = amount FROM recourse.facet_groups s WHERE s.id = l.facet_group AND s.status = 'open'`); err != nil {
		t.Fatal(err)
	}
}

// Sums by days, and pages behind days that an offset leaves out, are those of a scan over all letters,
// also of days before 1970.
func TestDaysAgreeWithAScan(t *testing.T) {
	t.Parallel()
	url := testkit.Migrated(t)
	index, db := openIndex(t, url, journaltest.Open(t, url)), testkit.OpenAsOwner(t, url)
	seed := time.Now().UnixNano()
	d := rand.New(rand.NewPCG(uint64(seed), 3))
	letters := lettersOverDays(d, 500)
	for i := range letters[:20] {
		letters[i].dead = letters[i].dead.AddDate(-57, 0, 0)
	}
	insertLettersAtRisk(t, db, letters)
	counted, skipped := 0, 0
	for range 200 {
		f, selects := dayFilter(d)
		o := search.Order{Column: search.ByDeath, Descending: d.IntN(2) == 0}
		var want [3]int64
		var all []search.Position
		for _, l := range letters {
			if selects(l) {
				want = [3]int64{want[0] + 1, want[1] + l.risk(), want[2] + l.attempts}
				all = append(all, search.Position{Value: l.dead.UnixMicro(), Run: background.RunID(l.run)})
			}
		}
		got, ok, err := index.CountByDay(t.Context(), "acme", f)
		if err != nil || ok && got != want {
			t.Fatalf("seed %d, %+v: %v, want %v, %v", seed, f, got, want, err)
		}
		if ok {
			counted++
		}
		slices.SortFunc(all, o.Compare)
		skip := d.IntN(len(all) + 10)
		page, left, err := index.PositionsBehindDays(t.Context(), "acme", f, o, skip, 20)
		rest := all[min(skip, len(all)):]
		if rest = rest[:min(20, len(rest))]; err != nil || !slices.Equal(page, rest) {
			t.Fatalf("seed %d, %+v, %+v without %d: %d letters, want %d, %v", seed, f, o, skip, len(page), len(rest), err)
		}
		if left < skip {
			skipped++
		}
	}
	if counted < 100 || skipped < 50 {
		t.Errorf("%d filters counted by day, and %d pages behind days", counted, skipped)
	}
}

// Whoever inserts, changes or deletes letters, several in a statement, the counts of days are those of the
// letters that there are; a day without letters has no row.
func TestDaysFollowEveryChangeOfLetters(t *testing.T) {
	t.Parallel()
	url := testkit.Migrated(t)
	openIndex(t, url, journaltest.Open(t, url))
	db := testkit.OpenAsOwner(t, url)
	seed := time.Now().UnixNano()
	d := rand.New(rand.NewPCG(uint64(seed), 4))
	insertLetters(t, db, lettersOverDays(d, 60)) // makes the groups
	for step := range 150 {
		runs := pq.StringArray{}
		for range 1 + d.IntN(6) {
			runs = append(runs, uuid.NewString())
		}
		some := fmt.Sprintf(`(SELECT run_id FROM recourse.letters ORDER BY hashtext(run_id::text || %d) LIMIT %d)`, step, 1+d.IntN(8))
		at := randomDayTime(d)
		statement, args := `DELETE FROM recourse.letters WHERE run_id IN `+some, []any(nil)
		switch d.IntN(6) {
		case 0, 1:
			statement, args = `INSERT INTO recourse.letters SELECT u.id, tenant, facet_group, '', '', escrow, $2::timestamptz + make_interval(hours => (random() * 40)::int), last_seen_at, amount, attempts, replays, 0, '', amount, '{}'
				FROM unnest($1::uuid[]) AS u(id), (SELECT * FROM recourse.letters ORDER BY random() LIMIT 1) l`, []any{runs, at}
		case 2:
			statement = `UPDATE recourse.letters SET facet_group = (SELECT id FROM recourse.facet_groups ORDER BY random() LIMIT 1), attempts = attempts + 1, at_risk = 3 WHERE run_id IN ` + some
		case 3:
			statement, args = `UPDATE recourse.letters SET dead_at = $1 WHERE run_id IN `+some, []any{at}
		case 4:
			statement = `UPDATE recourse.letters SET last_seen_at = last_seen_at + interval '1 s' WHERE run_id IN ` + some
		}
		if _, err := db.Exec(statement, args...); err != nil {
			t.Fatalf("seed %d, %s: %v", seed, statement, err)
		}
		if stored, want := dayCounts(t, db, `SELECT facet_group, day, letters, at_risk, attempts FROM recourse.facet_group_days`),
			dayCounts(t, db, `SELECT facet_group, (dead_at AT TIME ZONE 'UTC')::date - date '1970-01-01', count(*), sum(at_risk), sum(attempts) FROM recourse.letters GROUP BY 1, 2`); !slices.Equal(stored, want) {
			t.Fatalf("seed %d, after %s:\n%v, want\n%v", seed, statement, stored, want)
		}
	}
}

func dayCounts(t *testing.T, db *sql.DB, query string) (out []string) {
	t.Helper()
	rows, err := db.Query(query + ` ORDER BY 1, 2`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var n [5]int64
		if err := rows.Scan(&n[0], &n[1], &n[2], &n[3], &n[4]); err != nil {
			t.Fatal(err)
		}
		out = append(out, fmt.Sprint(n))
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return out
}

// Whatever else a filter asks for, totals, histograms and pages over a range of days are those of a scan over all
// letters, many of which died at the same moment.
func TestTotalsOfAnyFilterOverDaysAgreeWithAScan(t *testing.T) {
	t.Parallel()
	url := testkit.Migrated(t)
	index, db := openIndex(t, url, journaltest.Open(t, url)), testkit.OpenAsOwner(t, url)
	seed := time.Now().UnixNano()
	d := rand.New(rand.NewPCG(uint64(seed), 9))
	letters := lettersOverDays(d, 400)
	for i := 7; i < len(letters); i += 7 {
		letters[i].dead, letters[i].seen = letters[i-1].dead, letters[i-1].seen
	}
	insertLettersAtRisk(t, db, letters)
	for range 80 {
		f, selects := randomFilter(d)
		if f.DeadFrom.IsZero() && d.IntN(2) == 0 {
			f.DeadFrom = randomDayTime(d)
		}
		if f.DeadTo.IsZero() && d.IntN(2) == 0 {
			f.DeadTo = letters[d.IntN(len(letters))].dead
		}
		o := search.Order{Column: search.ByDeath, Descending: d.IntN(2) == 0}
		want, byStatus, all := [3]int64{}, map[string]int64{}, []search.Position(nil)
		for _, l := range letters {
			if selects(l) && (f.DeadFrom.IsZero() || !l.dead.Before(f.DeadFrom)) && (f.DeadTo.IsZero() || l.dead.Before(f.DeadTo)) {
				want = [3]int64{want[0] + 1, want[1] + l.risk(), want[2] + l.attempts}
				byStatus[l.status]++
				all = append(all, testPositionOf(l, o))
			}
		}
		if counts, err := index.Count(t.Context(), "acme", f); err != nil || counts["open"] != byStatus["open"] || counts["forked"] != byStatus["forked"] {
			t.Fatalf("seed %d, %+v: %v, want %v, %v", seed, f, counts, byStatus, err)
		}
		deaths := &search.DeathHistogram{Edges: []time.Time{died.AddDate(0, 0, -1), died.AddDate(0, 0, 3), died.AddDate(1, 0, 0)}}
		tallies, err := index.Tally(t.Context(), "acme", f, deaths)
		var got [3]int64
		for _, y := range tallies {
			risk, _ := y.AtRisk.Minor()
			got = [3]int64{got[0] + y.Letters, got[1] + risk, got[2] + y.Attempts}
		}
		if err != nil || got != want || deaths.Counts[0]+deaths.Counts[1] != want[0] {
			t.Fatalf("seed %d, %+v: %v, deaths %v, want %v, %v", seed, f, got, deaths.Counts, want, err)
		}
		slices.SortFunc(all, o.Compare)
		skip := d.IntN(len(all) + 10)
		page, _, err := index.PositionsBehindDays(t.Context(), "acme", f, o, skip, 20)
		rest := all[min(skip, len(all)):]
		if rest = rest[:min(20, len(rest))]; err != nil || !slices.Equal(page, rest) {
			t.Fatalf("seed %d, %+v, %+v without %d: %d letters, want %d, %v", seed, f, o, skip, len(page), len(rest), err)
		}
	}
}
