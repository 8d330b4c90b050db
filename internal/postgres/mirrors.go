package postgres

import (
	"context"

	"github.com/google/uuid"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/receipts"
)

const runStatusesSQL = `SELECT id, family, queue, state, letter, attempt_count, bell FROM recourse.runs WHERE id = ANY($1::uuid[])`

// RunStatuses reads what a mirror of a run's letter is judged by. See
// background.ArchiveStore.
func (j *Journal) RunStatuses(ctx context.Context, ids []background.RunID) ([]background.Run, error) {
	c := newColumns(1, 1)
	for _, id := range ids {
		c.id(id)
	}
	rows, err := j.readDB.QueryContext(ctx, runStatusesSQL, c.args()...)
	if err != nil {
		return nil, unavailable(err)
	}
	defer rows.Close()
	out := make([]background.Run, 0, len(ids))
	for rows.Next() {
		var id uuid.UUID
		var r background.Run
		if err := rows.Scan(&id, &r.Family, &r.Queue, &r.State, &r.Letter, &r.Attempt, &r.NotificationNumber); err != nil {
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

const deliveryReceiptSQL = `SELECT EXISTS (SELECT FROM recourse.receipts
WHERE case_id = $1 AND run_id = $2 AND subtype = $3 AND body::json -> 'payload' ->> 'dispatch_reference' = $4)`

// HasDeliveryReceipt reports whether a case has a receipt of a subtype about a run's delivery.
func (j *Journal) HasDeliveryReceipt(ctx context.Context, run background.Run, subtype receipts.Subtype, dispatch string) (found bool, err error) {
	err = j.readDB.QueryRowContext(ctx, deliveryReceiptSQL, run.Case.String(), run.ID.String(), string(subtype), dispatch).Scan(&found)
	if err != nil {
		return false, unavailable(err)
	}
	return found, nil
}
