package postgres_test

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
	"github.com/recourse-dev/recourse/internal/postgres"
	"github.com/recourse-dev/recourse/internal/testkit"
	"github.com/recourse-dev/recourse/receipts"
)

// dieOf submits a run and lets it die of a failure.
func dieOf(t *testing.T, j *postgres.Journal, message string) {
	t.Helper()
	run := submit(t, j).Run
	for _, fact := range []receipts.Subtype{receipts.AttemptStarted, receipts.DeadLettered} {
		m := move(fact, run)
		if fact == receipts.DeadLettered {
			m.Result.Failure = &background.Failure{Type: "http.refused", Message: message}
		}
		after, err := j.Apply(context.Background(), run.ID, m.ID, decide(m))
		if err != nil {
			t.Fatal(err)
		}
		run = after.Run
	}
}

// scanned are the letters as a plain look at each of them gives them.
func scanned(t *testing.T, db *sql.DB) (out []filed) {
	t.Helper()
	rows, err := db.Query(`SELECT l.run_id, CASE WHEN s.whole THEN s.constant ELSE l.error_text END, l.dead_at, l.last_seen_at, l.amount, l.attempts
		FROM recourse.letters l JOIN recourse.letter_shapes s ON s.id = l.shape`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var l filed
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

// agree compares what is found and counted for a text, in each order and from page to
// page, with the letters that contain it.
func agree(t *testing.T, j *postgres.Journal, letters []filed, d *rand.Rand, text string) {
	t.Helper()
	ctx := context.Background()
	f := postgres.LetterFilter{Shape: postgres.ShapeFilter{Text: text}}
	for _, column := range []postgres.LetterColumn{postgres.ByDeath, postgres.BySeen, postgres.ByAmount, postgres.ByAttempts} {
		o := postgres.LetterOrder{Column: column, Descending: d.IntN(2) == 0}
		var want, got []postgres.LetterPlace
		for _, l := range letters {
			if strings.Contains(l.message, text) {
				want = append(want, placeOf(l, o))
			}
		}
		slices.SortFunc(want, o.Compare)
		limit, after := 1+d.IntN(40), postgres.LetterPlace{}
		for more := true; more; {
			var found []postgres.FoundLetter
			var err error
			if found, more, after, err = j.Letters(ctx, "acme", f, o, after, limit); err != nil {
				t.Fatal(err)
			}
			for _, l := range found {
				got = append(got, l.Place)
			}
		}
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("%q by %+v: %d letters, want %d", text, o, len(got), len(want))
		}
		counts, err := j.CountLetters(ctx, "acme", f)
		if err != nil || counts["open"] != int64(len(want)) {
			t.Fatalf("%q: counted %v, %v; want %d", text, counts, err, len(want))
		}
	}
}

// A text of one or two characters gives exactly the letters whose messages contain it,
// in every order, and those that can't contain it are not looked at. Whoever changes
// letters without saying what their messages contain hides none.
func TestAShortTextFindsWhatAPlainScanFinds(t *testing.T) {
	t.Parallel()
	ctx, url := context.Background(), testkit.Migrated(t)
	j, db := open(t, url), database(t, url)
	seed := uint64(time.Now().UnixNano())
	d := rand.New(rand.NewPCG(seed, 5))
	t.Logf("seed %d", seed)
	number := func(below int64) string { return strconv.FormatInt(d.Int64N(below), 5) } // without a five
	for i := range 120 {
		dieOf(t, j, []string{"Bühne closed", "the worker was lost 5 times", fmt.Sprintf("account %s of %q frozen", number(600), []string{"Zoë", "Ann", "K"}[i%3]),
			"no answer from 10.0.0." + number(120)}[d.IntN(4)])
		if i%50 == 49 {
			drained(t, j)
		}
	}
	drained(t, j)
	if _, err := db.Exec(`BEGIN; SET LOCAL recourse.short_texts = 'told';
		UPDATE recourse.letters SET attempts = 1 + get_byte(uuid_send(run_id), 15) % 4, amount = get_byte(uuid_send(run_id), 14) % 9; COMMIT`); err != nil {
		t.Fatal(err)
	}
	letters := scanned(t, db)
	texts := []string{"zq", "§", "55", "t 5", "ë", "ü", "oë", " 5", "10", "0", "\" ", "nn", "k", "th"}
	for range 8 {
		m := []rune(letters[d.IntN(len(letters))].message)
		at := d.IntN(len(m) - 1)
		texts = append(texts, string(m[at:at+1+d.IntN(2)]))
	}
	for _, text := range texts {
		agree(t, j, letters, d, text)
	}
	left := func(text string, want bool) {
		t.Helper()
		if n, err := j.ShapesLeft(ctx, "acme", postgres.LetterFilter{Shape: postgres.ShapeFilter{Text: text}}); err != nil || n > 0 != want {
			t.Errorf("%q leaves %d shapes, %v", text, n, err)
		}
	}
	left("zq", false)
	left("55", false)
	left("ë", true)
	if _, err := db.Exec(`UPDATE recourse.letters SET error_text = error_text || ' zq' WHERE error_text LIKE '%times'`); err != nil {
		t.Fatal(err)
	}
	left("zq", true)
	dieOf(t, j, "the worker was lost 6 times") // which must not make the others be forgotten
	drained(t, j)
	letters = scanned(t, db)
	for _, text := range []string{"zq", "6", "55", "ë"} {
		agree(t, j, letters, d, text)
	}
	left("zq", true)
}

// Messages that have too many short texts may contain any.
func TestMessagesOfTooManyCharactersMayContainAnyShortText(t *testing.T) {
	t.Parallel()
	url := testkit.Migrated(t)
	j, db := open(t, url), database(t, url)
	d := rand.New(rand.NewPCG(1, 6))
	for range 2 {
		wild := make([]rune, 1500)
		for i := range wild {
			wild[i] = rune(0x4e00 + d.IntN(0x5000))
		}
		dieOf(t, j, `said "`+string(wild)+`"`)
		drained(t, j)
	}
	letters := scanned(t, db)
	agree(t, j, letters, d, string([]rune(letters[0].message)[7:9]))
	agree(t, j, letters, d, string([]rune(letters[1].message)[900:902]))
	var told int
	if err := db.QueryRow(`SELECT count(*) FROM recourse.letter_short_texts WHERE texts IS NOT NULL`).Scan(&told); err != nil || told != 0 || len(letters) != 2 {
		t.Errorf("%d constant parts are told, %v", told, err)
	}
}
