package journal

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jmoiron/sqlx"
	"github.com/lib/pq"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/background/circuit"
	"github.com/recourse-dev/recourse/internal/failpoint"
	"github.com/recourse-dev/recourse/internal/schema/stored"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/pg"
	"github.com/recourse-dev/recourse/receipts"
)

// Circuit breakers: see background.BreakerStore for the contract of each method.

// BreakerSubjectPrefix begins the subject of the case of a circuit breaker.
const BreakerSubjectPrefix = stored.BreakerSubjectPrefix

// AllTenants is the tenant of the trail with the receipts of breakers over all tenants. No
// tenant may have this name.
const AllTenants = "*"

// blocksClaimSQL is true for a run r that a breaker k keeps from being claimed: the guard
// of the claim. Probes may be claimed; they count as paused all the same.
const (
	breakerMatchesRunSQL = `k.tenant IN (r.tenant, '') AND k.family = r.family AND k.target = ` + breakerOfRunSQL
	blocksClaimSQL       = breakerMatchesRunSQL + ` AND k.state <> 'closed' AND r.id <> ALL (k.probes)`
	pausedByBreakerSQL   = `EXISTS (SELECT FROM recourse.circuit_breakers k WHERE ` + breakerMatchesRunSQL + ` AND k.state <> 'closed')`
	breakerSQL           = `SELECT tenant, family, target, case_id, state, by_hand, actor, cause, reason, at, opened_at, opening, version, probes, asked, paused, few_since, recorded_opening, recorded_closing FROM recourse.circuit_breakers `
	byTargetSQL          = `WHERE tenant = $1 AND family = $2 AND target = $3`
	newBreakerSQL        = `INSERT INTO recourse.circuit_breakers (tenant, family, target, case_id, state, by_hand, actor, cause, reason, at, version)
		VALUES ($1, $2, $3, $4, 'closed', false, '', '', '', $5, 0) ON CONFLICT DO NOTHING`
)

type breakerRow struct {
	Tenant          string         `db:"tenant"`
	Family          string         `db:"family"`
	Target          string         `db:"target"`
	CaseID          uuid.UUID      `db:"case_id"`
	State           string         `db:"state"`
	ByHand          bool           `db:"by_hand"`
	Actor           string         `db:"actor"`
	Cause           string         `db:"cause"`
	Reason          string         `db:"reason"`
	At              time.Time      `db:"at"`
	OpenedAt        time.Time      `db:"opened_at"`
	Opening         int64          `db:"opening"`
	Version         int64          `db:"version"`
	Probes          pq.StringArray `db:"probes"`
	NewCasesProbed  int64          `db:"asked"`
	Paused          int            `db:"paused"`
	FewSince        time.Time      `db:"few_since"`
	RecordedOpening int64          `db:"recorded_opening"` // only in a tenant's row
	RecordedClosing int64          `db:"recorded_closing"`
}

func (r *breakerRow) breaker() (circuit.Breaker, error) {
	b := circuit.Breaker{
		Scope: circuit.Scope{Tenant: r.Tenant, Family: r.Family, Name: r.Target},
		State: circuit.State(r.State), Manual: r.ByHand, Actor: r.Actor, Cause: r.Cause, Reason: r.Reason,
		At: r.At.UTC(), OpenedAt: r.OpenedAt.UTC(), Openings: r.Opening, Version: r.Version, NewCasesProbed: r.NewCasesProbed, Paused: r.Paused, FewSince: r.FewSince.UTC(),
	}
	for _, text := range r.Probes {
		id, err := receipts.ParseRunID(text)
		if err != nil {
			return b, err
		}
		b.Probes = append(b.Probes, id)
	}
	return b, nil
}

// BreakerStore implements background.BreakerStore.
type BreakerStore struct {
	*shared
}

// Breakers lists the circuit breakers that are not closed.
func (b *BreakerStore) Breakers(ctx context.Context) ([]circuit.Breaker, error) {
	return selectBreakers(ctx, b.readDB, `WHERE state <> 'closed' ORDER BY family, target, tenant`)
}

// TenantBreakers lists the breakers that were ever opened for one tenant, and those over
// all tenants.
func (b *BreakerStore) TenantBreakers(ctx context.Context, tenant string) ([]circuit.Breaker, error) {
	if tenant == AllTenants {
		tenant = ""
	}
	return selectBreakers(ctx, b.readDB, `WHERE tenant IN ($1, '') AND version > 0 ORDER BY family, target, tenant`, tenant)
}

// BreakerChangedAt returns when a breaker of a target, for its tenant or over all tenants,
// last changed; zero if none ever did.
func (b *BreakerStore) BreakerChangedAt(ctx context.Context, t circuit.Scope) (time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, pg.StatementTimeout)
	defer cancel()
	var at sql.NullTime
	err := b.readDB.QueryRowContext(ctx, `SELECT max(at) FROM recourse.circuit_breakers WHERE tenant IN ($1, '') AND family = $2 AND target = $3 AND version > 0`, t.Tenant, t.Family, t.Name).Scan(&at)
	return at.Time.UTC(), pg.Wrap(err)
}

// TargetBreakers lists the breakers of a target that are not closed, for its tenant and
// over all tenants.
func (b *BreakerStore) TargetBreakers(ctx context.Context, t circuit.Scope) ([]circuit.Breaker, error) {
	return selectBreakers(ctx, b.readDB, `WHERE tenant IN ($1, '') AND family = $2 AND target = $3 AND state <> 'closed' ORDER BY tenant`, t.Tenant, t.Family, t.Name)
}

func selectBreakers(ctx context.Context, q sqlx.QueryerContext, where string, args ...any) ([]circuit.Breaker, error) {
	ctx, cancel := context.WithTimeout(ctx, pg.StatementTimeout)
	defer cancel()
	var rows []breakerRow
	if err := sqlx.SelectContext(ctx, q, &rows, breakerSQL+where, args...); err != nil {
		return nil, pg.Wrap(err)
	}
	out := make([]circuit.Breaker, len(rows))
	for i := range rows {
		var err error
		if out[i], err = rows[i].breaker(); err != nil {
			return nil, pg.Wrap(err)
		}
	}
	return out, nil
}

// UpdateBreaker changes a breaker together with its receipt, and locks the breaker's row
// meanwhile. It returns ErrBusy, and changes nothing, if another transaction holds the row
// for too long.
func (b *BreakerStore) UpdateBreaker(ctx context.Context, t circuit.Scope, decide func(circuit.Breaker) (circuit.Breaker, bool)) (now circuit.Breaker, changed bool, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), pg.StatementTimeout)
	defer cancel()
	tx, err := b.txPath.DB.BeginTx(ctx, nil)
	if err != nil {
		return now, false, pg.Wrap(err)
	}
	defer func() { err = errors.Join(err, pg.Rollback(tx)) }()
	row, err := lockBreaker(ctx, tx, t)
	if err != nil {
		return now, false, busyOrWrapped(err)
	}
	previous, err := row.breaker()
	if err != nil {
		return now, false, pg.Wrap(err)
	}
	next, changed := decide(previous)
	if !changed {
		return previous, false, nil
	}
	if err := updateBreakerRow(ctx, tx, next); err != nil {
		return previous, false, busyOrWrapped(err)
	}
	change := string(previous.State) + " to " + string(next.State)
	if err := appendBreakerReceipt(ctx, tx, row, next, next.At, change); err != nil {
		return previous, false, busyOrWrapped(err)
	}
	failpoint.Hit(failpoint.JournalBefore, failpoint.Breaker)
	err = tx.Commit()
	failpoint.Hit(failpoint.JournalAfter, failpoint.Breaker)
	if err != nil {
		return previous, false, pg.Wrap(err)
	}
	b.SignalCommitted()
	return next, true, nil
}

// lockBreaker locks the row of a target's breaker, and inserts it first if there is none.
func lockBreaker(ctx context.Context, tx *sql.Tx, t circuit.Scope) (row breakerRow, err error) {
	id, err := uuid.NewV7()
	if err != nil {
		return row, err
	}
	if _, err := tx.ExecContext(ctx, newBreakerSQL, t.Tenant, t.Family, t.Name, id, time.Time{}); err != nil {
		return row, err
	}
	return readBreaker(ctx, tx, t, ` FOR NO KEY UPDATE`)
}

// readBreaker reads a row that must exist.
func readBreaker(ctx context.Context, tx *sql.Tx, t circuit.Scope, lock string) (row breakerRow, err error) {
	found, err := pg.QueryAll[breakerRow](ctx, tx, breakerSQL+byTargetSQL+lock, t.Tenant, t.Family, t.Name)
	if err != nil {
		return row, err
	}
	if len(found) != 1 {
		return row, fmt.Errorf("%d circuit breakers of one target", len(found))
	}
	return found[0], nil
}

func updateBreakerRow(ctx context.Context, tx *sql.Tx, b circuit.Breaker) error {
	_, err := tx.ExecContext(ctx, `UPDATE recourse.circuit_breakers SET state = $4, by_hand = $5, actor = $6, cause = $7, reason = $8, at = $9, version = $10,
		probes = $11, opened_at = $12, opening = $13, asked = $14, paused = $15, few_since = $16 `+byTargetSQL,
		b.Tenant, b.Family, b.Name, string(b.State), b.Manual, b.Actor, b.Cause, b.Reason, b.At, b.Version,
		probeIDs(b), b.OpenedAt, b.Openings, b.NewCasesProbed, b.Paused, b.FewSince)
	return err
}

func probeIDs(b circuit.Breaker) pq.StringArray {
	out := make(pq.StringArray, len(b.Probes))
	for i, id := range b.Probes {
		out[i] = id.String()
	}
	return out
}

func nullableRunID(id background.RunID) uuid.NullUUID {
	return uuid.NullUUID{UUID: uuid.UUID(id), Valid: !id.IsZero()}
}

// appendBreakerReceipt writes the receipt of a breaker's change into the trail of a row, by
// the statements that write all receipts.
func appendBreakerReceipt(ctx context.Context, tx *sql.Tx, row breakerRow, now circuit.Breaker, at time.Time, changes string) error {
	tenant := row.Tenant
	if tenant == "" {
		tenant = AllTenants
	}
	opsCase := Case{ID: receipts.CaseID(row.CaseID), Tenant: tenant, Kind: KindOperations, Subject: BreakerSubjectPrefix + now.Family + ":" + now.Name}
	draft := receipts.Draft{Subtype: receipts.BreakerReleased, Actor: now.Actor, At: at, Payload: receipts.Payload{
		Family: now.Family, Target: now.Name, ReasonCode: now.Cause, Reason: now.Reason, Changes: changes,
	}}
	if now.State == circuit.Open {
		draft.Subtype = receipts.BreakerOpened
	}
	return appendReceipt(ctx, tx, opsCase, draft)
}

// RecordProbes stores what the leader of a breaker that is not closed probes: see
// background.BreakerStore. It reports whether the version was still the previous one.
func (b *BreakerStore) RecordProbes(ctx context.Context, breaker circuit.Breaker) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, pg.StatementTimeout)
	defer cancel()
	done, err := pg.Exec(ctx, b.txPath.DB, failpoint.BreakerProbes, `UPDATE recourse.circuit_breakers SET version = $4, probes = $5, asked = $6, paused = $7, few_since = $9 `+byTargetSQL+`
		AND version = $4 - 1 AND state = $8`,
		breaker.Tenant, breaker.Family, breaker.Name, breaker.Version, probeIDs(breaker), breaker.NewCasesProbed, breaker.Paused, string(breaker.State), breaker.FewSince)
	if err != nil {
		return false, busyOrWrapped(err)
	}
	n, err := done.RowsAffected()
	return n == 1, err
}

// blockedByBreaker reports whether a circuit breaker blocks claims of a run.
func (b *BreakerStore) blockedByBreaker(ctx context.Context, id background.RunID) (blocked bool, err error) {
	err = b.readDB.QueryRowContext(ctx, `SELECT EXISTS (SELECT FROM recourse.runs r JOIN recourse.circuit_breakers k ON `+blocksClaimSQL+` WHERE r.id = $1)`, id.String()).Scan(&blocked)
	return blocked, err
}

// waitingByBreakerSQL finds the waiting runs of a target's breaker that are delivered; with a tenant in $1,
// those of that tenant, else those that no breaker of their own tenant pauses.
const waitingByBreakerSQL = `FROM recourse.runs r WHERE r.live AND NOT r.remote AND r.state <> 'running' AND r.family = $2 AND ` + breakerOfRunSQL + ` = $3 AND ($1 = '' OR r.tenant = $1)
  AND ($1 <> '' OR NOT EXISTS (SELECT FROM recourse.circuit_breakers k WHERE k.tenant = r.tenant AND k.family = $2 AND k.target = $3 AND k.state <> 'closed'))`

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

// PausedRuns lists waiting runs of a target's breaker. A run is new while it is pending.
// StartFraction selects a starting time between the oldest and the newest due time.
func (b *BreakerStore) PausedRuns(ctx context.Context, q background.PausedQuery) ([]background.Run, error) {
	ctx, cancel := context.WithTimeout(ctx, pg.StatementTimeout)
	defer cancel()
	args := []any{q.Tenant, q.Family, q.Name, q.Due, pq.Array(q.Called), q.Others}
	switch {
	case q.NewestFirst:
		return b.selectWaiting(ctx, newestPausedSQL, append(args, q.Limit)...)
	case !q.NeverClaimed:
		return b.selectWaiting(ctx, retriedPausedSQL, append(args, q.After.DueAt, q.After.ID.String(), q.Limit)...)
	}
	var oldest, newest time.Time
	for text, to := range map[string]*time.Time{oldestPausedDueSQL: &oldest, newestPausedDueSQL: &newest} {
		switch err := b.readDB.QueryRowContext(ctx, text, args...).Scan(to); {
		case errors.Is(err, sql.ErrNoRows):
			return nil, nil
		case err != nil:
			return nil, pg.Wrap(err)
		}
	}
	from := oldest.Add(time.Duration(q.StartFraction * float64(newest.Sub(oldest))))
	return b.selectWaiting(ctx, newPausedFromSQL, append(args, from, q.Limit)...)
}

// CountPausedRuns counts the waiting runs of a target's breaker, up to most: all of them,
// and those whose target is in called; a nil called stands for all.
func (b *BreakerStore) CountPausedRuns(ctx context.Context, t circuit.Scope, called []string, most int) (all, named int, err error) {
	ctx, cancel := context.WithTimeout(ctx, pg.StatementTimeout)
	defer cancel()
	count := func(called []string) (n int, err error) {
		err = b.readDB.QueryRowContext(ctx, countPausedSQL, t.Tenant, t.Family, t.Name, pq.Array(called), most).Scan(&n)
		return n, pg.Wrap(err)
	}
	if all, err = count(nil); err != nil || called == nil || all == 0 {
		return all, all, err
	}
	named, err = count(called)
	return all, named, err
}

// RecordPaused writes the receipt in a tenant's trail that the breaker over all tenants
// pauses its runs, once per opening. It holds the breaker's row meanwhile.
func (b *BreakerStore) RecordPaused(ctx context.Context, tenant string, t circuit.Scope, at time.Time) error {
	return b.InSlowPathTx(ctx, failpoint.BreakerTenantReceipt, func(ctx context.Context, tx *sql.Tx) error {
		global, err := readBreaker(ctx, tx, t, ` FOR SHARE`)
		if err != nil {
			return err
		}
		now, err := global.breaker()
		if err != nil || !now.Blocks() {
			return err
		}
		row, err := lockBreaker(ctx, tx, circuit.Scope{Tenant: tenant, Family: t.Family, Name: t.Name})
		if err != nil || row.RecordedOpening >= now.Openings {
			return err
		}
		if row.RecordedOpening > row.RecordedClosing { // of an earlier opening whose end is not recorded yet
			if err := appendClosedReceipt(ctx, tx, row, now, at); err != nil {
				return err
			}
		}
		if _, err := tx.ExecContext(ctx, `UPDATE recourse.circuit_breakers SET recorded_opening = $4, recorded_closing = greatest(recorded_closing, recorded_opening) `+byTargetSQL, tenant, t.Family, t.Name, now.Openings); err != nil {
			return err
		}
		now.State = circuit.Open // even if half-open: the tenant's runs wait
		return appendBreakerReceipt(ctx, tx, row, now, at, "closed to open"+stored.OverAllTenants)
	})
}

// appendClosedReceipt writes the receipt in a tenant's trail that an opening of the breaker
// over all tenants has ended.
func appendClosedReceipt(ctx context.Context, tx *sql.Tx, row breakerRow, now circuit.Breaker, at time.Time) error {
	now.State = circuit.Closed
	return appendBreakerReceipt(ctx, tx, row, now, at, "open to closed"+stored.OverAllTenants)
}

// RecordClosed writes that receipt for tenants whose trail has an opening which has ended,
// at most limit of them. It returns how many.
func (b *BreakerStore) RecordClosed(ctx context.Context, at time.Time, limit int) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, pg.StatementTimeout)
	defer cancel()
	unrecorded, err := selectBreakers(ctx, b.readDB, `AS t WHERE t.recorded_closing < t.recorded_opening AND EXISTS (SELECT FROM recourse.circuit_breakers a WHERE a.tenant = '' AND a.family = t.family
		AND a.target = t.target AND (a.state = 'closed' OR a.opening > t.recorded_opening)) ORDER BY t.family, t.target, t.tenant LIMIT $1`, limit)
	if err != nil {
		return 0, err
	}
	for _, t := range unrecorded {
		if err := b.recordClosed(ctx, t.Scope, at); err != nil {
			return 0, err
		}
	}
	return len(unrecorded), nil
}

func (b *BreakerStore) recordClosed(ctx context.Context, t circuit.Scope, at time.Time) error {
	return b.InSlowPathTx(ctx, failpoint.BreakerTenantReceipt, func(ctx context.Context, tx *sql.Tx) error {
		global, err := readBreaker(ctx, tx, circuit.Scope{Family: t.Family, Name: t.Name}, ` FOR SHARE`)
		if err != nil {
			return err
		}
		row, err := lockBreaker(ctx, tx, t)
		if err != nil || row.RecordedClosing >= row.RecordedOpening || global.State != string(circuit.Closed) && global.Opening <= row.RecordedOpening {
			return err
		}
		now, err := global.breaker()
		if err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, `UPDATE recourse.circuit_breakers SET recorded_closing = recorded_opening `+byTargetSQL, t.Tenant, t.Family, t.Name); err != nil {
			return err
		}
		return appendClosedReceipt(ctx, tx, row, now, at)
	})
}
