package background

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/recourse-dev/recourse/background/lease"
	"github.com/recourse-dev/recourse/internal/every"
)

const (
	// leaseScanEvery is the interval at which leases are read. Ends show within about two of
	// them.
	leaseScanEvery = 200 * time.Millisecond
	// leasesPerScan is how many leases are read in each leaseScanEvery: more take a longer
	// interval.
	leasesPerScan   = 2000
	expiredPage     = 500
	endLeasesAtOnce = 16
)

// leaseReaper ends the attempts of remote workers that do not answer in time. Each process
// watches all leases: one that does not change for its length, by this process's monotonic
// clock, has ended. No two machines' clocks are compared. A lease that this process did not
// give is watched from when it was read first, so it may last longer, and never shorter.
//
// The end is marked in the lease first, so that a heartbeat and the end have one winner; the end of a time
// limit always wins. Then
// the attempt is ended, by the same guards as every transition. A process that dies in between
// leaves the mark, and another one ends the attempt.
type leaseReaper struct {
	m     *Manager
	store LeaseStore

	mu   sync.Mutex
	seen map[RunID]leaseObservation
}

type leaseObservation struct {
	lease   lease.Lease
	since   time.Time // the version was seen first
	began   time.Time // the attempt was seen first
	claimed *Run      // as this process claimed it; nil otherwise
}

func newLeaseReaper(m *Manager, store LeaseStore) *leaseReaper {
	return &leaseReaper{m: m, store: store, seen: map[RunID]leaseObservation{}}
}

// onClaimed watches a lease that this process gave. One that a repeated fetch returns again is watched
// from when it was seen first.
func (r *leaseReaper) onClaimed(c Claimed) {
	now, run := time.Now(), c.Run
	r.mu.Lock()
	defer r.mu.Unlock()
	if o, known := r.seen[c.Run.ID]; known && o.lease.Attempt == c.Lease.Attempt {
		o.claimed = &run
		r.seen[c.Run.ID] = o
		return
	}
	r.seen[c.Run.ID] = leaseObservation{lease: c.Lease, since: now, began: now, claimed: &run}
}

// onExtended restarts the length of a lease.
func (r *leaseReaper) onExtended(l lease.Lease) {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	o, known := r.seen[l.Run]
	if !known || o.lease.Attempt != l.Attempt {
		o = leaseObservation{began: now}
	}
	if l.Version > o.lease.Version {
		o.lease, o.since = l, now
		r.seen[l.Run] = o
	}
}

// onEnded forgets a lease whose attempt has ended.
func (r *leaseReaper) onEnded(id RunID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.seen, id)
}

// claimedHere returns the run and lease of a claim of this process, as they were then.
func (r *leaseReaper) claimedHere(id RunID) (Run, lease.Lease, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	o, known := r.seen[id]
	if !known || o.claimed == nil {
		return Run{}, lease.Lease{}, false
	}
	return *o.claimed, o.lease, true
}

// run watches leases and expiry times until ctx ends.
func (r *leaseReaper) run(ctx context.Context) {
	failures := every.Failures{Log: r.m.log, Failed: "leases cannot be watched, retrying", Again: "leases are watched again"}
	for {
		watched, err := r.scan(ctx)
		if !failures.Note(ctx, err) || !sleep(ctx, leaseScanEvery*time.Duration(1+watched/leasesPerScan)) {
			return
		}
	}
}

// scan reads all leases, ends those that are over, and ends the runs that have expired. It
// returns the number of leases.
func (r *leaseReaper) scan(ctx context.Context) (watched int, err error) {
	if r.m.claimGate.remoteErr() != nil {
		return 0, nil
	}
	read := time.Now()
	leases, err := r.store.Leases(ctx)
	if err != nil {
		return 0, err
	}
	over := r.observe(leases, read)
	limit := make(chan struct{}, endLeasesAtOnce)
	var all sync.WaitGroup
	for _, l := range over {
		limit <- struct{}{}
		all.Go(func() {
			defer func() { <-limit }()
			if err := r.end(ctx, l); err != nil && ctx.Err() == nil {
				r.m.log.Warn("attempt of a lease that ended could not be ended yet", zap.Stringer("run", l.Run), zap.Error(err))
			}
		})
	}
	all.Wait()
	return len(leases), errors.Join(r.endExpired(ctx), r.endUnrepeatable(ctx))
}

// observe compares the leases with those seen before and returns those that are over, with why.
// read is a time before they were read: a claim since then may be missing.
func (r *leaseReaper) observe(leases []lease.Lease, read time.Time) (over []lease.Lease) {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	listed := make(map[RunID]bool, len(leases))
	for _, l := range leases {
		listed[l.Run] = true
		o, known := r.seen[l.Run]
		switch {
		case known && o.lease.Attempt > l.Attempt: // claimed again since it was read
			continue
		case !known || o.lease.Attempt < l.Attempt:
			o = leaseObservation{lease: l, since: now, began: now}
		case o.lease.Version < l.Version:
			o.lease, o.since = l, now
		case l.Ended != "":
			o.lease.Ended = l.Ended
		}
		r.seen[l.Run] = o
		if cause := o.over(now); cause != "" {
			l.Ended = cause
			over = append(over, l)
		}
	}
	for id, o := range r.seen {
		if !listed[id] && o.since.Before(read) {
			delete(r.seen, id)
		}
	}
	return over
}

// over returns why the lease has ended; empty while it is held.
func (o leaseObservation) over(now time.Time) lease.End {
	switch l := o.lease; {
	case l.Ended != "":
		return l.Ended
	case l.Limit > 0 && now.Sub(o.began) >= l.Limit:
		return lease.OverLimit
	case now.Sub(o.since) >= l.Length:
		return lease.Expired
	}
	return ""
}

// end marks the end of a lease and ends its attempt.
func (r *leaseReaper) end(ctx context.Context, l lease.Lease) error {
	marked, err := r.store.EndLease(ctx, l)
	if err != nil || !marked {
		return err // a heartbeat was first, or the attempt has ended
	}
	run, now, err := r.store.FindLease(ctx, l.Tenant, l.Run)
	if errors.Is(err, ErrNotFound) || err == nil && now.Attempt != l.Attempt {
		return nil
	}
	if err != nil {
		return err
	}
	f := r.m.families[run.Family]
	if f == nil {
		return nil // a process that has the family ends it
	}
	_, err = r.m.fetcher.endLeased(ctx, f, &run, func(run Run, at time.Time) Transition {
		return r.m.fetcher.ending(&run, now, ObserverActor+r.m.cfg.Worker, leaseEnding(&run, now.Ended, r.m.cfg.MaxRecoveries, at), at)
	})
	return err
}

// endExpired ends runs of which no attempt started in time.
func (r *leaseReaper) endExpired(ctx context.Context) error {
	expired, err := r.store.ExpiredRuns(ctx, r.m.now(), expiredPage)
	if err != nil {
		return err
	}
	r.endAll(ctx, expired, r.m.fetcher.Expire)
	return nil
}

// endUnrepeatable ends runs that wait although no attempt may follow the last one, whose outcome is
// unknown.
func (r *leaseReaper) endUnrepeatable(ctx context.Context) error {
	over, err := r.store.UnrepeatableRuns(ctx, r.m.now(), expiredPage)
	if err != nil {
		return err
	}
	r.endAll(ctx, over, func(ctx context.Context, run Run) (Run, error) {
		return r.m.fetcher.endWaiting(ctx, &run, ReasonOutcomeUnknown)
	})
	return nil
}

// endAll ends runs, a few at a time.
func (r *leaseReaper) endAll(ctx context.Context, runs []Run, end func(context.Context, Run) (Run, error)) {
	for chunk := range slices.Chunk(runs, endLeasesAtOnce) {
		var all sync.WaitGroup
		for _, run := range chunk {
			all.Go(func() {
				if _, err := end(ctx, run); err != nil && ctx.Err() == nil {
					r.m.log.Warn("run that no worker may fetch any more could not be ended yet", zap.Stringer("run", run.ID), zap.Error(err))
				}
			})
		}
		all.Wait()
	}
}
