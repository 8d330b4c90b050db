package postgres

import (
	"context"
	"database/sql"
	"errors"

	"github.com/google/uuid"
	"github.com/jmoiron/sqlx"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/failpoint"
	"github.com/recourse-dev/recourse/receipts"
)

// BulkLog has the receipts of a tenant's bulk plans.
const BulkLog OperationLog = "bulks"

// ErrNoChange is what a decision answers that leaves everything as it is.
var ErrNoChange = errors.New("postgres: nothing is to be changed")

// UpdateBulkPlan changes where a plan stands, together with its receipt. decide gives the
// plan as it is to be, or why it is not; it is called once, on the locked row. left
// tells how many items have no outcome yet, as far as that matters: one or none. The
// plan settles when any of its items is of a settlement, whatever its row says.
// ErrNotFound when the tenant has no such plan. After any other error but decide's it
// is not known whether it was changed: look again.
func (j *Journal) UpdateBulkPlan(ctx context.Context, tenant string, id uuid.UUID, decide func(now BulkPlan, pending bool) (BulkPlan, receipts.Draft, error)) (now BulkPlan, err error) {
	err = j.inSlowPathTx(ctx, failpoint.BulkTransition, func(ctx context.Context, tx *sql.Tx) error {
		var pending bool
		if now, pending, err = lockBulkPlanRow(ctx, tx, tenant, id); err != nil {
			return err
		}
		next, draft, err := decide(now, pending)
		if err != nil {
			return err
		}
		draft.Subtype = receipts.BulkChanged
		if err := updateBulkPlanRow(ctx, tx, next); err != nil {
			return err
		}
		now = next
		return appendOperation(ctx, tx, tenant, BulkLog, draft)
	})
	if errors.Is(err, ErrNoChange) {
		err = nil
	}
	return now, err
}

func lockBulkPlanRow(ctx context.Context, tx *sql.Tx, tenant string, id uuid.UUID) (b BulkPlan, pending bool, err error) {
	rows, err := tx.QueryContext(ctx, bulkPlanSQL+`WHERE tenant = $1 AND id = $2 FOR NO KEY UPDATE`, tenant, id)
	if err != nil {
		return b, false, err
	}
	var found []bulkPlanRow
	if err := sqlx.StructScan(rows, &found); err != nil {
		return b, false, err
	}
	if len(found) != 1 {
		return b, false, background.ErrNotFound
	}
	b = found[0].plan()
	err = tx.QueryRowContext(ctx, `SELECT EXISTS (SELECT FROM recourse.bulk_items WHERE bulk_id = $1 AND outcome = ''),
		$2 OR EXISTS (SELECT FROM recourse.bulk_items i JOIN recourse.cases c ON c.id = i.case_id WHERE i.bulk_id = $1 AND c.kind = 'settlement')`, id, b.HasSettlements).Scan(&pending, &b.HasSettlements)
	return b, pending, err
}

func updateBulkPlanRow(ctx context.Context, tx *sql.Tx, b BulkPlan) error {
	nullable := func(t sql.NullTime) sql.NullTime { t.Valid = !t.Time.IsZero(); return t }
	_, err := tx.ExecContext(ctx, `UPDATE recourse.bulks SET state = $2, settled = $3, started_by = $4, started_at = $5, moved_by = $6, moved_why = $7, moved_at = $8, ended_at = $9,
		started_key = $10, started_why = $11, people = $12, declared = $13, incident = $14 WHERE id = $1`,
		b.ID, string(b.State), b.OutcomesKnown, b.StartedBy, nullable(sql.NullTime{Time: b.StartedAt}), b.ChangedBy, b.ChangeReason, nullable(sql.NullTime{Time: b.ChangedAt}), nullable(sql.NullTime{Time: b.EndedAt}),
		b.StartedKey, b.IncidentReason, b.People, b.SelfDeclared, b.Incident)
	return err
}

// MarkBulkOutcomesKnown notes that nothing of a cancelled plan is in doubt any more.
func (j *Journal) MarkBulkOutcomesKnown(ctx context.Context, id uuid.UUID) error {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	_, err := execWithFailpoints(ctx, j.readDB.DB, failpoint.BulkSettled, `UPDATE recourse.bulks SET settled = true WHERE id = $1 AND state = 'cancelled'`, id)
	return unavailableOrNil(err)
}
