package backgroundtest

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/background/lease"
)

// leaseStore has the leases of a Journal.
type leaseStore struct{ *Journal }

// defaultLease is the length of a lease that neither worker nor test states.
const defaultLease = 30 * time.Second

// Leases returns the journal as the store of leases of its remote runs.
func (j *Journal) Leases() background.LeaseStore { return leaseStore{j} }

// Lease returns the lease of a run; the zero lease when there is none.
func (j *Journal) Lease(id background.RunID) lease.Lease {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.leases[id]
}

// ClaimDue implements background.LeaseStore.
func (s leaseStore) ClaimDue(_ context.Context, at time.Time, want lease.Want, start func(background.Run) background.Transition) (out []background.Claimed, err error) {
	for _, r := range s.due(at, want) {
		tr := start(r)
		tr.Lease.Length = cmp.Or(tr.Lease.Length, defaultLease)
		tr.Lease.Limit = s.timeLimit()
		after, err := s.Record(tr)
		if !background.WriteOutcomeKnown(err) {
			return out, err
		}
		if err != nil {
			out = append(out, background.Claimed{Run: r, Err: err})
			continue
		}
		out = append(out, background.Claimed{Run: after, Lease: *tr.Lease})
	}
	return out, nil
}

func (s leaseStore) timeLimit() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.leaseLimit
}

// SetLeaseLimit sets the time limit of leased attempts.
func (j *Journal) SetLeaseLimit(d time.Duration) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.leaseLimit = d
}

func (s leaseStore) due(at time.Time, want lease.Want) (found []background.Run) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.runs {
		if r.Remote && r.Tenant == want.Tenant && r.State.Waiting() && !r.DueAt.After(at) && !r.Expired(at) && slices.Contains(want.Queues, r.Queue) && !s.blockedByBreaker(r) {
			found = append(found, r)
		}
	}
	slices.SortFunc(found, func(a, b background.Run) int {
		return cmp.Or(cmp.Compare(slices.Index(want.Queues, a.Queue), slices.Index(want.Queues, b.Queue)), cmp.Compare(b.Priority, a.Priority), compareDue(a.DueAt, a.ID, b.DueAt, b.ID))
	})
	return found[:min(want.Count, len(found))]
}

// FindLease implements background.LeaseStore.
func (s leaseStore) FindLease(_ context.Context, tenant string, id background.RunID) (background.Run, lease.Lease, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l, leased := s.leases[id]
	switch {
	case s.down != nil:
		return background.Run{}, l, s.down
	case !leased || l.Tenant != tenant:
		return background.Run{}, lease.Lease{}, background.ErrNotFound
	}
	return s.runs[id], l, nil
}

// ExtendLeases implements background.LeaseStore.
func (s leaseStore) ExtendLeases(_ context.Context, held []lease.Held, length time.Duration) (out []lease.Lease, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range held {
		l, leased := s.leases[h.Run]
		if !leased || l.Ended != "" || l.Tenant != h.Tenant || h.Worker != "" && l.Worker != h.Worker || !l.BelongsTo(h.Actor) {
			continue
		}
		l.Version, l.Length = l.Version+1, cmp.Or(length, l.Length)
		s.leases[h.Run], out = l, append(out, l)
	}
	return out, s.down
}

// Leases implements background.LeaseStore.
func (s leaseStore) Leases(context.Context) (out []lease.Lease, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.leases {
		out = append(out, l)
	}
	return out, s.down
}

// EndLease implements background.LeaseStore.
func (s leaseStore) EndLease(_ context.Context, of lease.Lease) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l, leased := s.leases[of.Run]
	if !leased || l.Attempt != of.Attempt || l.Version != of.Version && of.Ended != lease.OverLimit {
		return false, s.down
	}
	l.Ended = cmp.Or(l.Ended, of.Ended)
	s.leases[of.Run] = l
	return true, s.down
}

// ExpiredRuns implements background.LeaseStore.
func (s leaseStore) ExpiredRuns(_ context.Context, at time.Time, limit int) (out []background.Run, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.runs {
		if r.State.Waiting() && r.Expired(at) && len(out) < limit {
			out = append(out, r)
		}
	}
	return out, s.down
}

// UnrepeatableRuns implements background.LeaseStore. The keys of this store never expire.
func (s leaseStore) UnrepeatableRuns(context.Context, time.Time, int) ([]background.Run, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return nil, s.down
}
