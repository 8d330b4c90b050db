package postgres

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/lib/pq"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/failpoint"
)

// waitingByBreakerSQL finds the waiting runs that go by a target's breaker and that no breaker
// of their own tenant keeps back; with a tenant in $1, those of that tenant.
const waitingByBreakerSQL = `FROM recourse.runs r WHERE r.live AND r.state <> 'running' AND r.family = $2 AND ` + breakerOfRunSQL + ` = $3 AND ($1 = '' OR r.tenant = $1)
  AND ($1 <> '' OR NOT EXISTS (SELECT FROM recourse.brakes k WHERE k.tenant = r.tenant AND k.family = $2 AND k.target = $3 AND k.state <> 'closed'))`

const (
	ofTargetDueSQL = waitingByBreakerSQL + ` AND r.due_at <= $4 AND ($5::text[] IS NULL OR (r.target = ANY ($5::text[])) <> $6)
  AND (NOT $6 OR EXISTS (SELECT FROM recourse.sessions s WHERE NOT s.lost AND r.target = ANY (s.targets))) `
	dueByBreakerSQL    = waitingColumns + ofTargetDueSQL
	newestPausedSQL    = dueByBreakerSQL + `AND r.state = 'pending' ORDER BY r.due_at DESC, r.id DESC LIMIT $7`
	retriedPausedSQL   = dueByBreakerSQL + `AND r.state <> 'pending' AND (r.due_at, r.id) > ($7, $8) ORDER BY r.due_at, r.id LIMIT $9`
	newPausedFromSQL   = dueByBreakerSQL + `AND r.state = 'pending' AND r.due_at >= $7 ORDER BY r.due_at, r.id LIMIT $8`
	oldestPausedDueSQL = `SELECT r.due_at ` + ofTargetDueSQL + `AND r.state = 'pending' ORDER BY r.due_at, r.id LIMIT 1`
	newestPausedDueSQL = `SELECT r.due_at ` + ofTargetDueSQL + `AND r.state = 'pending' ORDER BY r.due_at DESC, r.id DESC LIMIT 1`
	countPausedSQL     = `SELECT count(*) FROM (SELECT ` + waitingByBreakerSQL + ` AND ($4::text[] IS NULL OR r.target = ANY ($4::text[])) LIMIT $5) AS behind`
)

// PausedRuns lists waiting runs that go by a target's breaker. A run is new while it is pending. The place
// between the oldest and the newest is one in time.
func (j *Journal) PausedRuns(ctx context.Context, q background.PausedQuery) ([]background.Run, error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	args := []any{q.Tenant, q.Family, q.Name, q.Due, pq.Array(q.Called), q.Others}
	switch {
	case q.NewestFirst:
		return j.selectWaiting(ctx, newestPausedSQL, append(args, q.Limit)...)
	case !q.NeverClaimed:
		return j.selectWaiting(ctx, retriedPausedSQL, append(args, q.After.DueAt, q.After.ID.String(), q.Limit)...)
	}
	var oldest, newest time.Time
	for text, to := range map[string]*time.Time{oldestPausedDueSQL: &oldest, newestPausedDueSQL: &newest} {
		switch err := j.readDB.QueryRowContext(ctx, text, args...).Scan(to); {
		case errors.Is(err, sql.ErrNoRows):
			return nil, nil
		case err != nil:
			return nil, unavailable(err)
		}
	}
	from := oldest.Add(time.Duration(q.StartFraction * float64(newest.Sub(oldest))))
	return j.selectWaiting(ctx, newPausedFromSQL, append(args, from, q.Limit)...)
}

// CountPausedRuns counts the waiting runs that go by a target's breaker, up to a number: all, and
// those that name one of some targets, which are all when these are nil.
func (j *Journal) CountPausedRuns(ctx context.Context, t background.Target, called []string, most int) (all, named int, err error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	count := func(called []string) (n int, err error) {
		err = j.readDB.QueryRowContext(ctx, countPausedSQL, t.Tenant, t.Family, t.Name, pq.Array(called), most).Scan(&n)
		return n, unavailableOrNil(err)
	}
	if all, err = count(nil); err != nil || called == nil || all == 0 {
		return all, all, err
	}
	named, err = count(called)
	return all, named, err
}

// RecordPaused leaves the receipt in a tenant's trail that the breaker of a target over all
// tenants pauses its runs, once an opening. The breaker is held meanwhile.
func (j *Journal) RecordPaused(ctx context.Context, tenant string, t background.Target, at time.Time) error {
	return j.inSlowPathTx(ctx, failpoint.BreakerTenantReceipt, func(ctx context.Context, tx *sql.Tx) error {
		global, err := readBreaker(ctx, tx, t, ` FOR SHARE`)
		if err != nil {
			return err
		}
		now, err := global.breaker()
		if err != nil || !now.Blocks() {
			return err
		}
		row, err := lockBreaker(ctx, tx, background.Target{Tenant: tenant, Family: t.Family, Name: t.Name})
		if err != nil || row.RecordedOpening >= now.Openings {
			return err
		}
		if row.RecordedOpening > row.RecordedClosing { // of an opening before, of which the end was not told yet
			if err := appendClosedReceipt(ctx, tx, row, now, at); err != nil {
				return err
			}
		}
		if _, err := tx.ExecContext(ctx, `UPDATE recourse.brakes SET told = $4, over = greatest(over, told) `+byTargetSQL, tenant, t.Family, t.Name, now.Openings); err != nil {
			return err
		}
		now.State = background.BreakerOpen // also when it is half-open by now: the tenant's runs wait
		return appendBreakerReceipt(ctx, tx, row, now, at, "closed to open, over all tenants")
	})
}

// appendClosedReceipt leaves the receipt in a tenant's trail that an opening of the breaker over all
// tenants is over.
func appendClosedReceipt(ctx context.Context, tx *sql.Tx, row breakerRow, now background.Breaker, at time.Time) error {
	now.State = background.BreakerClosed
	return appendBreakerReceipt(ctx, tx, row, now, at, "open to closed, over all tenants")
}

// RecordClosed leaves the receipts in the trails of tenants that were told of an opening
// which is over, that it is.
func (j *Journal) RecordClosed(ctx context.Context, at time.Time, limit int) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	unrecorded, err := selectBreakers(ctx, j.readDB, `AS t WHERE t.over < t.told AND EXISTS (SELECT FROM recourse.brakes a WHERE a.tenant = '' AND a.family = t.family
		AND a.target = t.target AND (a.state = 'closed' OR a.opening > t.told)) ORDER BY t.family, t.target, t.tenant LIMIT $1`, limit)
	if err != nil {
		return 0, err
	}
	for _, t := range unrecorded {
		if err := j.recordClosed(ctx, t.Target, at); err != nil {
			return 0, err
		}
	}
	return len(unrecorded), nil
}

func (j *Journal) recordClosed(ctx context.Context, t background.Target, at time.Time) error {
	return j.inSlowPathTx(ctx, failpoint.BreakerTenantReceipt, func(ctx context.Context, tx *sql.Tx) error {
		global, err := readBreaker(ctx, tx, background.Target{Family: t.Family, Name: t.Name}, ` FOR SHARE`)
		if err != nil {
			return err
		}
		row, err := lockBreaker(ctx, tx, t)
		if err != nil || row.RecordedClosing >= row.RecordedOpening || global.State != string(background.BreakerClosed) && global.Opening <= row.RecordedOpening {
			return err
		}
		now, err := global.breaker()
		if err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, `UPDATE recourse.brakes SET over = told `+byTargetSQL, t.Tenant, t.Family, t.Name); err != nil {
			return err
		}
		return appendClosedReceipt(ctx, tx, row, now, at)
	})
}
