package postgres

import (
	"context"
	"errors"
	"strings"
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

// FoundLetter is a letter as it is now, with what the projection knows of it.
type FoundLetter struct {
	Snapshot
	Place      LetterPlace
	JobType    string
	Signature  string
	Outcome    string
	Currency   string
	Amount     int64
	Submission string
	Replays    int
	ReplayedBy string
	SeenAt     time.Time

	Held, Eligible, Review bool
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

// Letter reads one dead letter, if the run is one that is not purged.
func (j *Journal) Letter(ctx context.Context, id background.RunID) (FoundLetter, bool, error) {
	ctx, cancel := context.WithTimeout(ctx, statementLimit)
	defer cancel()
	found, err := j.readLetters(ctx, []LetterPlace{{Run: id}})
	if err != nil || len(found) == 0 {
		return FoundLetter{}, false, maybeUnavailable(err)
	}
	return found[0], true, nil
}

func (j *Journal) places(ctx context.Context, p letterPlan, after LetterPlace, limit int) ([]LetterPlace, error) {
	query, args := p.statement(after, limit)
	rows, err := j.finding.QueryContext(ctx, query, args...)
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

// The request bytes of a letter are not listed; a join that gives nothing is not made.
var listedSQL = strings.Replace(byRunsSQL, "coalesce(o.request, r.payload) AS payload", "NULL::bytea AS payload", 1)

const ofLettersSQL = `SELECT l.run_id, s.job_type, s.signature, s.outcome, s.currency, l.amount, l.submission, l.replays, s.replayed_by, l.last_seen_at, s.held, s.eligible, s.review
FROM recourse.letters l JOIN recourse.letter_shapes s ON s.id = l.shape WHERE l.run_id = ANY($1::uuid[])`

func (j *Journal) readLetters(ctx context.Context, places []LetterPlace) ([]FoundLetter, error) {
	c := newColumns(1, len(places))
	for _, p := range places {
		c.id(p.Run)
	}
	known := make(map[background.RunID]FoundLetter, len(places))
	rows, err := j.finding.QueryContext(ctx, ofLettersSQL, c.args()...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var id uuid.UUID
		var l FoundLetter
		if err := rows.Scan(&id, &l.JobType, &l.Signature, &l.Outcome, &l.Currency, &l.Amount, &l.Submission, &l.Replays, &l.ReplayedBy, &l.SeenAt, &l.Held, &l.Eligible, &l.Review); err != nil {
			return nil, err
		}
		l.SeenAt = l.SeenAt.UTC()
		known[background.RunID(id)] = l
	}
	if err := rows.Err(); err != nil {
		return nil, err
	}
	now, err := snapshots(ctx, j.finding, listedSQL, c.args()...)
	var bad unreadable
	if errors.As(err, &bad) {
		j.Warn(bad)
		err = nil
	}
	if err != nil {
		return nil, err
	}
	byRun := make(map[background.RunID]Snapshot, len(now))
	for _, s := range now {
		byRun[s.Run.ID] = s
	}
	out := make([]FoundLetter, 0, len(places))
	for _, p := range places {
		l, there := known[p.Run]
		if l.Snapshot = byRun[p.Run]; there && l.Run.State == background.DeadLettered && l.Run.Letter != background.LetterPurged {
			l.Place = p
			out = append(out, l)
		}
	}
	return out, nil
}
