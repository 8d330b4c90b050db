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

	Position LetterPosition // that it was found at
}

const foundLettersSQL = `
SELECT l.run_id, l.tenant, l.transaction, l.submission, l.escrow, l.amount, l.replays, l.last_seen_at,
  s.job_type, s.signature, s.outcome, s.currency, s.replayed_by, s.held, s.eligible, s.review,
  r.case_id, r.family, r.queue, r.parent_id, r.state, r.letter, r.attempt_count, r.class, r.bell, r.dead_at, r.reason, r.error_type, r.error_code, r.error_text,
  c.kind, c.progression, c.asked, c.moved, c.reserved, c.run_id, c.unknown_open, c.first_sent_at
FROM recourse.letters l JOIN recourse.letter_shapes s ON s.id = l.shape JOIN recourse.runs r ON r.id = l.run_id JOIN recourse.cases c ON c.id = r.case_id
WHERE l.run_id = ANY($1::uuid[])`

// readLetters reads the letters at places, in their order. What is no letter any more
// is left out.
func (j *Journal) readLetters(ctx context.Context, positions []LetterPosition) ([]FoundLetter, error) {
	return readLetters(ctx, j.searchDB, positions)
}

func readLetters(ctx context.Context, q querier, positions []LetterPosition) ([]FoundLetter, error) {
	c := newColumns(1, len(positions))
	for _, p := range positions {
		c.id(p.Run)
	}
	rows, err := q.QueryContext(ctx, foundLettersSQL, c.args()...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	byRun := make(map[background.RunID]FoundLetter, len(positions))
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
	out := make([]FoundLetter, 0, len(positions))
	for _, p := range positions {
		if l, exists := byRun[p.Run]; exists && l.Run.State == background.DeadLettered && l.Run.Letter != background.LetterPurged {
			l.Position = p
			out = append(out, l)
		}
	}
	return out, nil
}

func scanLetter(rows *sql.Rows) (l FoundLetter, err error) {
	var run, caseID, active uuid.UUID
	var parent uuid.NullUUID
	var sent sql.NullTime
	var failure background.Failure
	r, c := &l.Run, &l.Case
	err = rows.Scan(&run, &r.Tenant, &c.Subject, &l.Submission, &l.Escrow, &l.Amount, &l.Replays, &l.SeenAt,
		&l.JobType, &l.Signature, &l.Outcome, &l.Currency, &l.ReplayedBy, &l.Held, &l.Eligible, &l.Review,
		&caseID, &r.Family, &r.Queue, &parent, &r.State, &r.Letter, &r.Attempt, &r.Class, &r.NotificationNumber, &r.DeadAt, &r.Reason, &failure.Type, &failure.Code, &failure.Message,
		&c.Kind, &c.State.Progression, &c.State.Asked, &c.State.Moved, &c.State.Reserved, &active, &r.UnresolvedUnknowns, &sent)
	if err != nil {
		return l, err
	}
	r.ID, r.Case, r.Parent, c.ID, c.ActiveRun = background.RunID(run), background.CaseID(caseID), background.RunID(parent.UUID), receipts.CaseID(caseID), background.RunID(active)
	r.DeadAt, r.FirstSentAt, l.SeenAt, c.Tenant = r.DeadAt.UTC(), sent.Time.UTC(), l.SeenAt.UTC(), r.Tenant
	if !sent.Valid {
		r.FirstSentAt = time.Time{}
	}
	if failure != (background.Failure{}) {
		r.Failure = &failure
	}
	return l, nil
}
