package postgres_test

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
	"github.com/recourse-dev/recourse/internal/postgres"
	"github.com/recourse-dev/recourse/internal/testkit"
)

// filed is a letter as the test made it.
type filed struct {
	run                                           uuid.UUID
	standing, queue, currency, replayedBy, escrow string
	message                                       string
	whole, held, unresolved                       bool
	dead, seen                                    time.Time
	amount, attempts, replays                     int64
}

var died = time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)

func draw(d *rand.Rand, n int) []filed {
	one := func(words ...string) string { return words[d.IntN(len(words))] }
	out := make([]filed, n)
	for i := range out {
		f := filed{run: uuid.Must(uuid.NewV7()), standing: one("open", "open", "open", "forked"), queue: one("a:0", "a:1", "b:0"), currency: one("EUR", "USD", ""),
			escrow: fmt.Sprintf("esc_%d", d.IntN(40)), held: d.IntN(10) == 0, unresolved: d.IntN(5) == 0,
			dead: died.Add(time.Duration(d.IntN(200)) * time.Minute), amount: int64(d.IntN(50)), attempts: 1 + int64(d.IntN(4))}
		f.seen = f.dead.Add(time.Duration(d.IntN(3)) * time.Minute)
		if f.message = one("closed", "no funds", fmt.Sprintf("account %d closed", d.IntN(30))); !strings.Contains(f.message, "account") {
			f.whole = true
		}
		if f.standing == "forked" {
			f.replays, f.replayedBy = 1+int64(d.IntN(2)), one("ada", "bob")
		}
		out[i] = f
	}
	return out
}

// keep puts letters into the tables that lists are made from.
func keep(t *testing.T, db *sql.DB, letters []filed) {
	t.Helper()
	for _, f := range letters {
		constant, text, grams := f.message, "", "{}"
		if !f.whole {
			constant, text, grams = "account \x01 closed", f.message, "{0}" // as those from before, whatever they contain
			if f.run[15]%4 > 0 {
				grams = postgres.GramsOf("acme", text, constant)
			}
		}
		digest := fmt.Sprintf("%q", []any{f.standing, f.queue, f.currency, constant, f.replayedBy, f.held, f.unresolved})
		if _, err := db.Exec(`WITH s AS (
			INSERT INTO recourse.letter_shapes (digest, tenant, standing, family, queue, job_type, outcome, reason_code, class, error_type, currency, signature, constant, whole, replayed_by, held, unresolved, eligible, review)
			VALUES (sha256($1), 'acme', $2, $3, $4, $3, '', '', '', '', $5, $6, $6, $7, $8, $9, $10, false, false) ON CONFLICT (digest) DO UPDATE SET digest = excluded.digest RETURNING id)
			INSERT INTO recourse.letters SELECT $11, 'acme', s.id, '', '', $12, $13, $14, $15, $16, $17, 1, $18, 0, $19 FROM s`,
			[]byte(digest), f.standing, f.queue[:1], f.queue, f.currency, constant, f.whole, f.replayedBy, f.held, f.unresolved,
			f.run, f.escrow, f.dead, f.seen, f.amount, f.attempts, f.replays, text, grams); err != nil {
			t.Fatal(err)
		}
	}
}

// drawFilter draws a filter, and says what it selects.
func drawFilter(d *rand.Rand) (f postgres.LetterFilter, selects func(filed) bool) {
	var tests []func(filed) bool
	maybe := func(set func() func(filed) bool) {
		if d.IntN(4) == 0 {
			tests = append(tests, set())
		}
	}
	number := func(n int) *int64 { v := int64(d.IntN(n)); return &v }
	maybe(func() func(filed) bool {
		f.Shape.Standing = "open"
		return func(l filed) bool { return l.standing == "open" }
	})
	maybe(func() func(filed) bool { f.Shape.Queue = "a:1"; return func(l filed) bool { return l.queue == "a:1" } })
	maybe(func() func(filed) bool {
		f.Shape.Currency = "EUR"
		return func(l filed) bool { return l.currency == "EUR" }
	})
	maybe(func() func(filed) bool {
		f.Shape.ReplayedBy = "ada"
		return func(l filed) bool { return l.replayedBy == "ada" }
	})
	maybe(func() func(filed) bool {
		yes := d.IntN(2) == 0
		f.Shape.Held = &yes
		return func(l filed) bool { return l.held == yes }
	})
	maybe(func() func(filed) bool {
		f.Shape.Text = []string{"closed", "count", "1", "funds", "account 7 ", "nowhere"}[d.IntN(6)]
		return func(l filed) bool { return strings.Contains(l.message, f.Shape.Text) }
	})
	maybe(func() func(filed) bool {
		f.MinAmount, f.MaxAmount = number(30), number(60)
		return func(l filed) bool { return l.currency != "" && l.amount >= *f.MinAmount && l.amount <= *f.MaxAmount }
	})
	maybe(func() func(filed) bool {
		f.MinAttempts = number(5)
		return func(l filed) bool { return l.attempts >= *f.MinAttempts }
	})
	maybe(func() func(filed) bool {
		f.MaxReplays = number(3)
		return func(l filed) bool { return l.replays <= *f.MaxReplays }
	})
	maybe(func() func(filed) bool {
		f.MinReplays = number(3)
		return func(l filed) bool { return l.replays >= *f.MinReplays }
	})
	maybe(func() func(filed) bool {
		f.DeadFrom = died.Add(time.Duration(d.IntN(150)) * time.Minute)
		return func(l filed) bool { return !l.dead.Before(f.DeadFrom) }
	})
	maybe(func() func(filed) bool {
		f.DeadTo = died.Add(time.Duration(d.IntN(200)) * time.Minute)
		return func(l filed) bool { return l.dead.Before(f.DeadTo) }
	})
	maybe(func() func(filed) bool {
		f.ExpiresUntil = died.Add(26 * time.Hour)
		f.Lifetime = func(family, queue string) (time.Duration, bool) { // by family and queue; b's are kept for ever
			return map[string]time.Duration{"a:0": 24 * time.Hour, "a:1": 25 * time.Hour}[queue], family == "a"
		}
		return func(l filed) bool {
			kept, ends := f.Lifetime(l.queue[:1], l.queue)
			return ends && l.standing == "open" && !l.held && (!l.unresolved || l.currency == "") && !l.dead.Add(kept).After(f.ExpiresUntil)
		}
	})
	if d.IntN(8) == 0 {
		f.Escrow = "esc_7"
		tests = append(tests, func(l filed) bool { return l.escrow == "esc_7" })
	}
	return f, func(l filed) bool {
		return !slices.ContainsFunc(tests, func(is func(filed) bool) bool { return !is(l) })
	}
}

func placeOf(l filed, o postgres.LetterOrder) postgres.LetterPlace {
	value := map[postgres.LetterColumn]int64{postgres.ByDeath: l.dead.UnixMicro(), postgres.BySeen: l.seen.UnixMicro(), postgres.ByAmount: l.amount, postgres.ByAttempts: l.attempts}[o.Column]
	return postgres.LetterPlace{Value: value, Run: background.RunID(l.run)}
}

// Whichever way is taken, a filter gives exactly the letters that it selects, in
// order, each once from page to page; and they are counted right.
func TestEveryWayFindsTheSameLetters(t *testing.T) {
	t.Parallel()
	ctx, url := context.Background(), testkit.Migrated(t)
	j, db := open(t, url), database(t, url)
	seed := time.Now().UnixNano()
	d := rand.New(rand.NewPCG(uint64(seed), 1))
	letters := draw(d, 600)
	keep(t, db, letters)
	taken := map[int]int{}
	for range 150 {
		f, selects := drawFilter(d)
		o := postgres.LetterOrder{Column: []postgres.LetterColumn{postgres.ByDeath, postgres.BySeen, postgres.ByAmount, postgres.ByAttempts}[d.IntN(4)], Descending: d.IntN(2) == 0}
		var want []postgres.LetterPlace
		for _, l := range letters {
			if selects(l) {
				want = append(want, placeOf(l, o))
			}
		}
		slices.SortFunc(want, func(a, b postgres.LetterPlace) int {
			c := cmp.Or(cmp.Compare(a.Value, b.Value), slices.Compare(a.Run[:], b.Run[:]))
			if o.Descending {
				return -c
			}
			return c
		})
		for way := postgres.Chosen; way < postgres.Ways; way++ {
			var got []postgres.LetterPlace
			for after := (postgres.LetterPlace{}); ; after = got[len(got)-1] {
				page, able, err := j.LettersBy(ctx, way, "acme", f, o, after, 37)
				if err != nil {
					t.Fatalf("seed %d, way %d, %+v: %v", seed, way, f, err)
				}
				if !able {
					got = want
					break
				}
				if len(page) == 0 {
					taken[way]++
					break
				}
				got = append(got, page...)
			}
			if !reflect.DeepEqual(got, want) {
				t.Fatalf("seed %d, way %d: %d letters, want %d; %+v, %+v", seed, way, len(got), len(want), f, o)
			}
		}
		counts, err := j.CountLetters(ctx, "acme", f)
		if n := counts["open"] + counts["forked"]; err != nil || n != int64(len(want)) {
			t.Fatalf("seed %d: counted %v, %v; want %d; %+v", seed, counts, err, len(want), f)
		}
	}
	if len(taken) != postgres.Ways+1 {
		t.Errorf("only these ways were tried: %v", taken)
	}
	if places, _, err := j.LettersBy(ctx, postgres.ShortWalk, "", postgres.LetterFilter{}, postgres.LetterOrder{Column: postgres.ByDeath}, postgres.LetterPlace{}, 10); err != nil || len(places) != 0 {
		t.Errorf("no tenant sees %d letters, %v", len(places), err)
	}
}
