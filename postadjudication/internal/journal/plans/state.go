package plans

import (
	"context"
	"database/sql"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"time"

	"github.com/google/uuid"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/failpoint"
	"github.com/recourse-dev/recourse/internal/schema/stored"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/pg"
	"github.com/recourse-dev/recourse/receipts"
)

// States in the receipts of a plan: before it was made, and after it was deleted because
// nobody started it.
const (
	Unplanned = stored.BulkUnplanned
	Forgotten = stored.BulkForgotten
)

// systemActor is the actor in the receipts of deleted stale plans.
const systemActor = "system:bulk"

// insertPlanTries bounds the attempts to store a plan while another transaction holds the
// bulk log.
const insertPlanTries = 10

// insertPlan stores a plan whose items are stored already, with its receipt. If its request has
// made another plan meanwhile, it stores nothing, deletes the items, and b becomes that plan. If the items were
// taken for abandoned, it stores nothing and returns journal.ErrBusy.
func (p *Store) insertPlan(ctx context.Context, b *Plan) error {
	err := journal.ErrBusy
	var made bool
	for try := 0; try < insertPlanTries && errors.Is(err, journal.ErrBusy); try++ {
		err = p.journal.InSlowPathTx(ctx, failpoint.BulkPlan, func(ctx context.Context, tx *sql.Tx) error {
			made = false // a try before may have been rolled back
			switch err := tx.QueryRowContext(ctx, `INSERT INTO recourse.bulks (id, tenant, state, action, asked, actor, reason, parallel, throttle, items, hash, planned_at, planned_key, settles, made_for)
				VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)
				ON CONFLICT (tenant, made_for) WHERE made_for <> '' DO NOTHING RETURNING number`,
				b.ID, b.Tenant, string(b.State), b.Action, b.Request, b.Actor, b.Reason, b.Parallel, b.Throttle, b.Items, b.Hash[:], b.PlannedAt, b.PlannedKey, b.HasSettlements, b.MadeFor).Scan(&b.Number); {
			case errors.Is(err, sql.ErrNoRows):
				made = true
				return deleteItems(ctx, tx, b.ID)
			case err != nil:
				return err
			}
			if b.Items > 0 { // others have no counts to lock
				if there, err := lockItems(ctx, tx, b.ID); err != nil || !there {
					return errors.Join(err, journal.ErrBusy)
				}
			}
			return journal.AppendOperation(ctx, tx, b.Tenant, Log, receiptOf(*b, b.Actor, b.PlannedAt, b.Reason, Unplanned+" to "+string(b.State)))
		})
	}
	if err == nil && made {
		*b, err = p.MadeFor(ctx, b.Tenant, b.MadeFor)
	}
	return err
}

func receiptOf(b Plan, actor string, at time.Time, reason, changes string) receipts.Draft {
	return receipts.Draft{Subtype: receipts.BulkChanged, Actor: actor, At: at, Payload: receipts.Payload{
		Bulk: b.ID.String(), AskedFor: b.Action, ContentDigest: hex.EncodeToString(b.Hash[:]), Reason: reason, Changes: changes,
	}}
}

// deleteStalePlan deletes a plan that nobody started, with a receipt: nothing was done for
// it. It also deletes the items of a plan that was never stored, of any tenant.
func (p *Store) deleteStalePlan(ctx context.Context, planned *Plan, staleBefore time.Time) error {
	stale, err := selectPlans(ctx, p.readDB, `WHERE tenant = $1 AND started_at IS NULL AND planned_at < $2 ORDER BY id LIMIT 1`, planned.Tenant, staleBefore)
	if err != nil {
		return err
	}
	for _, b := range stale {
		err := p.journal.InSlowPathTx(ctx, failpoint.BulkExpire, func(ctx context.Context, tx *sql.Tx) error {
			n, err := pg.RowsAffected(tx.ExecContext(ctx, `DELETE FROM recourse.bulks WHERE id = $1 AND started_at IS NULL`, b.ID))
			if err != nil || n == 0 {
				return err
			}
			if err := deleteItems(ctx, tx, b.ID); err != nil {
				return err
			}
			return journal.AppendOperation(ctx, tx, planned.Tenant, Log, receiptOf(b, systemActor, planned.PlannedAt, "nobody started it", string(b.State)+" to "+Forgotten))
		})
		if err != nil && !errors.Is(err, journal.ErrBusy) { // it is deleted with the next plan
			return err
		}
	}
	return p.deleteAbandonedItems(ctx, planned, planned.PlannedAt.Sub(staleBefore))
}

func deleteItems(ctx context.Context, tx *sql.Tx, id uuid.UUID) error {
	_, err := tx.ExecContext(ctx, `WITH i AS (DELETE FROM recourse.bulk_items WHERE bulk_id = $1) DELETE FROM recourse.bulk_counts WHERE bulk_id = $1`, id)
	return err
}

const abandonedPlanSQL = `SELECT c.bulk_id FROM recourse.bulk_counts c WHERE c.bulk_id < $1 AND NOT EXISTS (SELECT FROM recourse.bulks b WHERE b.id = c.bulk_id) LIMIT 1`

// lockItems reports whether the items of a plan are there, and keeps them from being deleted until the transaction ends.
func lockItems(ctx context.Context, tx *sql.Tx, id uuid.UUID) (there bool, err error) {
	n, err := pg.RowsAffected(tx.ExecContext(ctx, `SELECT FROM recourse.bulk_counts WHERE bulk_id = $1 FOR UPDATE`, id))
	return n > 0, err
}

// deleteAbandonedItems deletes the items of a plan that was never stored, because its process died: its id, which
// contains the time at which it was made, is that much older. If a clock was set, that may be a plan which is
// being made; insertPlan then finds no items.
func (p *Store) deleteAbandonedItems(ctx context.Context, planned *Plan, older time.Duration) error {
	var before, id uuid.UUID
	made := int64(binary.BigEndian.Uint64(planned.ID[:8]) >> 16)
	binary.BigEndian.PutUint64(before[:8], uint64(max(0, made-older.Milliseconds()))<<16)
	switch err := p.readDB.QueryRowContext(ctx, abandonedPlanSQL, before).Scan(&id); {
	case errors.Is(err, sql.ErrNoRows):
		return nil
	case err != nil:
		return pg.Wrap(err)
	}
	return p.journal.InSlowPathTx(ctx, failpoint.BulkExpire, func(ctx context.Context, tx *sql.Tx) error {
		if there, err := lockItems(ctx, tx, id); err != nil || !there {
			return err
		}
		var stored bool // while the items were not locked
		if err := tx.QueryRowContext(ctx, `SELECT EXISTS (SELECT FROM recourse.bulks WHERE id = $1)`, id).Scan(&stored); err != nil || stored {
			return err
		}
		return deleteItems(ctx, tx, id)
	})
}

// Lock is held by the one process that works on a plan. It ends with its connection:
// when the process dies or is cut off, and after SequencerIdle without a statement. It
// saves work, and is no guard: what is done to an item is guarded by itself. It is for one
// goroutine.
type Lock struct {
	conn *sql.Conn
	id   uuid.UUID
}

// The advisory locks of plans, by their numbers: the bytes of "rcrt".
const tryLockSQL = `SELECT pg_try_advisory_lock(1919119988, $1)`

// Lock takes the lock of a plan; it returns nil if another process has it.
func (p *Store) Lock(ctx context.Context, b Plan) (*Lock, error) {
	ctx, cancel := context.WithTimeout(ctx, lockCheckTimeout)
	defer cancel()
	conn, err := pg.TryLock(ctx, p.journal.Outbox.LockPool(), tryLockSQL, b.Number)
	if err != nil || conn == nil {
		return nil, err
	}
	return &Lock{conn, b.ID}, nil
}

// State returns the plan's state over the connection that holds the lock; without an error
// the lock is still held. Call it more often than every SequencerIdle.
func (l *Lock) State(ctx context.Context) (s State, err error) {
	ctx, cancel := context.WithTimeout(ctx, lockCheckTimeout)
	defer cancel()
	err = l.conn.QueryRowContext(ctx, `SELECT state FROM recourse.bulks WHERE id = $1`, l.id).Scan(&s)
	return s, pg.Wrap(err)
}

// Release releases the lock.
func (l *Lock) Release(ctx context.Context) error { return pg.ReleaseLocks(ctx, l.conn) }

// Log has the receipts of a tenant's bulk plans.
const Log journal.OperationLog = stored.BulkLog

// Update changes the state of a plan, together with its receipt. decide returns the
// changed plan or an error; it is called once, on the locked row. pending reports whether
// an item has no outcome yet. HasSettlements is set if any of its items is of a settlement,
// whatever its row says. It returns ErrNotFound if the tenant has no such plan. After any
// other error, except one from decide, the outcome is unknown: read the plan again.
func (p *Store) Update(ctx context.Context, tenant string, id uuid.UUID, decide func(now Plan, pending bool) (Plan, receipts.Draft, error)) (now Plan, err error) {
	err = p.journal.InSlowPathTx(ctx, failpoint.BulkTransition, func(ctx context.Context, tx *sql.Tx) error {
		var pending bool
		if now, pending, err = lockPlanRow(ctx, tx, tenant, id); err != nil {
			return err
		}
		next, draft, err := decide(now, pending)
		if err != nil {
			return err
		}
		draft.Subtype = receipts.BulkChanged
		if err := updatePlanRow(ctx, tx, next); err != nil {
			return err
		}
		now = next
		return journal.AppendOperation(ctx, tx, tenant, Log, draft)
	})
	if errors.Is(err, journal.ErrNoChange) {
		err = nil
	}
	return now, err
}

func lockPlanRow(ctx context.Context, tx *sql.Tx, tenant string, id uuid.UUID) (b Plan, pending bool, err error) {
	found, err := pg.QueryAll[planRow](ctx, tx, planSQL+`WHERE tenant = $1 AND id = $2 FOR NO KEY UPDATE`, tenant, id)
	if err != nil {
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

func updatePlanRow(ctx context.Context, tx *sql.Tx, b Plan) error {
	nullable := func(t sql.NullTime) sql.NullTime { t.Valid = !t.Time.IsZero(); return t }
	_, err := tx.ExecContext(ctx, `UPDATE recourse.bulks SET state = $2, settled = $3, started_by = $4, started_at = $5, changed_by = $6, changed_why = $7, changed_at = $8, ended_at = $9,
		started_key = $10, started_why = $11, people = $12, declared = $13, incident = $14 WHERE id = $1`,
		b.ID, string(b.State), b.OutcomesKnown, b.StartedBy, nullable(sql.NullTime{Time: b.StartedAt}), b.ChangedBy, b.ChangeReason, nullable(sql.NullTime{Time: b.ChangedAt}), nullable(sql.NullTime{Time: b.EndedAt}),
		b.StartedKey, b.IncidentReason, b.People, b.SelfDeclared, b.Incident)
	return err
}

// MarkOutcomesKnown records that the outcomes of all items of a cancelled plan are
// known.
func (p *Store) MarkOutcomesKnown(ctx context.Context, id uuid.UUID) error {
	ctx, cancel := context.WithTimeout(ctx, pg.StatementTimeout)
	defer cancel()
	_, err := pg.Exec(ctx, p.readDB.DB, failpoint.BulkSettled, `UPDATE recourse.bulks SET settled = true WHERE id = $1 AND state = 'cancelled'`, id)
	return pg.Wrap(err)
}
