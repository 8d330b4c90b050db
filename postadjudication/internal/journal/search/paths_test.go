package search_test

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/internal/testkit"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/journaltest"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/search"
)

// The server reads each access path by the index that the cost model counts on, and never all
// letters of all tenants. The plans are shown by go test -v.
func TestEveryAccessPathUsesItsIndex(t *testing.T) {
	t.Parallel()
	url := testkit.Migrated(t)
	index, db := openIndex(t, url, journaltest.Open(t, url)), testkit.OpenAsOwner(t, url)
	letters := randomLetters(rand.New(rand.NewPCG(7, 8)), 600)
	insertLetters(t, db, letters)
	// Of few letters the server reads any table whole; most of these are of another tenant.
	if _, err := db.Exec(`UPDATE recourse.letters SET transaction = 'txr_' || amount, submission = 'rcpt_' || amount;
		INSERT INTO recourse.facet_groups (digest, tenant, status, family, queue, job_type, outcome, reason_code, class, error_type, currency, signature, constant, whole, replayed_by, held, unresolved, eligible, review)
		SELECT sha256('globex'), 'globex', 'open', 'a', 'a:0', 'a', '', '', '', '', 'EUR', 'x', 'x', false, '', false, false, false, false;
		INSERT INTO recourse.letters (run_id, tenant, facet_group, transaction, submission, escrow, dead_at, last_seen_at, amount, at_risk, attempts, replays, notification_number, error_text, trigrams)
		SELECT gen_random_uuid(), 'globex', (SELECT id FROM recourse.facet_groups WHERE tenant = 'globex'), 'txr_' || n, 'rcpt_' || n, 'esc_' || n % 100,
			timestamptz '2026-11-01' + n * interval '1 s', timestamptz '2026-11-01' + n * interval '1 s', n % 500, n % 500, 1 + n % 4, 0, 0, 'x ' || n, ARRAY[n % 1000, n % 1009, n % 1013] FROM generate_series(1, 20000) n;
		ANALYZE recourse.letters; ANALYZE recourse.facet_groups`); err != nil {
		t.Fatal(err)
	}
	byDeath := search.Order{Column: search.ByDeath}
	open, text, few, many := search.Filter{Facets: search.FacetFilter{Status: "open"}}, search.Filter{Facets: search.FacetFilter{Text: "account 7 "}}, int64(3), int64(40)
	for name, c := range map[string]struct {
		path   int
		filter search.Filter
		order  search.Order
		index  string // that the plan reads
		not    string // that the plan does not have
	}{
		"key: transaction":             {search.KeyPath, search.Filter{Transaction: "txr_7"}, byDeath, "letters_transaction", ""},
		"key: submission":              {search.KeyPath, search.Filter{Submission: "rcpt_7"}, byDeath, "letters_submission", ""},
		"key: escrow":                  {search.KeyPath, search.Filter{Escrow: "esc_7"}, byDeath, "letters_escrow", ""},
		"key: run":                     {search.KeyPath, search.Filter{Run: [16]byte(letters[0].run)}, byDeath, "letters_pkey", ""},
		"facet groups":                 {search.FacetPath, open, byDeath, "letters_group_dead", ""},
		"facet groups, counted":        {search.FacetCount, open, byDeath, "Index Only Scan using letters_group_", "Sort"},
		"days of facet groups":         {search.DayCount, open, byDeath, "facet_group_days_pkey", ""},
		"range of death":               {search.RangePath, search.Filter{DeadTo: died.Add(time.Hour)}, byDeath, "letters_dead", ""},
		"range of amount":              {search.RangePath, search.Filter{MaxAmount: &few}, byDeath, "letters_amount", ""},
		"range of attempts":            {search.RangePath, search.Filter{MaxAttempts: &few}, byDeath, "letters_attempts", ""},
		"merge by death":               {search.MergePath, open, byDeath, "letters_group_dead", ""},
		"merge by last seen":           {search.MergePath, open, search.Order{Column: search.BySeen, Descending: true}, "letters_group_seen", ""},
		"merge by amount":              {search.MergePath, open, search.Order{Column: search.ByAmount}, "letters_group_amount", ""},
		"merge by attempts":            {search.MergePath, open, search.Order{Column: search.ByAttempts}, "letters_group_attempts", ""},
		"ordered scan by death":        {search.OrderedPath, open, byDeath, "letters_dead", "Sort"},
		"ordered scan by last seen":    {search.OrderedPath, open, search.Order{Column: search.BySeen, Descending: true}, "letters_seen", "Sort"},
		"ordered scan by amount":       {search.OrderedPath, search.Filter{MaxAmount: &many}, search.Order{Column: search.ByAmount}, "letters_amount", "Sort"},
		"ordered scan by attempts":     {search.OrderedPath, open, search.Order{Column: search.ByAttempts}, "letters_attempts", "Sort"},
		"bounded scan":                 {search.ShortScan, open, byDeath, "letters_dead", ""},
		"bounded scan, messages after": {search.ShortScan, text, byDeath, "letters_dead", ""},
		"trigrams":                     {search.TrigramSearch, text, byDeath, "Bitmap Index Scan on letters_trigrams", ""},
		"messages in heap order":       {search.HeapScan, text, byDeath, "Bitmap Index Scan on letters_group_", ""},
	} {
		plan, err := index.Explain(t.Context(), c.path, "acme", c.filter, c.order, 10)
		t.Logf("%s:\n%s", name, plan)
		switch {
		case err != nil:
			t.Errorf("%s: %v", name, err)
		case !strings.Contains(plan, c.index):
			t.Errorf("%s does not read %s:\n%s", name, c.index, plan)
		case strings.Contains(plan, "Seq Scan on letters"):
			t.Errorf("%s reads all letters:\n%s", name, plan)
		case c.not != "" && strings.Contains(plan, c.not):
			t.Errorf("%s has a %s:\n%s", name, c.not, plan)
		}
	}
}

// A tally of a text that trigrams do not find reads only letters of groups whose constant part does
// not decide whether their messages contain it.
func TestATallyReadsNoLetterOfAWholeGroup(t *testing.T) {
	t.Parallel()
	url := testkit.Migrated(t)
	index, db := openIndex(t, url, journaltest.Open(t, url)), testkit.OpenAsOwner(t, url)
	letters := randomLetters(rand.New(rand.NewPCG(9, 10)), 600)
	checked := int64(0) // letters whose messages differ within their group
	for i := range letters {
		if letters[i].message == "no funds" {
			letters[i].message = "code 7"
		}
		if !letters[i].whole {
			checked++
		}
	}
	insertLetters(t, db, letters)
	if _, err := db.Exec(`ANALYZE recourse.letters; ANALYZE recourse.facet_groups`); err != nil {
		t.Fatal(err)
	}
	for text, most := range map[string]int64{"closed": 0, "d": 0, "7": checked} {
		want := int64(0)
		for _, l := range letters {
			if strings.Contains(l.message, text) {
				want++
			}
		}
		tallies, read, err := index.TallyReads(t.Context(), "acme", search.Filter{Facets: search.FacetFilter{Text: text}})
		got := int64(0)
		for _, tally := range tallies {
			got += tally.Letters
		}
		if err != nil || got != want || read > most || most > 0 && read == 0 {
			t.Errorf("%q: %d letters of %d by reading %d, at most %d: %v", text, got, want, read, most, err)
		}
	}
}
