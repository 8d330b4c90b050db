package postgres

import (
	"context"
	"database/sql"
	"time"

	"github.com/google/uuid"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/settlement"
)

// FoundLetter is a letter as it is now, with what the projection knows of it. Of run
// and case it holds what lists show and what decides whether it may be forked; not
// their policy, payload and keys.
type FoundLetter struct {
	Run  background.Run
	Case Case

	JobType    string
	Signature  string
	Outcome    settlement.Outcome
	Currency   string
	Amount     int64
	Submission string
	Escrow     string
	Replays    int
	ReplayedBy string
	SeenAt     time.Time

	Held, Eligible, Review bool

	Place LetterPlace // that it was found at
}

const listedSQL = `
SELECT l.run_id, l.tenant, l.transaction, l.submission, l.escrow, l.amount, l.replays, l.last_seen_at,
  s.job_type, s.signature, s.outcome, s.currency, s.replayed_by, s.held, s.eligible, s.review,
  r.case_id, r.family, r.queue, r.parent_id, r.state, r.letter, r.attempt_count, r.class, r.bell, r.dead_at, r.reason, r.error_type, r.error_code, r.error_text,
  c.kind, c.progression, c.asked, c.moved, c.reserved, c.run_id, c.unknown_open, c.first_sent_at
FROM recourse.letters l JOIN recourse.letter_shapes s ON s.id = l.shape JOIN recourse.runs r ON r.id = l.run_id JOIN recourse.cases c ON c.id = r.case_id
WHERE l.run_id = ANY($1::uuid[])`

// readLetters reads the letters at places, in their order. What is no letter any more
// is left out.
func (j *Journal) readLetters(ctx context.Context, places []LetterPlace) ([]FoundLetter, error) {
	return readLetters(ctx, j.finding, places)
}

func readLetters(ctx context.Context, q querier, places []LetterPlace) ([]FoundLetter, error) {
	c := newColumns(1, len(places))
	for _, p := range places {
		c.id(p.Run)
	}
	rows, err := q.QueryContext(ctx, listedSQL, c.args()...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	byRun := make(map[background.RunID]FoundLetter, len(places))
	for rows.Next() {
		l, err := scanLetter(rows)
		if err != nil {
			return nil, err
		}
		byRun[l.Run.ID] = l
	}
	if err := rows.Err(); err != nil {
		return nil, err
	}
	out := make([]FoundLetter, 0, len(places))
	for _, p := range places {
		if l, there := byRun[p.Run]; there && l.Run.State == background.DeadLettered && l.Run.Letter != background.LetterPurged {
			l.Place = p
			out = append(out, l)
		}
	}
	return out, nil
}

func scanLetter(rows *sql.Rows) (l FoundLetter, err error) {
	var run, kase, holder uuid.UUID
	var parent uuid.NullUUID
	var sent sql.NullTime
	var failure background.Failure
	r, c := &l.Run, &l.Case
	err = rows.Scan(&run, &r.Tenant, &c.Subject, &l.Submission, &l.Escrow, &l.Amount, &l.Replays, &l.SeenAt,
		&l.JobType, &l.Signature, &l.Outcome, &l.Currency, &l.ReplayedBy, &l.Held, &l.Eligible, &l.Review,
		&kase, &r.Family, &r.Queue, &parent, &r.State, &r.Letter, &r.Attempt, &r.Class, &r.Bell, &r.DeadAt, &r.Reason, &failure.Type, &failure.Code, &failure.Message,
		&c.Kind, &c.State.Progression, &c.State.Asked, &c.State.Moved, &c.State.Reserved, &holder, &r.UnknownOpen, &sent)
	if err != nil {
		return l, err
	}
	r.ID, r.Case, r.Parent, c.ID, c.Holder = background.RunID(run), background.CaseID(kase), background.RunID(parent.UUID), receipts.CaseID(kase), background.RunID(holder)
	r.DeadAt, r.FirstSentAt, l.SeenAt, c.Tenant = r.DeadAt.UTC(), sent.Time.UTC(), l.SeenAt.UTC(), r.Tenant
	if !sent.Valid {
		r.FirstSentAt = time.Time{}
	}
	if failure != (background.Failure{}) {
		r.Failure = &failure
	}
	return l, nil
}
