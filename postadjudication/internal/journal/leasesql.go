package journal

import (
	"context"
	"slices"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/background/lease"
	"github.com/recourse-dev/recourse/internal/failpoint"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/pg"
)

// dueRemoteSQL locks due remote runs of queues and reads them. It skips runs that another
// transaction has locked, and never waits. The priorities of a queue are walked from the highest on,
// each from its earliest run to the first that is not due yet: runs that are due later cost nothing.
// No run is read after maxPickedBytes of payloads.
//
// $1 tenants · $2 queues · $3 numbers of runs wanted · $4 now · $5 runs to leave out · $6 bytes
// returns the number of the queue, then a row of snapshotSQL, then when the case was opened
const dueRemoteSQL = `
WITH RECURSIVE w AS MATERIALIZED (
  SELECT * FROM unnest($1::text[],$2::text[],$3::int[]) WITH ORDINALITY AS w(tenant,queue,wanted,n)
), level AS (
  SELECT w.n, w.tenant, w.queue, w.wanted, (SELECT r.priority FROM recourse.runs r WHERE r.tenant = w.tenant AND r.queue = w.queue
    AND r.fetchable ORDER BY r.priority DESC LIMIT 1) AS priority FROM w
  UNION ALL
  SELECT v.n, v.tenant, v.queue, v.wanted, (SELECT r.priority FROM recourse.runs r WHERE r.tenant = v.tenant AND r.queue = v.queue AND r.priority < v.priority
    AND r.fetchable ORDER BY r.priority DESC LIMIT 1) FROM level v WHERE v.priority IS NOT NULL
), picked AS MATERIALIZED (
  SELECT w.n, x.* FROM w CROSS JOIN LATERAL (
    SELECT y.* FROM level v CROSS JOIN LATERAL (
      SELECT r.id, r.priority, r.due_at, length(r.payload) AS size FROM recourse.runs r WHERE r.tenant = v.tenant AND r.queue = v.queue AND r.priority = v.priority AND r.fetchable
        AND r.due_at <= $4 AND (r.expires_at IS NULL OR r.expires_at > $4) AND r.id <> ALL ($5::uuid[]) AND NOT ` + pausedByBreakerSQL + `
      ORDER BY r.due_at, r.id LIMIT v.wanted FOR NO KEY UPDATE OF r SKIP LOCKED) y
    WHERE v.n = w.n LIMIT w.wanted) x
), sized AS (
  SELECT n, id, sum(size) OVER (ORDER BY n, priority DESC, due_at, id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS bytes_before FROM picked
)
SELECT ` + snapshotColumns + `, ` + termsColumns + `, first.at, p.n` + snapshotTables + ` JOIN sized p ON p.id = r.id AND coalesce(p.bytes_before, 0) < $6` + termsJoin

// leaseClaimSQL writes the claims of remote runs with their leases. The transaction has picked the
// runs; the guards are those of every transition.
var leaseClaimSQL = `WITH ` + narrowTransition{
	parameters: leaseClaimParameters, first: 1,
	guard: `r.remote AND b.new_state = 'running'`,
	more: `, new_lease AS (
  INSERT INTO recourse.leases (run_id, tenant, worker, attempt, at, length_ms, limit_ms) SELECT run, tenant, holder, attempt_count, at, length_ms, limit_ms FROM ok
)`,
}.sql()

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
	leaseClaimParameters = slices.Concat(narrowTransitionParameters, leasesTable.of("worker AS holder", "length_ms", "limit_ms"))
	leaseEndParameters   = slices.Concat(narrowTransitionParameters, runsTable.of("handed_back", "output"))

	leaseClaimColumns = leaseClaimParameters.layout()
	leaseEndColumns   = leaseEndParameters.layout()
)

// endsLease reports whether the change ends the attempt of a remote worker.
func (c *Change) endsLease() bool {
	return c.After.Run.Remote && c.Before.Run.State == background.Running && c.After.Run.State != background.Running
}

// applyLeaseClaims executes leaseClaimSQL and returns the result of each row.
func applyLeaseClaims(ctx context.Context, q pg.Querier, changes []*chainedChange, leases []lease.Lease) ([]result, error) {
	out := make([]result, len(changes))
	c := leaseClaimColumns.Get()
	for i, ch := range changes {
		addNarrowTransition(c, ch)
		c.Str(leases[i].Worker)
		c.Int4(int(leases[i].Length.Milliseconds()))
		c.Int4(int(leases[i].Limit.Milliseconds()))
	}
	err := scanRowNumbers(ctx, q, len(changes), c.Args(), func(n int, _ int64) { out[n-1] = applied })
	leaseClaimColumns.Put(c)
	return out, err
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
func (j *Journal) flushLeaseEnds(changes []*chainedChange) []pg.Answer[result] {
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

const leaseColumns = `l.run_id, l.tenant, l.worker, l.attempt, l.at, l.length_ms, l.limit_ms, l.version, l.ended`

var (
	findLeaseSQL = `SELECT ` + snapshotColumns + `, ` + termsColumns + `, ` + leaseColumns + snapshotTables + termsJoin + ` JOIN recourse.leases l ON l.run_id = r.id
WHERE l.run_id = $1 AND l.tenant = $2 AND r.state = 'running'`

	allLeasesSQL = `SELECT ` + leaseColumns + ` FROM recourse.leases l`

	extendLeasesSQL = `
UPDATE recourse.leases l SET version = l.version + 1, length_ms = CASE WHEN $4 > 0 THEN $4 ELSE l.length_ms END
FROM (SELECT x.run_id FROM recourse.leases x JOIN unnest($1::uuid[],$2::text[],$3::text[]) AS h(run,tenant,worker) ON h.run = x.run_id
  WHERE x.tenant = h.tenant AND x.ended = '' AND (h.worker = '' OR x.worker = '' OR x.worker = h.worker) ORDER BY x.run_id FOR NO KEY UPDATE OF x SKIP LOCKED) k
WHERE l.run_id = k.run_id RETURNING ` + leaseColumns

	endLeaseSQL = `UPDATE recourse.leases SET ended = CASE ended WHEN '' THEN $3 ELSE ended END WHERE run_id = $1 AND version = $2`

	expiredRunsSQL = snapshotWithoutTermsSQL + `WHERE r.fetchable AND r.expires_at IS NOT NULL AND r.expires_at <= $1 ORDER BY r.expires_at, r.id LIMIT $2`
)
