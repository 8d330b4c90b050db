package postgres

import (
	"context"
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
	plan, err := j.planLetters(ctx, tenant, f, o, limit+1)
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

func (j *Journal) places(ctx context.Context, p letterPlan, after LetterPlace, limit int) ([]LetterPlace, error) {
	return p.places(ctx, j.finding, after, limit)
}

func (p *letterPlan) places(ctx context.Context, q querier, after LetterPlace, limit int) ([]LetterPlace, error) {
	query, args := p.statement(after, limit)
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
		place := LetterPlace{Run: background.RunID(id)}
		switch v := value.(type) {
		case time.Time:
			place.Value = v.UnixMicro()
		case int64:
			place.Value = v
		}
		out = append(out, place)
	}
	return out, rows.Err()
}
