package postgres

import (
	"context"

	"github.com/google/uuid"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/receipts"
)

const standingsSQL = `SELECT id, family, queue, state, letter, attempt_count, bell FROM recourse.runs WHERE id = ANY($1::uuid[])`

// Standings reads what a mirror of a run's letter is judged by. See
// background.MirrorLedger.
func (j *Journal) Standings(ctx context.Context, ids []background.RunID) ([]background.Run, error) {
	c := newColumns(1, 1)
	for _, id := range ids {
		c.id(id)
	}
	rows, err := j.reads.QueryContext(ctx, standingsSQL, c.args()...)
	if err != nil {
		return nil, unavailable(err)
	}
	defer rows.Close()
	out := make([]background.Run, 0, len(ids))
	for rows.Next() {
		var id uuid.UUID
		var r background.Run
		if err := rows.Scan(&id, &r.Family, &r.Queue, &r.State, &r.Letter, &r.Attempt, &r.Bell); err != nil {
			return nil, unavailable(err)
		}
		r.ID = background.RunID(id)
		out = append(out, r)
	}
	if err := rows.Err(); err != nil {
		return nil, unavailable(err)
	}
	return out, nil
}

const toldSQL = `SELECT EXISTS (SELECT FROM recourse.receipts
WHERE case_id = $1 AND run_id = $2 AND subtype = $3 AND body::json -> 'payload' ->> 'dispatch_reference' = $4)`

// Told reports whether a case has a receipt of a subtype about a run's delivery.
func (j *Journal) Told(ctx context.Context, run background.Run, about receipts.Subtype, dispatch string) (told bool, err error) {
	err = j.reads.QueryRowContext(ctx, toldSQL, run.Case.String(), run.ID.String(), string(about), dispatch).Scan(&told)
	if err != nil {
		return false, unavailable(err)
	}
	return told, nil
}
