package postgres

import (
	"bytes"
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/recourse-dev/recourse/background"
)

// LetterFilter selects dead letters of a tenant; zero members select everything.
type LetterFilter struct {
	Shape ShapeFilter

	Transaction, Submission, Escrow string
	Run                             background.RunID
	Bell                            int // of Run; 0 for any

	DeadFrom, DeadTo         time.Time // DeadTo is excluded
	MinAttempts, MaxAttempts *int64
	MinAmount, MaxAmount     *int64
	MinReplays, MaxReplays   *int64

	Lifetime     func(family, queue string) (time.Duration, bool) // how long letters are kept; false for ever
	ExpiresUntil time.Time                                        // by Lifetime; included
}

// ShapeFilter selects by what letters have in common.
type ShapeFilter struct {
	Standing, Family, Queue, JobType, Outcome, Reason, Class, ErrorType, Signature, Currency, ReplayedBy string

	Held, Eligible, Review *bool
	Text                   string // contained in the error's message, in lower case
}

// LetterOrder is an order of letters: by a column, then by run.
type LetterOrder struct {
	Column     LetterColumn
	Descending bool
}

// LetterColumn is a column that letters can be ordered by.
type LetterColumn string

// The columns.
const (
	ByDeath    LetterColumn = "dead_at"
	BySeen     LetterColumn = "last_seen_at"
	ByAmount   LetterColumn = "amount"
	ByAttempts LetterColumn = "attempts"
)

func (c LetterColumn) isTime() bool { return c == ByDeath || c == BySeen }

// LetterPlace is a place in an order: the value of its column, in microseconds since
// 1970 where that is a time, and the run. The zero place is before all.
type LetterPlace struct {
	Value int64
	Run   background.RunID
}

// Letters finds dead letters of a tenant, strictly after a place. It gives the place
// of the last one, also when that could not be read, and whether others follow. What
// a letter is like now is read after it was found: one that changes meanwhile is
// shown as it is.
func (j *Journal) Letters(ctx context.Context, tenant string, f LetterFilter, o LetterOrder, after LetterPlace, limit int) (found []FoundLetter, more bool, last LetterPlace, err error) {
	ctx, cancel := context.WithTimeout(ctx, statementLimit)
	defer cancel()
	plan, err := j.planAfter(ctx, tenant, f, o, after, limit+1)
	if err != nil || plan.nothing() {
		return nil, false, after, maybeUnavailable(err)
	}
	places, err := j.places(ctx, plan, after, limit+1)
	if err != nil || len(places) == 0 {
		return nil, false, after, maybeUnavailable(err)
	}
	if more = len(places) > limit; more {
		places = places[:limit]
	}
	found, err = j.readLetters(ctx, places)
	return found, more, places[len(places)-1], maybeUnavailable(err)
}

// places finds so many places after one: those of a text by its grams, where that can
// be, and the others in the way that was chosen.
func (j *Journal) places(ctx context.Context, p letterPlan, after LetterPlace, limit int) ([]LetterPlace, error) {
	mine, others, able := p.byText()
	if !able {
		return j.placesByWalk(ctx, p, after, limit)
	}
	found, able, err := mine.first(ctx, j.finding, after, limit)
	if err != nil {
		return nil, err
	}
	if !able {
		return j.placesByWalk(ctx, p, after, limit)
	}
	if others.nothing() {
		return found, nil
	}
	others.around()
	others.choose(int64(limit))
	others.orWalk(int64(limit))
	rest, err := j.placesByWalk(ctx, others, after, limit)
	found = append(found, rest...)
	slices.SortFunc(found, p.order.compare)
	return found[:min(limit, len(found))], err
}

// placesByWalk finds places, perhaps by a walk. One that finds too few before it is
// given up is gone on with in another way; but who looks for what any message may
// contain reads the fewest of them in the order itself, unless few contain it.
func (j *Journal) placesByWalk(ctx context.Context, p letterPlan, after LetterPlace, limit int) (found []LetterPlace, err error) {
	if p.way != walking || p.most == 0 {
		return j.placesBy(ctx, p, after, limit)
	}
	query, args := p.glance(after, limit)
	if found, err = placesOf(ctx, j.finding, query, args); err != nil || len(found) == limit {
		return found, err
	}
	if len(found) > 0 {
		after = found[len(found)-1]
	}
	limit -= len(found)
	if p.whole > 0 {
		p.narrow(after)
	} else if err := j.readShapes(ctx, &p, after); err != nil {
		return nil, err
	}
	switch {
	case !p.checks():
		if p.choose(int64(limit)); p.way == byRange && p.most < walkMost && p.left() > walkMost { // more than to walk further costs
			p.way, p.most = walking, walkMost
			rest, err := j.placesByWalk(ctx, p, after, limit)
			return append(found, rest...), err
		}
	case p.rare(len(found), limit):
		rest, err := j.placesLying(ctx, p, after, limit)
		return append(found, rest...), err
	}
	rest, err := j.placesBy(ctx, p, after, limit)
	return append(found, rest...), err
}

// placesBy finds them in the way that was chosen.
func (j *Journal) placesBy(ctx context.Context, p letterPlan, after LetterPlace, limit int) ([]LetterPlace, error) {
	if p.nothing() {
		return nil, nil
	}
	return p.places(ctx, j.finding, after, limit)
}

// places finds them in the plan's way, however far it goes.
func (p *letterPlan) places(ctx context.Context, q querier, after LetterPlace, limit int) ([]LetterPlace, error) {
	query, args := p.statement(after, limit)
	return placesOf(ctx, q, query, args)
}

func placesOf(ctx context.Context, q querier, query string, args []any) ([]LetterPlace, error) {
	rows, err := q.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var out []LetterPlace
	for rows.Next() {
		var id uuid.UUID
		var value any
		if err := rows.Scan(&id, &value); err != nil {
			return nil, err
		}
		out = append(out, placeAt(id, value))
	}
	return out, rows.Err()
}

// placeAt is a place as the order's column gives it.
func placeAt(id uuid.UUID, value any) LetterPlace {
	place := LetterPlace{Run: background.RunID(id)}
	switch v := value.(type) {
	case time.Time:
		place.Value = v.UnixMicro()
	case int64:
		place.Value = v
	}
	return place
}

// compare tells which of two places comes first.
func (o LetterOrder) compare(a, b LetterPlace) int {
	if o.Descending {
		a, b = b, a
	}
	return cmp.Or(cmp.Compare(a.Value, b.Value), bytes.Compare(a.Run[:], b.Run[:]))
}
