package backgroundtest

import (
	"context"
	"slices"
	"time"

	"github.com/recourse-dev/recourse/background"
)

// braked reports whether a brake keeps a run from being claimed. The caller holds
// the lock.
func (j *Journal) braked(r background.Run) bool {
	b := j.brakes[background.Target{Tenant: r.Tenant, Family: r.Family, Name: r.Target}]
	return b.Bars(r) && b.Probe != r.ID
}

// Brakes implements background.BrakeLedger.
func (j *Journal) Brakes(context.Context) ([]background.Brake, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.down != nil {
		return nil, j.down
	}
	var out []background.Brake
	for _, b := range j.brakes {
		if b.State != background.BrakeReleased {
			out = append(out, b)
		}
	}
	return out, nil
}

// MoveBrake implements background.BrakeLedger.
func (j *Journal) MoveBrake(_ context.Context, t background.Target, decide func(background.Brake) (background.Brake, bool)) (background.Brake, bool, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.down != nil {
		return background.Brake{}, false, j.down
	}
	now, known := j.brakes[t]
	if !known {
		now = background.Brake{Target: t, State: background.BrakeReleased}
	}
	next, moved := decide(now)
	if moved {
		j.brakes[t] = next
		j.announce()
	}
	return next, moved, nil
}

// StepBrake implements background.BrakeLedger.
func (j *Journal) StepBrake(_ context.Context, next background.Brake) (bool, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.down != nil {
		return false, j.down
	}
	now := j.brakes[next.Target]
	if now.Version != next.Version-1 || now.State != next.State {
		return false, nil
	}
	if next.Probe != now.Probe && j.runs[now.Probe].State == background.Running {
		return false, nil
	}
	j.brakes[next.Target] = next
	j.announce()
	return true, nil
}

// Parked implements background.BrakeLedger.
func (j *Journal) Parked(_ context.Context, t background.Target, after background.Cursor, due time.Time, limit int) ([]background.Run, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.down != nil {
		return nil, j.down
	}
	var found []background.Run
	for _, r := range j.runs {
		same := t == background.Target{Tenant: r.Tenant, Family: r.Family, Name: r.Target}
		if same && r.State.Waiting() && !r.DueAt.After(due) && order(r.DueAt, r.ID, after.DueAt, after.ID) > 0 {
			found = append(found, r)
		}
	}
	slices.SortFunc(found, func(a, b background.Run) int { return order(a.DueAt, a.ID, b.DueAt, b.ID) })
	return found[:min(limit, len(found))], nil
}

// Runs implements background.BrakeLedger.
func (j *Journal) Runs(_ context.Context, ids []background.RunID) ([]background.Run, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.down != nil {
		return nil, j.down
	}
	var out []background.Run
	for _, id := range ids {
		if r, ok := j.runs[id]; ok {
			out = append(out, r)
		}
	}
	return out, nil
}
