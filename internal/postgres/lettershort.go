package postgres

import (
	"context"
	"database/sql"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/lib/pq"

	"github.com/recourse-dev/recourse/internal/signature"
)

// A text of one or two characters has no grams; and where few messages contain it, all
// would be read. But messages of one constant part differ in little, as in digits. So
// what they have beside that part is kept, once for all of them: see
// recourse.letter_short_texts.

// mostShort is how many short texts are kept; messages with more may contain any.
const mostShort = 1000

// isShort reports whether a text is too short for grams.
func isShort(text string) bool { return utf8.RuneCountInString(text) < gramSize }

// constantOf names messages of one constant part.
type constantOf struct{ tenant, constant string }

// shortTexts collects the short texts that messages have beside their constant parts.
type shortTexts map[constantOf]*shortSet

type shortSet struct{ known, own map[string]bool }

func (t shortTexts) add(of constantOf, message string) {
	set := t[of]
	if set == nil {
		set = &shortSet{known: map[string]bool{}, own: map[string]bool{}}
		for _, part := range strings.Split(of.constant, signature.Gap) {
			eachShort(part, func(text string) { set.known[text] = true })
		}
		t[of] = set
	}
	eachShort(message, func(text string) {
		if !set.known[text] && !set.own[text] {
			set.own[text] = true
		}
	})
}

// eachShort gives every text of fewer than gramSize characters in a text.
func eachShort(text string, give func(string)) {
	starts := [gramSize - 1]int{-1, -1} // of the last character and the one before
	upTo := func(end int) {
		for _, start := range starts {
			if start >= 0 {
				give(text[start:end])
			}
		}
	}
	for i := range text {
		upTo(i)
		starts = [gramSize - 1]int{i, starts[0]}
	}
	upTo(len(text))
}

const (
	shortTextsSQL = `SELECT u.tenant, u.constant, t.tenant IS NOT NULL, t.texts IS NOT NULL, t.texts, set_config('recourse.short_texts', 'told', true)
FROM unnest($1::text[], $2::text[]) AS u(tenant, constant) LEFT JOIN recourse.letter_short_texts t ON t.tenant = u.tenant AND t.constant = u.constant`

	keepShortTextsSQL = `INSERT INTO recourse.letter_short_texts (tenant, constant, texts) VALUES ($1, $2, $3)
ON CONFLICT (tenant, constant) DO UPDATE SET texts = excluded.texts WHERE letter_short_texts.texts IS NOT NULL` // a doubt since it was read stays

	// shortAbsentSQL are the constant parts of the tenant $1 whose messages don't contain a short text.
	shortAbsentSQL = `SELECT constant FROM recourse.letter_short_texts WHERE tenant = $1 AND NOT texts @> ARRAY[?]`
)

// tell keeps what was collected, before its letters are written in the same transaction.
// Only the holder of the projection does.
func (t shortTexts) tell(ctx context.Context, tx *sql.Tx) error {
	if len(t) == 0 {
		return nil
	}
	asked := newColumns(2, len(t))
	for of := range t {
		asked.str(of.tenant)
		asked.str(of.constant)
	}
	grown, err := t.grown(ctx, tx, asked.args()...)
	if err != nil {
		return err
	}
	for of, texts := range grown {
		if _, err := tx.ExecContext(ctx, keepShortTextsSQL, of.tenant, of.constant, pq.Array(texts)); err != nil {
			return err
		}
	}
	return nil
}

// grown are the sets that must be written: nil for one that grew too large.
func (t shortTexts) grown(ctx context.Context, tx *sql.Tx, asked ...any) (map[constantOf][]string, error) {
	rows, err := tx.QueryContext(ctx, shortTextsSQL, asked...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	out := map[constantOf][]string{}
	for rows.Next() {
		var of constantOf
		var there, told bool
		var texts pq.StringArray
		var setting string
		if err := rows.Scan(&of.tenant, &of.constant, &there, &told, &texts, &setting); err != nil {
			return nil, err
		}
		if there && !told {
			continue
		}
		own := t[of].own
		for _, text := range texts {
			own[text] = true
		}
		if there && len(own) == len(texts) {
			continue
		}
		if out[of] = nil; len(own) <= mostShort {
			out[of] = slices.AppendSeq(make([]string, 0, len(own)), maps.Keys(own))
		}
	}
	return out, rows.Err()
}
