package postgres

import (
	"context"
	"database/sql"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"time"

	"github.com/google/uuid"

	"github.com/recourse-dev/recourse/internal/failpoint"
	"github.com/recourse-dev/recourse/receipts"
)

// What the receipts of a plan call what it was before it was made, and what it is when
// nobody started it and it was forgotten.
const (
	BulkUnplanned = "none"
	BulkForgotten = "forgotten"
)

// bulkSystemActor is whom the receipts of forgotten plans name.
const bulkSystemActor = "system:bulk"

// insertPlanTries is how often a plan is kept whose register somebody else writes to for long.
const insertPlanTries = 10

// insertBulkPlan stores a plan whose items are stored, with the receipt that says who made it.
func (j *Journal) insertBulkPlan(ctx context.Context, b *BulkPlan) error {
	err := ErrBusy
	for try := 0; try < insertPlanTries && errors.Is(err, ErrBusy); try++ {
		err = j.inSlowPathTx(ctx, failpoint.BulkPlan, func(ctx context.Context, tx *sql.Tx) error {
			if err := tx.QueryRowContext(ctx, `INSERT INTO recourse.bulks (id, tenant, state, action, asked, actor, reason, parallel, throttle, items, hash, planned_at, planned_key, settles)
				VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14) RETURNING number`,
				b.ID, b.Tenant, string(b.State), b.Action, b.Request, b.Actor, b.Reason, b.Parallel, b.Throttle, b.Items, b.Hash[:], b.PlannedAt, b.PlannedKey, b.HasSettlements).Scan(&b.Number); err != nil {
				return err
			}
			return appendOperation(ctx, tx, b.Tenant, BulkLog, bulkReceipt(*b, b.Actor, b.PlannedAt, b.Reason, BulkUnplanned+" to "+string(b.State)))
		})
	}
	return err
}

func bulkReceipt(b BulkPlan, actor string, at time.Time, reason, changes string) receipts.Draft {
	return receipts.Draft{Subtype: receipts.BulkChanged, Actor: actor, At: at, Payload: receipts.Payload{
		Bulk: b.ID.String(), AskedFor: b.Action, ContentDigest: hex.EncodeToString(b.Hash[:]), Reason: reason, Changes: changes,
	}}
}

// deleteStalePlan forgets a plan that nobody started: nothing was done for it. Its receipt says
// so. It also drops what is left of a plan that was never kept, of whatever tenant.
func (j *Journal) deleteStalePlan(ctx context.Context, tenant string, staleBefore, now time.Time) error {
	stale, err := selectBulkPlans(ctx, j.readDB, `WHERE tenant = $1 AND started_at IS NULL AND planned_at < $2 ORDER BY id LIMIT 1`, tenant, staleBefore)
	if err != nil {
		return err
	}
	for _, b := range stale {
		err := j.inSlowPathTx(ctx, failpoint.BulkExpire, func(ctx context.Context, tx *sql.Tx) error {
			n, err := rowsAffected(tx.ExecContext(ctx, `DELETE FROM recourse.bulks WHERE id = $1 AND started_at IS NULL`, b.ID))
			if err != nil || n == 0 {
				return err
			}
			if err := deleteItems(ctx, tx, b.ID); err != nil {
				return err
			}
			return appendOperation(ctx, tx, tenant, BulkLog, bulkReceipt(b, bulkSystemActor, now, "nobody started it", string(b.State)+" to "+BulkForgotten))
		})
		if err != nil && !errors.Is(err, ErrBusy) { // it is forgotten with the next plan
			return err
		}
	}
	return j.deleteAbandonedItems(ctx, staleBefore)
}

func deleteItems(ctx context.Context, tx *sql.Tx, id uuid.UUID) error {
	_, err := tx.ExecContext(ctx, `WITH i AS (DELETE FROM recourse.bulk_items WHERE bulk_id = $1) DELETE FROM recourse.bulk_counts WHERE bulk_id = $1`, id)
	return err
}

const abandonedPlanSQL = `SELECT c.bulk_id FROM recourse.bulk_counts c WHERE c.bulk_id < $1 AND NOT EXISTS (SELECT FROM recourse.bulks b WHERE b.id = c.bulk_id) LIMIT 1`

// deleteAbandonedItems drops the items of a plan that was not kept: whoever made it died over it. The
// time is in the ids of plans.
func (j *Journal) deleteAbandonedItems(ctx context.Context, staleBefore time.Time) error {
	var before, id uuid.UUID
	binary.BigEndian.PutUint64(before[:8], uint64(staleBefore.UnixMilli())<<16)
	switch err := j.readDB.QueryRowContext(ctx, abandonedPlanSQL, before).Scan(&id); {
	case errors.Is(err, sql.ErrNoRows):
		return nil
	case err != nil:
		return unavailable(err)
	}
	return j.inSlowPathTx(ctx, failpoint.BulkExpire, func(ctx context.Context, tx *sql.Tx) error { return deleteItems(ctx, tx, id) })
}
