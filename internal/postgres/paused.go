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

// ofTargetWaitingSQL finds the waiting runs that go by a target's breaker and that no breaker
// of their own tenant keeps back; with a tenant in $1, those of that tenant.
const ofTargetWaitingSQL = `FROM recourse.runs r WHERE r.live AND r.state <> 'running' AND r.family = $2 AND ` + breakerOfRunSQL + ` = $3 AND ($1 = '' OR r.tenant = $1)
  AND ($1 <> '' OR NOT EXISTS (SELECT FROM recourse.brakes k WHERE k.tenant = r.tenant AND k.family = $2 AND k.target = $3 AND k.state <> 'closed'))`

const (
	ofTargetDueSQL = ofTargetWaitingSQL + ` AND r.due_at <= $4 AND ($5::text[] IS NULL OR (r.target = ANY ($5::text[])) <> $6)
  AND (NOT $6 OR EXISTS (SELECT FROM recourse.sessions s WHERE NOT s.lost AND r.target = ANY (s.targets))) `
	dueBehindSQL   = waitingColumns + ofTargetDueSQL
	newestSQL      = dueBehindSQL + `AND r.state = 'pending' ORDER BY r.due_at DESC, r.id DESC LIMIT $7`
	triedSQL       = dueBehindSQL + `AND r.state <> 'pending' AND (r.due_at, r.id) > ($7, $8) ORDER BY r.due_at, r.id LIMIT $9`
	newFromSQL     = dueBehindSQL + `AND r.state = 'pending' AND r.due_at >= $7 ORDER BY r.due_at, r.id LIMIT $8`
	oldestDueSQL   = `SELECT r.due_at ` + ofTargetDueSQL + `AND r.state = 'pending' ORDER BY r.due_at, r.id LIMIT 1`
	newestDueSQL   = `SELECT r.due_at ` + ofTargetDueSQL + `AND r.state = 'pending' ORDER BY r.due_at DESC, r.id DESC LIMIT 1`
	countBehindSQL = `SELECT count(*) FROM (SELECT ` + ofTargetWaitingSQL + ` AND ($4::text[] IS NULL OR r.target = ANY ($4::text[])) LIMIT $5) AS behind`
)

// Paused lists waiting runs that go by a target's breaker. A run is new while it is pending. The place
// between the oldest and the newest is one in time.
func (j *Journal) Paused(ctx context.Context, q background.PausedQuery) ([]background.Run, error) {
	ctx, cancel := context.WithTimeout(ctx, statementLimit)
	defer cancel()
	args := []any{q.Tenant, q.Family, q.Name, q.Due, pq.Array(q.Called), q.Others}
	switch {
	case q.Newest:
		return j.waiting(ctx, newestSQL, append(args, q.Limit)...)
	case !q.New:
		return j.waiting(ctx, triedSQL, append(args, q.After.DueAt, q.After.ID.String(), q.Limit)...)
	}
	var oldest, newest time.Time
	for text, to := range map[string]*time.Time{oldestDueSQL: &oldest, newestDueSQL: &newest} {
		switch err := j.reads.QueryRowContext(ctx, text, args...).Scan(to); {
		case errors.Is(err, sql.ErrNoRows):
			return nil, nil
		case err != nil:
			return nil, unavailable(err)
		}
	}
	from := oldest.Add(time.Duration(q.From * float64(newest.Sub(oldest))))
	return j.waiting(ctx, newFromSQL, append(args, from, q.Limit)...)
}

// CountPaused counts the waiting runs that go by a target's breaker, up to a number: all, and
// those that name one of some targets, which are all when these are nil.
func (j *Journal) CountPaused(ctx context.Context, t background.Target, called []string, most int) (all, named int, err error) {
	ctx, cancel := context.WithTimeout(ctx, statementLimit)
	defer cancel()
	count := func(called []string) (n int, err error) {
		err = j.reads.QueryRowContext(ctx, countBehindSQL, t.Tenant, t.Family, t.Name, pq.Array(called), most).Scan(&n)
		return n, maybeUnavailable(err)
	}
	if all, err = count(nil); err != nil || called == nil || all == 0 {
		return all, all, err
	}
	named, err = count(called)
	return all, named, err
}

// TellPaused leaves the receipt in a tenant's trail that the breaker of a target over all
// tenants pauses its runs, once an opening. The breaker is held meanwhile.
func (j *Journal) TellPaused(ctx context.Context, tenant string, t background.Target, at time.Time) error {
	return j.inLane(ctx, failpoint.BrakeTell, func(ctx context.Context, tx *sql.Tx) error {
		over, err := readBreaker(ctx, tx, t, ` FOR SHARE`)
		if err != nil {
			return err
		}
		now, err := over.breaker()
		if err != nil || !now.Bars() {
			return err
		}
		trail, err := lockBreaker(ctx, tx, background.Target{Tenant: tenant, Family: t.Family, Name: t.Name})
		if err != nil || trail.Told >= now.Opening {
			return err
		}
		if trail.Told > trail.Over { // of an opening before, of which the end was not told yet
			if err := tellOver(ctx, tx, trail, now, at); err != nil {
				return err
			}
		}
		if _, err := tx.ExecContext(ctx, `UPDATE recourse.brakes SET told = $4, over = greatest(over, told) `+ofTargetSQL, tenant, t.Family, t.Name, now.Opening); err != nil {
			return err
		}
		now.State = background.BreakerOpen // also when it is half-open by now: the tenant's runs wait
		return tellBreaker(ctx, tx, trail, now, at, "closed to open, over all tenants")
	})
}

// tellOver leaves the receipt in a tenant's trail that an opening of the breaker over all
// tenants is over.
func tellOver(ctx context.Context, tx *sql.Tx, trail breakerRow, now background.Breaker, at time.Time) error {
	now.State = background.BreakerClosed
	return tellBreaker(ctx, tx, trail, now, at, "open to closed, over all tenants")
}

// TellClosed leaves the receipts in the trails of tenants that were told of an opening
// which is over, that it is.
func (j *Journal) TellClosed(ctx context.Context, at time.Time, limit int) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, statementLimit)
	defer cancel()
	untold, err := breakersOf(ctx, j.reads, `AS t WHERE t.over < t.told AND EXISTS (SELECT FROM recourse.brakes a WHERE a.tenant = '' AND a.family = t.family
		AND a.target = t.target AND (a.state = 'closed' OR a.opening > t.told)) ORDER BY t.family, t.target, t.tenant LIMIT $1`, limit)
	if err != nil {
		return 0, err
	}
	for _, t := range untold {
		if err := j.tellClosed(ctx, t.Target, at); err != nil {
			return 0, err
		}
	}
	return len(untold), nil
}

func (j *Journal) tellClosed(ctx context.Context, t background.Target, at time.Time) error {
	return j.inLane(ctx, failpoint.BrakeTell, func(ctx context.Context, tx *sql.Tx) error {
		over, err := readBreaker(ctx, tx, background.Target{Family: t.Family, Name: t.Name}, ` FOR SHARE`)
		if err != nil {
			return err
		}
		trail, err := lockBreaker(ctx, tx, t)
		if err != nil || trail.Over >= trail.Told || over.State != string(background.BreakerClosed) && over.Opening <= trail.Told {
			return err
		}
		now, err := over.breaker()
		if err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, `UPDATE recourse.brakes SET over = told `+ofTargetSQL, t.Tenant, t.Family, t.Name); err != nil {
			return err
		}
		return tellOver(ctx, tx, trail, now, at)
	})
}
