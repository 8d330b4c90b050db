package journal

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/background/lease"
	"github.com/recourse-dev/recourse/internal/failpoint"
	"github.com/recourse-dev/recourse/internal/tenantlimit"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/pg"
)

// LeaseStore claims remote runs for workers, and keeps their leases.
//
// Concurrent claims without a key share a transaction, which picks the runs, reads them, and writes their
// claims with their receipts and leases. It never waits for another transaction.
//
// A claim with a key has a transaction of its own, in the goroutine of its caller: it may wait for one
// with the same key, and its repetition returns up to maxPickedBytes again. No other claim waits for it
// but those of its tenant with a key (keyedClaims).
//
//	ClaimDue ──▶ batch ─────────────▶ BEGIN · dueRemoteSQL ──▶ Decide each ──▶ leaseClaimSQL · COMMIT
//	         └─▶ key ─▶ keyedClaims ▶ BEGIN · given before, or as above
type LeaseStore struct {
	j         *Journal
	fetchDB   *sql.DB
	claims    pg.Batcher[*Claim, []background.Claimed]
	keyed     keyedClaims
	dueStmt   *pg.Statement
	claimStmt *pg.Statement
	endStmt   *pg.Statement
	leaveOut  leftOut
	// PaymentQueue reports whether a queue pays: only adjudications are claimed from it, and none from others.
	PaymentQueue func(queue string) bool

	unknownMu    sync.Mutex
	unknownAfter uuid.UUID // the last case that UnknownRuns read
}

// Claim is one worker's request for due runs.
type Claim struct {
	Want  lease.Want
	At    time.Time
	Start func(background.Run) background.Transition // the transition that claims a run, with its lease
	// Decide returns the change that the claim makes. It is called once for each run.
	Decide func(background.Transition, *Snapshot) (Change, error)
}

const (
	// batchFetchConns are the connections for batches of claims: the second is for the time in which the
	// first is lost.
	batchFetchConns = 2
	// maxKeyedClaims are made at the same time, and maxTenantKeyedClaims of one tenant; each has a
	// connection.
	maxKeyedClaims       = 4
	maxTenantKeyedClaims = 2
)

func (l *LeaseStore) open(databaseURL string) (err error) {
	l.fetchDB, err = pg.OpenPool(databaseURL, pg.PoolConfig{Purpose: "fetches", MaxConns: batchFetchConns + maxKeyedClaims, Settings: pg.PlannerSettings, Binary: true, Dialer: l.j.IdleTimeout.Dialer(pg.BatchIdleLimit)})
	return err
}

// ClaimDue claims due runs for a worker. See background.LeaseStore. A claim with a key waits for its turn
// until the context ends; once it is begun, it is made.
func (l *LeaseStore) ClaimDue(ctx context.Context, c *Claim) ([]background.Claimed, error) {
	if !c.isKeyed() {
		return l.claims.Do(c)
	}
	var a pg.Outcome[[]background.Claimed]
	err := l.keyed.do(ctx, c.Want, func() { a = l.flushOnce([]*Claim{c})[0] })
	return a.Value, cmp.Or(a.Err, err)
}

// keyedClaims orders the claims with a key. Equal keys are served one after the other, in order of arrival,
// and take one place of their tenant's together. Waiting tenants take turns.
type keyedClaims struct {
	byKey    *tenantlimit.Limit // of a tenant and a key
	byTenant *tenantlimit.Limit
}

func newKeyedClaims() keyedClaims {
	return keyedClaims{tenantlimit.New(math.MaxInt, 1), tenantlimit.New(maxKeyedClaims, maxTenantKeyedClaims)}
}

// do runs f, which makes the claim of a want. Its error is that of the context, if that ends before f.
func (k keyedClaims) do(ctx context.Context, want lease.Want, f func()) (err error) {
	waited := k.byKey.Do(ctx, want.Tenant+"\x00"+string(want.Key[:]), func() { err = k.byTenant.Do(ctx, want.Tenant, f) })
	return cmp.Or(waited, err)
}

const (
	// maxPicked bounds the runs that one transaction claims.
	maxPicked = 512
	// maxPickedBytes bounds their payloads, but for the last one.
	maxPickedBytes = 8 << 20
)

// isKeyed reports whether a repeated claim gets what this one got.
func (c *Claim) isKeyed() bool { return c.Want.Key != lease.FetchKey{} }

// flush answers requests without a key in order, in as many transactions as their runs need.
func (l *LeaseStore) flush(requests []*Claim) []pg.Outcome[[]background.Claimed] {
	var out []pg.Outcome[[]background.Claimed]
	for len(requests) > 0 {
		n, wanted := 0, 0
		for n < len(requests) && (n == 0 || wanted+requests[n].Want.Count <= maxPicked) {
			wanted += requests[n].Want.Count
			n++
		}
		out = append(out, l.flushOnce(requests[:n])...)
		requests = requests[n:]
	}
	return out
}

// flushOnce answers requests without a key, or one with a key, and repeats the transaction for those that got
// nothing because others had taken its bytes.
func (l *LeaseStore) flushOnce(requests []*Claim) []pg.Outcome[[]background.Claimed] {
	defer l.j.SignalCommitted()
	out := make([]pg.Outcome[[]background.Claimed], len(requests))
	left := make([]int, len(requests)) // places of the requests that have no answer yet
	for i := range left {
		left[i] = i
	}
	for range requests {
		part := make([]*Claim, len(left))
		for k, i := range left {
			part[k] = requests[i]
		}
		claimed, full, err := l.claimInTime(part)
		var without []int
		for k, i := range left {
			switch {
			case err == nil:
				if out[i].Value = claimed[k]; len(claimed[k]) == 0 {
					without = append(without, i)
				}
			case !pg.IsContention(err): // else nothing was claimed, and the worker asks again
				out[i].Err = pg.Wrap(err)
			}
		}
		if left = without; !full || len(left) == 0 {
			break
		}
	}
	return out
}

// claimInTime claims in one statement. If the database refuses a claim, it claims again, each in a statement of
// its own, so that one run keeps no other from being claimed.
func (l *LeaseStore) claimInTime(requests []*Claim) (out [][]background.Claimed, full bool, err error) {
	for _, write := range []writeClaims{applyLeaseClaims, applyEachLeaseClaim} {
		ctx, cancel := context.WithTimeout(context.Background(), pg.StatementTimeout)
		out, full, err = l.claimAll(ctx, requests, write)
		cancel()
		if !pg.IsDataError(err) {
			break
		}
	}
	return out, full, err
}

// writeClaims writes claims with their leases, and returns the result of each, with the error of one that the database refused.
type writeClaims func(ctx context.Context, tx *sql.Tx, statement pg.Querier, changes []*chainedChange, leases []givenLease) ([]pg.Outcome[result], error)

// pick is a due run that was picked for a request.
type pick struct {
	request  int
	snapshot Snapshot
	openedAt time.Time
}

// claimAll picks and claims runs for requests in one transaction. full reports whether it claimed as many
// bytes as it may, so that more runs may be due.
func (l *LeaseStore) claimAll(ctx context.Context, requests []*Claim, write writeClaims) (out [][]background.Claimed, full bool, err error) {
	out = make([][]background.Claimed, len(requests))
	due, err := l.dueStmt.Prepare(ctx)
	if err != nil {
		return nil, false, err
	}
	claim, err := l.claimStmt.Prepare(ctx)
	if err != nil {
		return nil, false, err
	}
	tx, err := l.fetchDB.BeginTx(ctx, nil)
	if err != nil {
		return nil, false, err
	}
	defer func() { err = errors.Join(err, pg.Rollback(tx)) }()
	if requests[0].isKeyed() {
		if out[0], err = l.givenBefore(ctx, tx, requests[0].Want); err != nil || len(out[0]) > 0 {
			return out, false, err
		}
	}
	picks, full, err := l.pick(ctx, due.In(ctx, tx), requests)
	if err != nil || len(picks) == 0 {
		return out, full, err
	}
	var changes []*chainedChange
	var leases []givenLease
	var of []pick
	for _, p := range picks {
		ch, held, err := requests[p.request].decide(&p.snapshot, latest(requests))
		if err != nil {
			if !errors.Is(err, background.ErrExpired) { // the loop that ends expired runs ends it
				l.leaveOut.add(p.snapshot.Run.ID, time.Now())
			}
			out[p.request] = append(out[p.request], background.Claimed{Run: p.snapshot.Run, Err: err})
			continue
		}
		changes, leases, of = append(changes, ch), append(leases, givenLease{held, requests[p.request].Want.Key}), append(of, p)
	}
	if len(changes) == 0 {
		return out, full, nil
	}
	results, err := write(ctx, tx, claim.In(ctx, tx), changes, leases)
	if err != nil {
		return nil, false, err
	}
	failpoint.Hit(failpoint.JournalBefore, failpoint.LeaseClaim)
	err = tx.Commit()
	failpoint.Hit(failpoint.JournalAfter, failpoint.LeaseClaim)
	if err != nil {
		return nil, false, err
	}
	for i, ch := range changes {
		switch {
		case results[i].Err != nil:
			l.leaveOut.add(ch.After.Run.ID, time.Now())
			l.j.warnIfBlocked(ch.After.Run.ID, results[i].Err)
			out[of[i].request] = append(out[of[i].request], background.Claimed{Run: of[i].snapshot.Run, Err: results[i].Err})
			continue
		case results[i].Value != applied:
			continue // its case is locked or has changed: it is picked again
		}
		l.j.cacheSnapshot(ch.After.Run.ID, ch.After, true)
		run := ch.After.Run
		out[of[i].request] = append(out[of[i].request], claimedRun(run, leases[i].Lease, of[i].openedAt))
	}
	return out, full, nil
}

func claimedRun(run background.Run, held lease.Lease, openedAt time.Time) background.Claimed {
	claimed := background.Claimed{Run: run, Lease: held, OpenedAt: openedAt}
	if run.Terms != nil {
		claimed.SubmittedAt = run.Terms.At
	}
	return claimed
}

// decide returns the change that claims a run at a time, and the lease.
func (c *Claim) decide(s *Snapshot, at time.Time) (*chainedChange, lease.Lease, error) {
	tr := c.Start(s.Run)
	tr.At, tr.Lease.At = at, at
	change, err := c.Decide(tr, s)
	if err != nil {
		return nil, lease.Lease{}, err
	}
	ch, err := chain(&change)
	if err != nil {
		return nil, lease.Lease{}, unrecordable(err)
	}
	return ch, *tr.Lease, nil
}

// pick locks and reads due runs for requests: in rounds, the first queue of every request, then the
// second of those that still want runs, and so on. full reports that it picked maxPickedBytes. statement
// is dueStmt in the transaction.
func (l *LeaseStore) pick(ctx context.Context, statement pg.Querier, requests []*Claim) (picks []pick, full bool, err error) {
	bytesLeft := maxPickedBytes
	wanted := make([]int, len(requests))
	for i, r := range requests {
		wanted[i] = r.Want.Count
	}
	for round := 0; ; round++ {
		var queues []queueWant
		for i, r := range requests {
			if wanted[i] > 0 && round < len(r.Want.Queues) {
				queues = addWant(queues, r.Want.Tenant, r.Want.Queues[round], wanted[i], i)
			}
		}
		if len(queues) == 0 || bytesLeft <= 0 {
			return picks, bytesLeft <= 0, nil
		}
		found, err := l.due(ctx, statement, queues, latest(requests), bytesLeft, picks)
		if err != nil {
			return nil, false, err
		}
		for _, p := range found {
			wanted[p.request]--
			bytesLeft -= len(p.snapshot.Run.Payload)
			picks = append(picks, p)
		}
	}
}

// latest returns the latest time of the requests, which are all served after it: a run that was
// submitted before one of them came is due for it.
func latest(requests []*Claim) time.Time {
	return slices.MaxFunc(requests, func(a, b *Claim) int { return a.At.Compare(b.At) }).At
}

// queueWant is how many runs are wanted of a queue, and by which requests.
type queueWant struct {
	tenant, queue string
	wanted        int
	by            []int // a request once for each run that it wants, in the order of the requests
}

func addWant(all []queueWant, tenant, queue string, wanted, request int) []queueWant {
	at := slices.IndexFunc(all, func(q queueWant) bool { return q.tenant == tenant && q.queue == queue })
	if at < 0 {
		at, all = len(all), append(all, queueWant{tenant: tenant, queue: queue})
	}
	all[at].wanted += wanted
	for range wanted {
		all[at].by = append(all[at].by, request)
	}
	return all
}

// dueRemoteSQL locks due remote runs of queues and reads them. It skips runs that another
// transaction has locked, and never waits. The priorities of a queue are walked from the highest on,
// each from its earliest run to the first that is not due yet: runs that are due later cost nothing. A
// queue is paused by the circuit breaker that has its name as that of a target, whatever is in it. Each queue
// has its own list of priorities: in one of all queues the server would search those of all for each queue.
// No run is read after maxPickedBytes of payloads.
//
// $1 tenants · $2 queues · $3 numbers of runs wanted · $4 whether the queues pay · $5 now · $6 runs to leave out · $7 bytes
// returns the number of the queue, then a row of snapshotSQL, then when the case was opened
const dueRemoteSQL = `
WITH w AS MATERIALIZED (
  SELECT * FROM unnest($1::text[],$2::text[],$3::int[],$4::bool[]) WITH ORDINALITY AS w(tenant,queue,wanted,pays,n)
  WHERE NOT EXISTS (SELECT FROM recourse.circuit_breakers k WHERE k.tenant IN (w.tenant, '') AND k.family = 'settlement' AND k.target = 'queue:' || w.queue AND k.state <> 'closed')
), picked AS MATERIALIZED (
  SELECT w.n, x.* FROM w CROSS JOIN LATERAL (
    WITH RECURSIVE level AS (
      SELECT (SELECT r.priority FROM recourse.runs r WHERE r.tenant = w.tenant AND r.queue = w.queue AND r.fetchable ORDER BY r.priority DESC LIMIT 1) AS priority
      UNION ALL
      SELECT (SELECT r.priority FROM recourse.runs r WHERE r.tenant = w.tenant AND r.queue = w.queue AND r.priority < v.priority
        AND r.fetchable ORDER BY r.priority DESC LIMIT 1) FROM level v WHERE v.priority IS NOT NULL
    )
    SELECT y.* FROM level v CROSS JOIN LATERAL (
      SELECT r.id, r.priority, r.due_at, length(r.payload) AS size FROM recourse.runs r WHERE r.tenant = w.tenant AND r.queue = w.queue AND r.priority = v.priority AND r.fetchable
        AND r.due_at <= $5 AND (r.expires_at IS NULL OR r.expires_at > $5) AND r.id NOT IN (SELECT unnest($6::uuid[])) AND (r.operation_key IS NOT NULL) = w.pays AND NOT ` + pausedByBreakerSQL + `
        AND (SELECT true FROM recourse.cases c WHERE c.id = r.case_id)
      ORDER BY r.due_at, r.id LIMIT w.wanted FOR NO KEY UPDATE OF r SKIP LOCKED) y
    LIMIT w.wanted) x
), sized AS (
  SELECT n, id, sum(size) OVER (ORDER BY n, priority DESC, due_at, id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS bytes_before FROM picked
)
SELECT ` + snapshotColumns + `, ` + termsColumns + `, first.at, p.n` + snapshotTables + ` JOIN sized p ON p.id = r.id AND coalesce(p.bytes_before, 0) < $7` + termsJoin

// due executes dueRemoteSQL and gives the runs of each queue to its requests, in order. It leaves out
// those that were picked in an earlier round: the transaction's own locks do not hide them.
func (l *LeaseStore) due(ctx context.Context, statement pg.Querier, queues []queueWant, at time.Time, maxBytes int, earlier []pick) ([]pick, error) {
	c := pg.NewTextColumns(4, len(queues))
	for _, q := range queues {
		c.Str(q.tenant)
		c.Str(q.queue)
		c.Int(int64(q.wanted))
		c.Bool(l.PaymentQueue(q.queue))
	}
	out := pg.NewTextColumns(1, 0)
	for _, id := range l.leaveOut.now(time.Now()) {
		out.ID(id)
	}
	for i := range earlier {
		out.ID(earlier[i].snapshot.Run.ID)
	}
	rows, err := statement.QueryContext(ctx, "", append(append(append(c.Args(), at), out.Args()...), maxBytes)...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	found := make([][]pick, len(queues))
	var unreadables unreadable
	for rows.Next() {
		var scanned snapshotRow
		var opened sql.NullTime
		var n int
		s, err := scanned.read(rows, &opened, &n)
		switch {
		case scanned.ID == (uuid.UUID{}):
			return nil, err
		case err != nil:
			l.leaveOut.add(background.RunID(scanned.ID), time.Now())
			unreadables = append(unreadables, unreadableRun{id: background.RunID(scanned.ID), err: err})
			continue
		}
		found[n-1] = append(found[n-1], pick{snapshot: s, openedAt: opened.Time.UTC()})
	}
	l.j.warnUnreadable(unreadables)
	var picks []pick
	for i, q := range queues {
		slices.SortFunc(found[i], func(a, b pick) int { return compareFetched(&a.snapshot.Run, &b.snapshot.Run) })
		for k, p := range found[i] {
			p.request = q.by[k]
			picks = append(picks, p)
		}
	}
	return picks, rows.Err()
}

// compareFetched orders the runs of a queue as they are fetched.
func compareFetched(a, b *background.Run) int {
	if a.Priority != b.Priority {
		return b.Priority - a.Priority
	}
	if by := a.DueAt.Compare(b.DueAt); by != 0 {
		return by
	}
	return slices.Compare(a.ID[:], b.ID[:])
}

// leaseClaimSQL writes the claims of remote runs with their leases. The transaction has picked the
// runs; the guards are those of every transition.
var leaseClaimSQL = `WITH ` + narrowTransition{
	parameters: leaseClaimParameters, first: 1,
	guard: `r.remote AND b.new_state = 'running'`,
	more: `, new_lease AS (
  INSERT INTO recourse.leases (run_id, tenant, worker, attempt, at, length_ms, limit_ms, fetch_key, principal) SELECT run, tenant, holder, attempt_count, at, length_ms, limit_ms, fetch_key, principal FROM ok
)`,
}.sql()

var (
	leaseClaimParameters = slices.Concat(narrowTransitionParameters, leasesTable.of("worker AS holder", "length_ms", "limit_ms", "fetch_key", "principal"))
	leaseClaimColumns    = leaseClaimParameters.layout()
)

// givenLease is a lease with the key of the fetch that gives it; the key is zero if it has none.
type givenLease struct {
	lease.Lease
	key lease.FetchKey
}

// applyLeaseClaims executes leaseClaimSQL and returns the result of each row.
func applyLeaseClaims(ctx context.Context, _ *sql.Tx, q pg.Querier, changes []*chainedChange, leases []givenLease) ([]pg.Outcome[result], error) {
	out := make([]pg.Outcome[result], len(changes))
	c := leaseClaimColumns.Get()
	for i, ch := range changes {
		addNarrowTransition(c, ch)
		c.Str(leases[i].Worker)
		c.Int4(int(leases[i].Length.Milliseconds()))
		c.Int4(int(leases[i].Limit.Milliseconds()))
		if leases[i].key == (lease.FetchKey{}) {
			c.Null()
		} else {
			c.Bytes(leases[i].key[:])
		}
		c.Str(leases[i].Principal)
	}
	err := scanRowNumbers(ctx, q, len(changes), c.Args(), func(n int, _ int64) { out[n-1].Value = applied })
	leaseClaimColumns.Put(c)
	return out, err
}
