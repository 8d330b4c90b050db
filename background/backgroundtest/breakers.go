package backgroundtest

import (
	"context"
	"slices"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/background/circuit"
)

// breakerStore has the circuit breakers of a Journal.
type breakerStore struct{ *state }

// blockedByBreaker reports whether a circuit breaker blocks a run.
func (s *state) blockedByBreaker(r background.Run) bool {
	for _, tenant := range []string{r.Tenant, ""} {
		if b := s.breakers[circuit.Scope{Tenant: tenant, Family: r.Family, Name: r.Target}]; b.Blocks() && !slices.Contains(b.Probes, r.ID) {
			return true
		}
	}
	return false
}

// Breakers implements background.BreakerStore.
func (j breakerStore) Breakers(context.Context) ([]circuit.Breaker, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.down != nil {
		return nil, j.down
	}
	var out []circuit.Breaker
	for _, b := range j.breakers {
		if b.Blocks() {
			out = append(out, b)
		}
	}
	return out, nil
}

// BreakerChangedAt implements background.BreakerStore.
func (j breakerStore) BreakerChangedAt(_ context.Context, t circuit.Scope) (last time.Time, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, tenant := range []string{t.Tenant, ""} {
		if at := j.breakers[circuit.Scope{Tenant: tenant, Family: t.Family, Name: t.Name}].At; at.After(last) {
			last = at
		}
	}
	return last, j.down
}

// UpdateBreaker implements background.BreakerStore.
func (j breakerStore) UpdateBreaker(_ context.Context, t circuit.Scope, decide func(circuit.Breaker) (circuit.Breaker, bool)) (circuit.Breaker, bool, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.down != nil {
		return circuit.Breaker{}, false, j.down
	}
	now, known := j.breakers[t]
	if !known {
		now = circuit.Breaker{Scope: t, State: circuit.Closed}
	}
	next, changed := decide(now)
	if changed {
		j.breakers[t] = next
		j.notifyWaiters()
	}
	return next, changed, nil
}

// RecordProbes implements background.BreakerStore.
func (j breakerStore) RecordProbes(_ context.Context, next circuit.Breaker) (bool, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.down != nil {
		return false, j.down
	}
	if now := j.breakers[next.Scope]; now.Version != next.Version-1 || now.State != next.State {
		return false, nil
	}
	j.breakers[next.Scope] = next
	j.notifyWaiters()
	return true, nil
}

// PausedRuns implements background.BreakerStore. StartFraction is a position in the order of
// due times.
func (j breakerStore) PausedRuns(_ context.Context, q background.PausedQuery) ([]background.Run, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.down != nil {
		return nil, j.down
	}
	found := slices.DeleteFunc(j.pausedRuns(q.Scope), func(r background.Run) bool {
		named := q.Called == nil || slices.Contains(q.Called, r.Target) != q.Others
		return !named || q.Others && !j.called(r.Target) || q.NeverClaimed != (r.State == background.Pending) || r.DueAt.After(q.Due) || compareDue(r.DueAt, r.ID, q.After.DueAt, q.After.ID) <= 0
	})
	slices.SortFunc(found, func(a, b background.Run) int { return compareDue(a.DueAt, a.ID, b.DueAt, b.ID) })
	switch {
	case q.NewestFirst:
		slices.Reverse(found)
	case q.NeverClaimed:
		found = found[int(q.StartFraction*float64(len(found))):]
	}
	return found[:min(q.Limit, len(found))], nil
}

// called reports whether a live process calls a target. The caller holds the lock.
func (j breakerStore) called(target string) bool {
	for _, s := range j.sessions {
		if !s.Lost && slices.Contains(s.Targets, target) {
			return true
		}
	}
	return false
}

// CountPausedRuns implements background.BreakerStore.
func (j breakerStore) CountPausedRuns(_ context.Context, t circuit.Scope, called []string, most int) (all, named int, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, r := range j.pausedRuns(t) {
		if all++; called == nil || slices.Contains(called, r.Target) {
			named++
		}
	}
	return min(most, all), min(most, named), j.down
}

// pausedRuns lists the waiting runs of a target. The caller holds the lock.
func (j breakerStore) pausedRuns(t circuit.Scope) (found []background.Run) {
	for _, r := range j.runs {
		own := circuit.Scope{Tenant: r.Tenant, Family: r.Family, Name: r.Target}
		if (t.Tenant == "" || t.Tenant == r.Tenant) && t.Family == r.Family && t.Name == r.Target && r.State.Waiting() && (t == own || !j.breakers[own].Blocks()) {
			found = append(found, r)
		}
	}
	return found
}

// RecordPaused implements background.BreakerStore. This journal has no trails, so it writes
// nothing.
func (j breakerStore) RecordPaused(context.Context, string, circuit.Scope, time.Time) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.down
}

// RecordClosed implements background.BreakerStore.
func (j breakerStore) RecordClosed(context.Context, time.Time, int) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return 0, j.down
}
