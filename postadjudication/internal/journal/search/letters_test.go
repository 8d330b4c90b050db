package search_test

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/testkit"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/journaltest"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/search"
)

// testLetter is a letter as the test inserted it.
type testLetter struct {
	run                                         uuid.UUID
	status, queue, currency, replayedBy, escrow string
	message                                     string
	whole, held, unresolved                     bool
	dead, seen                                  time.Time
	amount, attempts, replays                   int64
}

var died = time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)

func randomLetters(d *rand.Rand, n int) []testLetter {
	one := func(words ...string) string { return words[d.IntN(len(words))] }
	out := make([]testLetter, n)
	for i := range out {
		f := testLetter{run: uuid.Must(uuid.NewV7()), status: one("open", "open", "open", "forked"), queue: one("a:0", "a:1", "b:0"), currency: one("EUR", "USD", ""),
			escrow: fmt.Sprintf("esc_%d", d.IntN(40)), held: d.IntN(10) == 0, unresolved: d.IntN(5) == 0,
			dead: died.Add(time.Duration(d.IntN(200)) * time.Minute), amount: int64(d.IntN(50)), attempts: 1 + int64(d.IntN(4))}
		f.seen = f.dead.Add(time.Duration(d.IntN(3)) * time.Minute)
		if f.message = one("closed", "no funds", fmt.Sprintf("account %d closed", d.IntN(30))); !strings.Contains(f.message, "account") {
			f.whole = true
		}
		if f.status == "forked" {
			f.replays, f.replayedBy = 1+int64(d.IntN(2)), one("ada", "bob")
		}
		out[i] = f
	}
	return out
}

// insertLetters inserts letters into the tables of the search index.
func insertLetters(t *testing.T, db *sql.DB, letters []testLetter) {
	t.Helper()
	for _, f := range letters {
		constant, text, trigrams := f.message, "", "{}"
		if !f.whole {
			constant, text, trigrams = "account \x01 closed", f.message, "{0}" // like rows indexed before there were trigrams
			if f.run[15]%4 > 0 {
				trigrams = search.StoredTrigrams("acme", text, constant)
			}
		}
		digest := fmt.Sprintf("%q", []any{f.status, f.queue, f.currency, constant, f.replayedBy, f.held, f.unresolved})
		if _, err := db.Exec(`WITH s AS (
			INSERT INTO recourse.facet_groups (digest, tenant, status, family, queue, job_type, outcome, reason_code, class, error_type, currency, signature, constant, whole, replayed_by, held, unresolved, eligible, review)
			VALUES (sha256($1), 'acme', $2, $3, $4, $3, '', '', '', '', $5, $6, $6, $7, $8, $9, $10, false, false) ON CONFLICT (digest) DO UPDATE SET digest = excluded.digest RETURNING id)
			INSERT INTO recourse.letters SELECT $11, 'acme', s.id, '', '', $12, $13, $14, $15, $16, $17, 1, $18, 0, $19 FROM s`,
			[]byte(digest), f.status, f.queue[:1], f.queue, f.currency, constant, f.whole, f.replayedBy, f.held, f.unresolved,
			f.run, f.escrow, f.dead, f.seen, f.amount, f.attempts, f.replays, text, trigrams); err != nil {
			t.Fatal(err)
		}
	}
}

// randomFilter returns a random filter, and a function that reports what it selects.
func randomFilter(d *rand.Rand) (f search.Filter, selects func(testLetter) bool) {
	var tests []func(testLetter) bool
	maybe := func(set func() func(testLetter) bool) {
		if d.IntN(4) == 0 {
			tests = append(tests, set())
		}
	}
	number := func(n int) *int64 { v := int64(d.IntN(n)); return &v }
	maybe(func() func(testLetter) bool {
		f.Facets.Status = "open"
		return func(l testLetter) bool { return l.status == "open" }
	})
	maybe(func() func(testLetter) bool {
		f.Facets.Queue = "a:1"
		return func(l testLetter) bool { return l.queue == "a:1" }
	})
	maybe(func() func(testLetter) bool {
		f.Facets.Currency = "EUR"
		return func(l testLetter) bool { return l.currency == "EUR" }
	})
	maybe(func() func(testLetter) bool {
		f.Facets.ReplayedBy = "ada"
		return func(l testLetter) bool { return l.replayedBy == "ada" }
	})
	maybe(func() func(testLetter) bool {
		yes := d.IntN(2) == 0
		f.Facets.Held = &yes
		return func(l testLetter) bool { return l.held == yes }
	})
	maybe(func() func(testLetter) bool {
		f.Facets.Text = []string{"closed", "count", "1", "funds", "account 7 ", "nowhere"}[d.IntN(6)]
		return func(l testLetter) bool { return strings.Contains(l.message, f.Facets.Text) }
	})
	maybe(func() func(testLetter) bool {
		f.MinAmount, f.MaxAmount = number(30), number(60)
		return func(l testLetter) bool {
			return l.currency != "" && l.amount >= *f.MinAmount && l.amount <= *f.MaxAmount
		}
	})
	maybe(func() func(testLetter) bool {
		f.MinAttempts = number(5)
		return func(l testLetter) bool { return l.attempts >= *f.MinAttempts }
	})
	maybe(func() func(testLetter) bool {
		f.MaxReplays = number(3)
		return func(l testLetter) bool { return l.replays <= *f.MaxReplays }
	})
	maybe(func() func(testLetter) bool {
		f.MinReplays = number(3)
		return func(l testLetter) bool { return l.replays >= *f.MinReplays }
	})
	maybe(func() func(testLetter) bool {
		f.DeadFrom = died.Add(time.Duration(d.IntN(150)) * time.Minute)
		return func(l testLetter) bool { return !l.dead.Before(f.DeadFrom) }
	})
	maybe(func() func(testLetter) bool {
		f.DeadTo = died.Add(time.Duration(d.IntN(200)) * time.Minute)
		return func(l testLetter) bool { return l.dead.Before(f.DeadTo) }
	})
	maybe(func() func(testLetter) bool {
		f.ExpiresUntil = died.Add(26 * time.Hour)
		f.Lifetime = func(family, queue string) (time.Duration, bool) { // by family and queue; those of b never expire
			return map[string]time.Duration{"a:0": 24 * time.Hour, "a:1": 25 * time.Hour}[queue], family == "a"
		}
		return func(l testLetter) bool {
			kept, ends := f.Lifetime(l.queue[:1], l.queue)
			return ends && l.status == "open" && !l.held && (!l.unresolved || l.currency == "") && !l.dead.Add(kept).After(f.ExpiresUntil)
		}
	})
	if d.IntN(8) == 0 {
		f.Escrow = "esc_7"
		tests = append(tests, func(l testLetter) bool { return l.escrow == "esc_7" })
	}
	return f, func(l testLetter) bool {
		return !slices.ContainsFunc(tests, func(is func(testLetter) bool) bool { return !is(l) })
	}
}

func testPositionOf(l testLetter, o search.Order) search.Position {
	value := map[search.Column]int64{search.ByDeath: l.dead.UnixMicro(), search.BySeen: l.seen.UnixMicro(), search.ByAmount: l.amount, search.ByAttempts: l.attempts}[o.Column]
	return search.Position{Value: value, Run: background.RunID(l.run)}
}

// On every access path a filter finds exactly the letters that it selects, in order, each
// once across pages; and their counts are right.
func TestEveryAccessPathFindsTheSameLetters(t *testing.T) {
	t.Parallel()
	ctx, url := context.Background(), testkit.Migrated(t)
	index, db := openIndex(t, url, journaltest.Open(t, url)), testkit.OpenAsOwner(t, url)
	seed := time.Now().UnixNano()
	d := rand.New(rand.NewPCG(uint64(seed), 1))
	letters := randomLetters(d, 600)
	insertLetters(t, db, letters)
	taken := map[int]int{}
	for range 150 {
		f, selects := randomFilter(d)
		o := search.Order{Column: []search.Column{search.ByDeath, search.BySeen, search.ByAmount, search.ByAttempts}[d.IntN(4)], Descending: d.IntN(2) == 0}
		var want []search.Position
		for _, l := range letters {
			if selects(l) {
				want = append(want, testPositionOf(l, o))
			}
		}
		slices.SortFunc(want, func(a, b search.Position) int {
			c := cmp.Or(cmp.Compare(a.Value, b.Value), slices.Compare(a.Run[:], b.Run[:]))
			if o.Descending {
				return -c
			}
			return c
		})
		for path := search.ChosenPath; path < search.AccessPaths; path++ {
			var got []search.Position
			for after := (search.Position{}); ; after = got[len(got)-1] {
				page, able, err := index.PositionsByPath(ctx, path, "acme", f, o, after, 37)
				if err != nil {
					t.Fatalf("seed %d, path %d, %+v: %v", seed, path, f, err)
				}
				if !able {
					got = want
					break
				}
				if len(page) == 0 {
					taken[path]++
					break
				}
				got = append(got, page...)
			}
			if !reflect.DeepEqual(got, want) {
				t.Fatalf("seed %d, path %d: %d letters, want %d; %+v, %+v", seed, path, len(got), len(want), f, o)
			}
		}
		checkSkips(t, index, d, f, o, want)
		counts, err := index.Count(ctx, "acme", f)
		if n := counts["open"] + counts["forked"]; err != nil || n != int64(len(want)) {
			t.Fatalf("seed %d: counted %v, %v; want %d; %+v", seed, counts, err, len(want), f)
		}
	}
	if len(taken) != search.AccessPaths+1 {
		t.Errorf("only these paths were tried: %v", taken)
	}
	if positions, _, err := index.PositionsByPath(ctx, search.ShortScan, "", search.Filter{}, search.Order{Column: search.ByDeath}, search.Position{}, 10); err != nil || len(positions) != 0 {
		t.Errorf("an unknown tenant sees %d letters, %v", len(positions), err)
	}
}

// checkSkips compares pages that leave letters out with the same of want, also where an ordered scan gives up
// among those that are left out, or after them.
func checkSkips(t *testing.T, index *search.Index, d *rand.Rand, f search.Filter, o search.Order, want []search.Position) {
	t.Helper()
	for _, scanLimit := range []int{0, 1 + d.IntN(100), 1 + d.IntN(700)} {
		var after search.Position
		rest, skip, limit := want, d.IntN(len(want)+10), 1+d.IntN(40)
		if len(want) > 0 && d.IntN(2) == 0 {
			at := d.IntN(len(want))
			after, rest = want[at], want[at+1:]
		}
		rest = rest[min(skip, len(rest)):]
		rest = rest[:min(limit, len(rest))]
		got, err := index.PositionsBehind(t.Context(), "acme", f, o, after, skip, limit, scanLimit)
		if err != nil || !slices.Equal(got, rest) {
			t.Fatalf("after %+v, without %d, of a scan of %d: %d letters, want %d, %v; %+v, %+v", after, skip, scanLimit, len(got), len(rest), err, f, o)
		}
	}
}
