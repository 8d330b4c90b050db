package search_test

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/testkit"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/journaltest"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/search"
	"github.com/recourse-dev/recourse/receipts"
)

// dieWith submits a run and lets it die of a failure with a message.
func dieWith(t *testing.T, j *journal.Journal, message string) {
	t.Helper()
	run := journaltest.Submit(t, j).Run
	for _, fact := range []receipts.Subtype{receipts.AttemptStarted, receipts.DeadLettered} {
		m := journaltest.Transition(fact, run)
		if fact == receipts.DeadLettered {
			m.Result.Failure = &background.Failure{Type: "http.refused", Message: message}
		}
		after, err := j.CommitTransition(context.Background(), run.ID, m.ID, journaltest.Decide(m))
		if err != nil {
			t.Fatal(err)
		}
		run = after.Run
	}
}

// scanLetters reads all letters without the search.
func scanLetters(t *testing.T, db *sql.DB) (out []testLetter) {
	t.Helper()
	rows, err := db.Query(`SELECT l.run_id, CASE WHEN s.whole THEN s.constant ELSE l.error_text END, l.dead_at, l.last_seen_at, l.amount, l.attempts
		FROM recourse.letters l JOIN recourse.facet_groups s ON s.id = l.facet_group`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var l testLetter
		if err := rows.Scan(&l.run, &l.message, &l.dead, &l.seen, &l.amount, &l.attempts); err != nil {
			t.Fatal(err)
		}
		out = append(out, l)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return out
}

// checkSubstring compares what is found and counted for a text, in each order and across
// pages, with the letters that contain it.
func checkSubstring(t *testing.T, index *search.Index, letters []testLetter, d *rand.Rand, text string) {
	t.Helper()
	ctx := context.Background()
	f := search.Filter{Facets: search.FacetFilter{Text: text}}
	for _, column := range []search.Column{search.ByDeath, search.BySeen, search.ByAmount, search.ByAttempts} {
		o := search.Order{Column: column, Descending: d.IntN(2) == 0}
		var want, got []search.Position
		for _, l := range letters {
			if strings.Contains(l.message, text) {
				want = append(want, testPositionOf(l, o))
			}
		}
		slices.SortFunc(want, o.Compare)
		limit, after := 1+d.IntN(40), search.Position{}
		for more := true; more; {
			var found []search.Letter
			var err error
			if found, more, after, err = index.Search(ctx, "acme", f, o, after, 0, limit); err != nil {
				t.Fatal(err)
			}
			for _, l := range found {
				got = append(got, l.Position)
			}
		}
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("%q by %+v: %d letters, want %d", text, o, len(got), len(want))
		}
		counts, err := index.Count(ctx, "acme", f)
		if err != nil || counts["open"] != int64(len(want)) {
			t.Fatalf("%q: counted %v, %v; want %d", text, counts, err, len(want))
		}
	}
}

// A text of one or two characters finds exactly the letters whose messages contain it, in
// every order, and groups that can't contain it are not read. A change of letters by a
// program that does not store short substrings hides none.
func TestAShortSubstringFindsWhatAPlainScanFinds(t *testing.T) {
	t.Parallel()
	ctx, url := context.Background(), testkit.Migrated(t)
	j, db := journaltest.Open(t, url), testkit.OpenAsOwner(t, url)
	index := openIndex(t, url, j)
	seed := uint64(time.Now().UnixNano())
	d := rand.New(rand.NewPCG(seed, 5))
	t.Logf("seed %d", seed)
	number := func(below int64) string { return strconv.FormatInt(d.Int64N(below), 5) } // without a five
	for i := range 120 {
		dieWith(t, j, []string{"Bühne closed", "the worker was lost 5 times", fmt.Sprintf("account %s of %q frozen", number(600), []string{"Zoë", "Ann", "K"}[i%3]),
			"no answer from 10.0.0." + number(120)}[d.IntN(4)])
		if i%50 == 49 {
			catchUp(t, index)
		}
	}
	catchUp(t, index)
	if _, err := db.Exec(`BEGIN; SET LOCAL recourse.short_substrings = 'stored';
		UPDATE recourse.letters SET attempts = 1 + get_byte(uuid_send(run_id), 15) % 4, amount = get_byte(uuid_send(run_id), 14) % 9; COMMIT`); err != nil {
		t.Fatal(err)
	}
	letters := scanLetters(t, db)
	texts := []string{"zq", "§", "55", "t 5", "ë", "ü", "oë", " 5", "10", "0", "\" ", "nn", "k", "th"}
	for range 8 {
		m := []rune(letters[d.IntN(len(letters))].message)
		at := d.IntN(len(m) - 1)
		texts = append(texts, string(m[at:at+1+d.IntN(2)]))
	}
	for _, text := range texts {
		checkSubstring(t, index, letters, d, text)
	}
	matchesGroups := func(text string, want bool) {
		t.Helper()
		if n, err := index.CountFacetGroups(ctx, "acme", search.Filter{Facets: search.FacetFilter{Text: text}}); err != nil || n > 0 != want {
			t.Errorf("%q matches %d groups, %v", text, n, err)
		}
	}
	matchesGroups("zq", false)
	matchesGroups("55", false)
	matchesGroups("ë", true)
	if _, err := db.Exec(`UPDATE recourse.letters SET error_text = error_text || ' zq' WHERE error_text LIKE '%times'`); err != nil {
		t.Fatal(err)
	}
	matchesGroups("zq", true)
	dieWith(t, j, "the worker was lost 6 times") // must not reset the unbounded sets
	catchUp(t, index)
	letters = scanLetters(t, db)
	for _, text := range []string{"zq", "6", "55", "ë"} {
		checkSubstring(t, index, letters, d, text)
	}
	matchesGroups("zq", true)
}

// Messages with too many short substrings are searched for any text.
func TestMessagesWithTooManySubstringsMayContainAny(t *testing.T) {
	t.Parallel()
	url := testkit.Migrated(t)
	j, db := journaltest.Open(t, url), testkit.OpenAsOwner(t, url)
	index := openIndex(t, url, j)
	d := rand.New(rand.NewPCG(1, 6))
	for range 2 {
		wild := make([]rune, 1500)
		for i := range wild {
			wild[i] = rune(0x4e00 + d.IntN(0x5000))
		}
		dieWith(t, j, `said "`+string(wild)+`"`)
		catchUp(t, index)
	}
	letters := scanLetters(t, db)
	checkSubstring(t, index, letters, d, string([]rune(letters[0].message)[7:9]))
	checkSubstring(t, index, letters, d, string([]rune(letters[1].message)[900:902]))
	var bounded int
	if err := db.QueryRow(`SELECT count(*) FROM recourse.short_substrings WHERE substrings IS NOT NULL`).Scan(&bounded); err != nil || bounded != 0 || len(letters) != 2 {
		t.Errorf("%d constant parts with substrings, %v", bounded, err)
	}
}
