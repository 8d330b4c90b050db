package journal

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/background/lease"
	"github.com/recourse-dev/recourse/internal/failpoint"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/pg"
)

// leaseEndSQL writes the ends of attempts of remote runs, and removes their leases. It waits for a
// heartbeat that is being written, and for nothing else.
var leaseEndSQL = `WITH ` + narrowTransition{
	parameters: leaseEndParameters, first: 1,
	guard: `b.new_state <> 'running'`,
	runs:  `, handed_back = b.handed_back, output = b.output`,
	more: `, lease_end AS (
  DELETE FROM recourse.leases l USING ok b WHERE l.run_id = b.run
)`,
}.sql()

var (
	leaseEndParameters = slices.Concat(narrowTransitionParameters, runsTable.of("handed_back", "output"))
	leaseEndColumns    = leaseEndParameters.layout()
)

// endsLease reports whether the change ends the attempt of a remote worker.
func (c *Change) endsLease() bool {
	return c.After.Run.Remote && c.Before.Run.State == background.Running && c.After.Run.State != background.Running
}

// applyLeaseEnds executes leaseEndSQL and returns the result of each row.
func (j *Journal) applyLeaseEnds(ctx context.Context, changes []*chainedChange) ([]result, error) {
	out := make([]result, len(changes))
	c := leaseEndColumns.Get()
	for _, ch := range changes {
		addNarrowTransition(c, ch)
		c.Int4(ch.After.Run.HandedBack)
		if ch.After.Run.Output == nil {
			c.Null()
		} else {
			c.Bytes(ch.After.Run.Output)
		}
	}
	hitTransitionPoints(failpoint.JournalBefore, changes)
	err := scanRowNumbers(ctx, j.Leases.endStmt, len(changes), c.Args(), func(n int, _ int64) { out[n-1] = applied })
	leaseEndColumns.Put(c)
	if err != nil {
		return nil, err
	}
	hitTransitionPoints(failpoint.JournalAfter, changes)
	return out, nil
}

// flushLeaseEnds writes a batch of ends of remote attempts, as flushTransitions writes others.
func (j *Journal) flushLeaseEnds(changes []*chainedChange) []pg.Outcome[result] {
	ctx, cancel := context.WithTimeout(context.Background(), pg.StatementTimeout)
	defer cancel()
	defer j.SignalCommitted()
	return narrowThenWide(changes, (*chainedChange).fitsNarrowTransition,
		func(changes []*chainedChange) ([]result, error) { return j.applyLeaseEnds(ctx, changes) },
		func(*chainedChange, result) bool { return false },
		func(changes []*chainedChange) ([]result, error) {
			return applyWideTransitions(ctx, j.wideTransitionStmt, "", changes)
		})
}

// heldLeases are the leases that have not ended, of those that workers say they hold.
const heldLeases = `
FROM recourse.leases l JOIN unnest($1::uuid[],$2::text[],$3::text[],$4::text[]) AS h(run,tenant,worker,principal) ON h.run = l.run_id
WHERE l.tenant = h.tenant AND l.ended = '' AND (h.worker = '' OR l.worker = '' OR l.worker = h.worker) AND ` + leasePrincipal + ` = h.principal`

// leasePrincipal is whose a lease is. A process of the version before wrote it in the receipt of the attempt only.
const leasePrincipal = `CASE WHEN l.principal <> '' THEN l.principal ELSE coalesce((SELECT e.actor FROM recourse.receipts e JOIN recourse.runs x ON x.case_id = e.case_id AND x.id = e.run_id
  WHERE x.id = l.run_id AND e.subtype = 'attempt-started' AND e.at = l.at ORDER BY e.seq DESC LIMIT 1), '') END`

const leaseColumns = `l.run_id, l.tenant, l.worker, l.attempt, l.at, l.length_ms, l.limit_ms, l.version, l.ended, ` + leasePrincipal

var (
	findLeaseSQL = `SELECT ` + snapshotColumns + `, ` + termsColumns + `, ` + leaseColumns + snapshotTables + termsJoin + ` JOIN recourse.leases l ON l.run_id = r.id
WHERE l.run_id = $1 AND l.tenant = $2 AND r.state = 'running'`

	allLeasesSQL = `SELECT ` + leaseColumns + ` FROM recourse.leases l`

	extendLeasesSQL = `
UPDATE recourse.leases l SET version = l.version + 1, length_ms = CASE WHEN $5 <= 0 THEN l.length_ms
  WHEN (SELECT r.operation_key IS NOT NULL FROM recourse.runs r WHERE r.id = l.run_id) THEN greatest(l.length_ms, $5) ELSE $5 END
FROM (SELECT l.run_id` + heldLeases + ` ORDER BY l.run_id FOR NO KEY UPDATE OF l SKIP LOCKED) k
WHERE l.run_id = k.run_id RETURNING ` + leaseColumns

	heldLeasesSQL = `SELECT ` + leaseColumns + heldLeases

	startedByOthersSQL = `SELECT r.id FROM recourse.runs r WHERE r.id = ANY ($1::uuid[]) AND r.tenant = $2 AND r.remote AND $3 <> (
  SELECT e.actor FROM recourse.receipts e WHERE e.case_id = r.case_id AND e.run_id = r.id AND e.subtype = 'attempt-started' ORDER BY e.seq DESC LIMIT 1)`

	// endLeaseSQL marks a lease whose time limit is over whatever heartbeats came meanwhile: they don't move that.
	endLeaseSQL = `UPDATE recourse.leases SET ended = CASE ended WHEN '' THEN $3 ELSE ended END WHERE run_id = $1 AND attempt = $4 AND (version = $2 OR $3 = '` + string(lease.OverLimit) + `')`

	// unknownCasesSQL reads a page of cases_unknown. A case has an active run, or one that ended.
	unknownCasesSQL = `SELECT id, run_id FROM recourse.cases WHERE unknown_open > 0 AND kind = 'settlement' AND id > $1 ORDER BY id LIMIT $2`

	fetchableRunsSQL = snapshotWithoutTermsSQL + `WHERE r.fetchable AND r.id = ANY ($1::uuid[]) ORDER BY r.id`

	expiredRunsSQL = snapshotWithoutTermsSQL + `WHERE r.fetchable AND r.expires_at IS NOT NULL AND r.expires_at <= $1 ORDER BY r.expires_at, r.id LIMIT $2`
)

// FindLease reads a running run with its lease. See background.LeaseStore.
func (l *LeaseStore) FindLease(ctx context.Context, tenant string, id background.RunID) (background.Run, lease.Lease, error) {
	ctx, cancel := context.WithTimeout(ctx, pg.StatementTimeout)
	defer cancel()
	rows, err := l.j.readDB.QueryContext(ctx, findLeaseSQL, id.String(), tenant)
	if err != nil {
		return background.Run{}, lease.Lease{}, pg.Wrap(err)
	}
	defer rows.Close()
	if !rows.Next() {
		return background.Run{}, lease.Lease{}, errors.Join(pg.Wrap(rows.Err()), background.ErrNotFound)
	}
	var scanned snapshotRow
	var held leaseRow
	s, err := scanned.read(rows, held.destinations()...)
	switch {
	case scanned.ID == (uuid.UUID{}):
		return background.Run{}, lease.Lease{}, pg.Wrap(err)
	case err != nil:
		err = unreadable{{id: id, err: err, partial: s}}
	}
	return s.Run, held.lease(), err
}

// leaseRow is a row of leaseColumns.
type leaseRow struct {
	run           uuid.UUID
	tenant        string
	worker        string
	attempt       int
	at            time.Time
	length, limit int64
	version       int64
	ended         string
	principal     string
}

func (r *leaseRow) destinations() []any {
	return []any{&r.run, &r.tenant, &r.worker, &r.attempt, &r.at, &r.length, &r.limit, &r.version, &r.ended, &r.principal}
}

func (r *leaseRow) lease() lease.Lease {
	return lease.Lease{
		Run: background.RunID(r.run), Tenant: r.tenant, Worker: r.worker, Principal: r.principal, Attempt: r.attempt, At: r.at.UTC(),
		Length: time.Duration(r.length) * time.Millisecond, Limit: time.Duration(r.limit) * time.Millisecond, Version: r.version, Ended: lease.End(r.ended),
	}
}

// queryLeases executes a statement that returns leaseColumns.
func queryLeases(ctx context.Context, q pg.Querier, query string, args ...any) (out []lease.Lease, err error) {
	rows, err := q.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, pg.Wrap(err)
	}
	defer rows.Close()
	for rows.Next() {
		var r leaseRow
		if err := rows.Scan(r.destinations()...); err != nil {
			return nil, pg.Wrap(err)
		}
		out = append(out, r.lease())
	}
	return out, pg.Wrap(rows.Err())
}

// Leases lists all leases.
func (l *LeaseStore) Leases(ctx context.Context) ([]lease.Lease, error) {
	ctx, cancel := context.WithTimeout(ctx, pg.StatementTimeout)
	defer cancel()
	return queryLeases(ctx, l.j.readDB, allLeasesSQL)
}

// ExtendLeases raises the version of leases. See background.LeaseStore.
func (l *LeaseStore) ExtendLeases(ctx context.Context, held []lease.Held, length time.Duration) ([]lease.Lease, error) {
	ctx, cancel := context.WithTimeout(ctx, pg.StatementTimeout)
	defer cancel()
	var extended []lease.Lease
	for range extensionTries {
		failpoint.Hit(failpoint.JournalBefore, failpoint.LeaseExtension)
		now, err := queryLeases(ctx, l.j.batchDB, extendLeasesSQL, append(heldColumns(held), length.Milliseconds())...)
		failpoint.Hit(failpoint.JournalAfter, failpoint.LeaseExtension)
		extended = append(extended, now...)
		if err != nil || len(now) == len(held) {
			return extended, err
		}
		// A lease that another heartbeat writes at this moment was left out.
		still, err := queryLeases(ctx, l.j.batchDB, heldLeasesSQL, heldColumns(held)...)
		if err != nil {
			return extended, err
		}
		held = slices.DeleteFunc(slices.Clone(held), func(h lease.Held) bool {
			isIt := func(l lease.Lease) bool { return l.Run == h.Run }
			return slices.ContainsFunc(now, isIt) || !slices.ContainsFunc(still, isIt)
		})
		if len(held) == 0 {
			return extended, nil
		}
		select {
		case <-time.After(extensionPause):
		case <-ctx.Done():
			return extended, nil
		}
	}
	return extended, nil
}

// extensionTries bounds the tries to extend a lease that another transaction has locked.
const extensionTries = 10

// extensionPause is the pause between two of them.
const extensionPause = 5 * time.Millisecond

// heldColumns returns the parameters of statements about leases that workers say they hold.
func heldColumns(held []lease.Held) []any {
	c := pg.NewTextColumns(4, len(held))
	for _, h := range held {
		c.ID(h.Run)
		c.Str(h.Tenant)
		c.Str(h.Worker)
		c.Str(h.Actor)
	}
	return c.Args()
}

// StartedByOthers returns those of some runs whose newest attempt another principal started, whether its lease has
// ended or not.
func (l *LeaseStore) StartedByOthers(ctx context.Context, tenant, principal string, runs []background.RunID) (out []background.RunID, err error) {
	ids := pg.NewTextColumns(1, len(runs))
	for _, id := range runs {
		ids.ID(id)
	}
	ctx, cancel := context.WithTimeout(ctx, pg.StatementTimeout)
	defer cancel()
	rows, err := l.j.readDB.QueryContext(ctx, startedByOthersSQL, append(ids.Args(), tenant, principal)...)
	if err != nil {
		return nil, pg.Wrap(err)
	}
	defer rows.Close()
	for rows.Next() {
		var id uuid.UUID
		if err := rows.Scan(&id); err != nil {
			return nil, pg.Wrap(err)
		}
		out = append(out, background.RunID(id))
	}
	return out, pg.Wrap(rows.Err())
}

// EndLease marks why a lease is over. See background.LeaseStore.
func (l *LeaseStore) EndLease(ctx context.Context, of lease.Lease) (bool, error) {
	done, err := pg.Exec(ctx, l.j.batchDB, failpoint.LeaseEnd, endLeaseSQL, of.Run.String(), of.Version, string(of.Ended), of.Attempt)
	if err != nil {
		return false, pg.Wrap(err)
	}
	n, err := done.RowsAffected()
	return n == 1, err
}

// UnknownRuns lists waiting remote runs of settlements of unknown outcome, without those that this
// program can't read. It reads limit such cases, beginning after those of the last call: it costs as
// little where many wait for a person.
func (l *LeaseStore) UnknownRuns(ctx context.Context, limit int) ([]background.Run, error) {
	ctx, cancel := context.WithTimeout(ctx, pg.StatementTimeout)
	defer cancel()
	l.unknownMu.Lock()
	defer l.unknownMu.Unlock()
	rows, err := l.j.readDB.QueryContext(ctx, unknownCasesSQL, l.unknownAfter.String(), limit)
	if err != nil {
		return nil, pg.Wrap(err)
	}
	defer rows.Close()
	ids, read := pg.NewTextColumns(1, 0), 0
	for ; rows.Next(); read++ {
		var id, run uuid.UUID
		if err := rows.Scan(&id, &run); err != nil {
			return nil, pg.Wrap(err)
		}
		ids.ID(run)
		l.unknownAfter = id
	}
	if read < limit {
		l.unknownAfter = uuid.UUID{}
	}
	if err := rows.Err(); err != nil || read == 0 {
		return nil, pg.Wrap(err)
	}
	found, err := snapshots(ctx, l.j.readDB, fetchableRunsSQL, ids.Args()...)
	runs, _, err := l.j.readableRuns(found, err)
	return runs, err
}

// ExpiredRuns lists waiting runs that expired, without those that this program can't read.
func (l *LeaseStore) ExpiredRuns(ctx context.Context, at time.Time, limit int) ([]background.Run, error) {
	ctx, cancel := context.WithTimeout(ctx, pg.StatementTimeout)
	defer cancel()
	found, err := snapshots(ctx, l.j.readDB, expiredRunsSQL, at, limit)
	runs, _, err := l.j.readableRuns(found, err)
	return runs, err
}

var (
	fetchKeyLockSQL = `SELECT pg_advisory_xact_lock(hashtextextended($1 || chr(31) || encode($2, 'hex'), 12))`

	keyedLeasesSQL = `SELECT ` + snapshotColumns + `, ` + termsColumns + `, ` + leaseColumns + `, first.at` + snapshotTables + termsJoin + ` JOIN recourse.leases l ON l.run_id = r.id
WHERE l.tenant = $1 AND l.fetch_key = $2 AND $3 = ` + leasePrincipal + ` AND l.ended = '' AND r.state = 'running' ORDER BY r.id`
)

// givenBefore returns the runs that a fetch with the same key got and whose leases are still held. It
// waits until no other one is being answered by another process.
func (l *LeaseStore) givenBefore(ctx context.Context, tx *sql.Tx, want lease.Want) (out []background.Claimed, err error) {
	if _, err := tx.ExecContext(ctx, fetchKeyLockSQL, want.Tenant, want.Key[:]); err != nil {
		return nil, err
	}
	rows, err := tx.QueryContext(ctx, keyedLeasesSQL, want.Tenant, want.Key[:], want.Actor)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var unreadables unreadable
	for rows.Next() {
		var scanned snapshotRow
		var held leaseRow
		var opened sql.NullTime
		s, err := scanned.read(rows, append(held.destinations(), &opened)...)
		switch {
		case scanned.ID == (uuid.UUID{}):
			return nil, err
		case err != nil:
			unreadables = append(unreadables, unreadableRun{id: background.RunID(scanned.ID), err: err})
			continue
		}
		out = append(out, claimedRun(s.Run, held.lease(), opened.Time.UTC()))
	}
	l.j.warnUnreadable(unreadables)
	return out, rows.Err()
}
