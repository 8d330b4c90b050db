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
	var a pg.Answer[[]background.Claimed]
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
func (l *LeaseStore) flush(requests []*Claim) []pg.Answer[[]background.Claimed] {
	var out []pg.Answer[[]background.Claimed]
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
func (l *LeaseStore) flushOnce(requests []*Claim) []pg.Answer[[]background.Claimed] {
	defer l.j.SignalCommitted()
	out := make([]pg.Answer[[]background.Claimed], len(requests))
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

func (l *LeaseStore) claimInTime(requests []*Claim) ([][]background.Claimed, bool, error) {
	ctx, cancel := context.WithTimeout(context.Background(), pg.StatementTimeout)
	defer cancel()
	return l.claimAll(ctx, requests)
}

// pick is a due run that was picked for a request.
type pick struct {
	request  int
	snapshot Snapshot
	openedAt time.Time
}

// claimAll picks and claims runs for requests in one transaction. full reports whether it claimed as many
// bytes as it may, so that more runs may be due.
func (l *LeaseStore) claimAll(ctx context.Context, requests []*Claim) (out [][]background.Claimed, full bool, err error) {
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
	results, err := applyLeaseClaims(ctx, claim.In(ctx, tx), changes, leases)
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
		if results[i] != applied {
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

// givenBefore returns the runs that a fetch with the same key got and whose leases are still held. It
// waits until no other one is being answered by another process.
func (l *LeaseStore) givenBefore(ctx context.Context, tx *sql.Tx, want lease.Want) (out []background.Claimed, err error) {
	if _, err := tx.ExecContext(ctx, fetchKeyLockSQL, want.Tenant, want.Key[:]); err != nil {
		return nil, err
	}
	rows, err := tx.QueryContext(ctx, keyedLeasesSQL, want.Tenant, want.Key[:])
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

// due executes dueRemoteSQL and gives the runs of each queue to its requests, in order. It leaves out
// those that were picked in an earlier round: the transaction's own locks do not hide them.
func (l *LeaseStore) due(ctx context.Context, statement pg.Querier, queues []queueWant, at time.Time, maxBytes int, earlier []pick) ([]pick, error) {
	c := pg.NewTextColumns(3, len(queues))
	for _, q := range queues {
		c.Str(q.tenant)
		c.Str(q.queue)
		c.Int(int64(q.wanted))
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

// leftOut are the runs that could not be claimed although they are due, such as those of a newer
// version. They are tried again after leftOutFor, so that they do not keep a queue from moving.
type leftOut struct {
	mu    sync.Mutex
	since map[background.RunID]time.Time
}

const (
	leftOutFor = time.Minute
	maxLeftOut = 1000 // a run beyond them is picked again and again, and skipped each time
)

func (o *leftOut) add(id background.RunID, now time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.since == nil {
		o.since = map[background.RunID]time.Time{}
	}
	if len(o.since) < maxLeftOut {
		o.since[id] = now
	}
}

func (o *leftOut) now(now time.Time) (ids []background.RunID) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for id, since := range o.since {
		if now.Sub(since) > leftOutFor {
			delete(o.since, id)
			continue
		}
		ids = append(ids, id)
	}
	return ids
}
