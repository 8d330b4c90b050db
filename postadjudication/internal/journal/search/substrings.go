package search

import (
	"context"
	"database/sql"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/lib/pq"

	"github.com/recourse-dev/recourse/internal/signature"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/pg"
)

// A text of one or two characters has no trigrams, and if few messages contain it, all
// would have to be read. But messages with the same constant part differ in little, such as
// digits. So the short substrings that they have beyond that part are stored once for all
// of them: see recourse.short_substrings.

// maxShortSubstrings is the most short substrings stored per constant part; messages with
// more are assumed to contain any.
const maxShortSubstrings = 1000

// tooShortForTrigrams reports whether a text is shorter than a trigram.
func tooShortForTrigrams(text string) bool { return utf8.RuneCountInString(text) < trigramSize }

// constantKey identifies the messages with one constant part.
type constantKey struct{ tenant, constant string }

// shortSubstrings collects the short substrings that messages have beyond their constant
// parts.
type shortSubstrings map[constantKey]*substringSet

type substringSet struct{ inConstant, extra map[string]bool }

func (t shortSubstrings) add(key constantKey, message string) {
	set := t[key]
	if set == nil {
		set = &substringSet{inConstant: map[string]bool{}, extra: map[string]bool{}}
		for _, part := range strings.Split(key.constant, signature.Gap) {
			eachShortSubstring(part, func(text string) { set.inConstant[text] = true })
		}
		t[key] = set
	}
	eachShortSubstring(message, func(text string) {
		if !set.inConstant[text] && !set.extra[text] {
			set.extra[text] = true
		}
	})
}

// eachShortSubstring visits every substring of fewer than trigramSize characters.
func eachShortSubstring(text string, visit func(string)) {
	starts := [trigramSize - 1]int{-1, -1} // of the last character and the one before
	upTo := func(end int) {
		for _, start := range starts {
			if start >= 0 {
				visit(text[start:end])
			}
		}
	}
	for i := range text {
		upTo(i)
		starts = [trigramSize - 1]int{i, starts[0]}
	}
	upTo(len(text))
}

const (
	shortSubstringsSQL = `SELECT u.tenant, u.constant, t.tenant IS NOT NULL, t.substrings IS NOT NULL, t.substrings, set_config('recourse.short_substrings', 'stored', true)
FROM unnest($1::text[], $2::text[]) AS u(tenant, constant) LEFT JOIN recourse.short_substrings t ON t.tenant = u.tenant AND t.constant = u.constant`

	storeShortSubstringsSQL = `INSERT INTO recourse.short_substrings (tenant, constant, substrings) VALUES ($1, $2, $3)
ON CONFLICT (tenant, constant) DO UPDATE SET substrings = excluded.substrings WHERE short_substrings.substrings IS NOT NULL` // a set that another step marked as unbounded meanwhile stays unbounded

	// withoutSubstringSQL selects the constant parts of the tenant $1 whose messages don't
	// contain a short text.
	withoutSubstringSQL = `SELECT constant FROM recourse.short_substrings WHERE tenant = $1 AND NOT substrings @> ARRAY[?]`
)

// store writes the sets, before their letters are written in the same transaction. Only the
// holder of the projection's lock calls it.
func (t shortSubstrings) store(ctx context.Context, tx *sql.Tx) error {
	if len(t) == 0 {
		return nil
	}
	keys := pg.NewTextColumns(2, len(t))
	for key := range t {
		keys.Str(key.tenant)
		keys.Str(key.constant)
	}
	changed, err := t.changedSets(ctx, tx, keys.Args()...)
	if err != nil {
		return err
	}
	for key, texts := range changed {
		if _, err := tx.ExecContext(ctx, storeShortSubstringsSQL, key.tenant, key.constant, pq.Array(texts)); err != nil {
			return err
		}
	}
	return nil
}

// changedSets returns the sets to write: nil for one that grew too large.
func (t shortSubstrings) changedSets(ctx context.Context, tx *sql.Tx, keys ...any) (map[constantKey][]string, error) {
	rows, err := tx.QueryContext(ctx, shortSubstringsSQL, keys...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	out := map[constantKey][]string{}
	for rows.Next() {
		var key constantKey
		var exists, bounded bool
		var texts pq.StringArray
		var setting string
		if err := rows.Scan(&key.tenant, &key.constant, &exists, &bounded, &texts, &setting); err != nil {
			return nil, err
		}
		if exists && !bounded {
			continue
		}
		extra := t[key].extra
		for _, text := range texts {
			extra[text] = true
		}
		if exists && len(extra) == len(texts) {
			continue
		}
		if out[key] = nil; len(extra) <= maxShortSubstrings {
			out[key] = slices.AppendSeq(make([]string, 0, len(extra)), maps.Keys(extra))
		}
	}
	return out, rows.Err()
}
