package backgroundtest

import (
	"context"
	"slices"
	"time"

	"github.com/recourse-dev/recourse/background"
)

// braked reports whether a circuit breaker keeps a run from being claimed. The caller
// holds the lock.
func (j *Journal) braked(r background.Run) bool {
	for _, tenant := range []string{r.Tenant, ""} {
		if !j.breakers[background.Target{Tenant: tenant, Family: r.Family, Name: r.Target}].LetsThrough(r.ID) {
			return true
		}
	}
	return false
}

// Breakers implements background.BreakerStore.
func (j *Journal) Breakers(context.Context) ([]background.Breaker, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.down != nil {
		return nil, j.down
	}
	var out []background.Breaker
	for _, b := range j.breakers {
		if b.Bars() {
			out = append(out, b)
		}
	}
	return out, nil
}

// BreakerMovedAt implements background.BreakerStore.
func (j *Journal) BreakerMovedAt(_ context.Context, t background.Target) (last time.Time, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, tenant := range []string{t.Tenant, ""} {
		if at := j.breakers[background.Target{Tenant: tenant, Family: t.Family, Name: t.Name}].At; at.After(last) {
			last = at
		}
	}
	return last, j.down
}

// MoveBreaker implements background.BreakerStore.
func (j *Journal) MoveBreaker(_ context.Context, t background.Target, decide func(background.Breaker) (background.Breaker, bool)) (background.Breaker, bool, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.down != nil {
		return background.Breaker{}, false, j.down
	}
	now, known := j.breakers[t]
	if !known {
		now = background.Breaker{Target: t, State: background.BreakerClosed}
	}
	next, moved := decide(now)
	if moved {
		j.breakers[t] = next
		j.announce()
	}
	return next, moved, nil
}

// StepBreaker implements background.BreakerStore.
func (j *Journal) StepBreaker(_ context.Context, next background.Breaker) (bool, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.down != nil {
		return false, j.down
	}
	if now := j.breakers[next.Target]; now.Version != next.Version-1 || now.State != next.State {
		return false, nil
	}
	j.breakers[next.Target] = next
	j.announce()
	return true, nil
}

// Paused implements background.BreakerStore. A place between the oldest and the newest
// is one in their order.
func (j *Journal) Paused(_ context.Context, q background.PausedQuery) ([]background.Run, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.down != nil {
		return nil, j.down
	}
	found := slices.DeleteFunc(j.behind(q.Target), func(r background.Run) bool {
		named := q.Called == nil || slices.Contains(q.Called, r.Target) != q.Others
		return !named || q.Others && !j.called(r.Target) || q.New != (r.State == background.Pending) || r.DueAt.After(q.Due) || order(r.DueAt, r.ID, q.After.DueAt, q.After.ID) <= 0
	})
	slices.SortFunc(found, func(a, b background.Run) int { return order(a.DueAt, a.ID, b.DueAt, b.ID) })
	switch {
	case q.Newest:
		slices.Reverse(found)
	case q.New:
		found = found[int(q.From*float64(len(found))):]
	}
	return found[:min(q.Limit, len(found))], nil
}

// called reports whether a process shows that it calls a target. The caller holds the lock.
func (j *Journal) called(target string) bool {
	for _, s := range j.sessions {
		if !s.Lost && slices.Contains(s.Targets, target) {
			return true
		}
	}
	return false
}

// CountPaused implements background.BreakerStore.
func (j *Journal) CountPaused(_ context.Context, t background.Target, called []string, most int) (all, named int, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, r := range j.behind(t) {
		if all++; called == nil || slices.Contains(called, r.Target) {
			named++
		}
	}
	return min(most, all), min(most, named), j.down
}

// behind lists the waiting runs of a target. The caller holds the lock.
func (j *Journal) behind(t background.Target) (found []background.Run) {
	for _, r := range j.runs {
		own := background.Target{Tenant: r.Tenant, Family: r.Family, Name: r.Target}
		if (t.Tenant == "" || t.Tenant == r.Tenant) && t.Family == r.Family && t.Name == r.Target && r.State.Waiting() && (t == own || !j.breakers[own].Bars()) {
			found = append(found, r)
		}
	}
	return found
}

// TellPaused implements background.BreakerStore: this journal has no trails.
func (j *Journal) TellPaused(context.Context, string, background.Target, time.Time) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.down
}

// TellClosed implements background.BreakerStore.
func (j *Journal) TellClosed(context.Context, time.Time, int) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return 0, j.down
}
