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

// bulkForgetter is whom the receipts of forgotten plans name.
const bulkForgetter = "system:bulk"

// keepTries is how often a plan is kept whose register somebody else writes to for long.
const keepTries = 10

// keepPlan stores a plan whose items are stored, with the receipt that says who made it.
func (j *Journal) keepPlan(ctx context.Context, b *Bulk) error {
	err := ErrBusy
	for try := 0; try < keepTries && errors.Is(err, ErrBusy); try++ {
		err = j.inLane(ctx, failpoint.BulkPlan, func(ctx context.Context, tx *sql.Tx) error {
			if err := tx.QueryRowContext(ctx, `INSERT INTO recourse.bulks (id, tenant, state, action, asked, actor, reason, parallel, throttle, items, hash, planned_at, planned_key, settles)
				VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14) RETURNING number`,
				b.ID, b.Tenant, string(b.State), b.Action, b.Asked, b.Actor, b.Reason, b.Parallel, b.Throttle, b.Items, b.Hash[:], b.PlannedAt, b.Key, b.Settles).Scan(&b.Number); err != nil {
				return err
			}
			return tellRegister(ctx, tx, b.Tenant, BulkRegister, bulkDraft(*b, b.Actor, b.PlannedAt, b.Reason, BulkUnplanned+" to "+string(b.State)))
		})
	}
	return err
}

func bulkDraft(b Bulk, actor string, at time.Time, reason, changes string) receipts.Draft {
	return receipts.Draft{Subtype: receipts.BulkChanged, Actor: actor, At: at, Payload: receipts.Payload{
		Bulk: b.ID.String(), AskedFor: b.Action, ContentDigest: hex.EncodeToString(b.Hash[:]), Reason: reason, Changes: changes,
	}}
}

// forgetPlans forgets a plan that nobody started: nothing was done for it. Its receipt says
// so. It also drops what is left of a plan that was never kept, of whatever tenant.
func (j *Journal) forgetPlans(ctx context.Context, tenant string, outdated, now time.Time) error {
	found, err := bulksOf(ctx, j.reads, `WHERE tenant = $1 AND started_at IS NULL AND planned_at < $2 ORDER BY id LIMIT 1`, tenant, outdated)
	if err != nil {
		return err
	}
	for _, b := range found {
		err := j.inLane(ctx, failpoint.BulkForget, func(ctx context.Context, tx *sql.Tx) error {
			n, err := affected(tx.ExecContext(ctx, `DELETE FROM recourse.bulks WHERE id = $1 AND started_at IS NULL`, b.ID))
			if err != nil || n == 0 {
				return err
			}
			if err := dropItems(ctx, tx, b.ID); err != nil {
				return err
			}
			return tellRegister(ctx, tx, tenant, BulkRegister, bulkDraft(b, bulkForgetter, now, "nobody started it", string(b.State)+" to "+BulkForgotten))
		})
		if err != nil && !errors.Is(err, ErrBusy) { // it is forgotten with the next plan
			return err
		}
	}
	return j.dropUnkept(ctx, outdated)
}

func dropItems(ctx context.Context, tx *sql.Tx, id uuid.UUID) error {
	_, err := tx.ExecContext(ctx, `WITH i AS (DELETE FROM recourse.bulk_items WHERE bulk_id = $1) DELETE FROM recourse.bulk_counts WHERE bulk_id = $1`, id)
	return err
}

const unkeptPlanSQL = `SELECT c.bulk_id FROM recourse.bulk_counts c WHERE c.bulk_id < $1 AND NOT EXISTS (SELECT FROM recourse.bulks b WHERE b.id = c.bulk_id) LIMIT 1`

// dropUnkept drops the items of a plan that was not kept: whoever made it died over it. The
// time is in the ids of plans.
func (j *Journal) dropUnkept(ctx context.Context, outdated time.Time) error {
	var before, id uuid.UUID
	binary.BigEndian.PutUint64(before[:8], uint64(outdated.UnixMilli())<<16)
	switch err := j.reads.QueryRowContext(ctx, unkeptPlanSQL, before).Scan(&id); {
	case errors.Is(err, sql.ErrNoRows):
		return nil
	case err != nil:
		return unavailable(err)
	}
	return j.inLane(ctx, failpoint.BulkForget, func(ctx context.Context, tx *sql.Tx) error { return dropItems(ctx, tx, id) })
}
