package backgroundtest

import (
	"context"

	"github.com/recourse-dev/recourse/background"
)

// Enlist implements background.Ledger.
func (j *Journal) Enlist(_ context.Context, s background.Session) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.down != nil {
		return j.down
	}
	j.sessions[s.ID] = s
	return nil
}

// Beat implements background.Ledger.
func (j *Journal) Beat(_ context.Context, id background.SessionID) (bool, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.down != nil {
		return false, j.down
	}
	s, known := j.sessions[id]
	if !known || s.Lost {
		return false, nil
	}
	s.Beat++
	j.sessions[id] = s
	return true, nil
}

// Sessions implements background.Ledger.
func (j *Journal) Sessions(context.Context) ([]background.Session, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.down != nil {
		return nil, j.down
	}
	out := make([]background.Session, 0, len(j.sessions))
	for _, s := range j.sessions {
		out = append(out, s)
	}
	return out, nil
}

// Bury implements background.Ledger.
func (j *Journal) Bury(_ context.Context, seen background.Session) (bool, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.down != nil {
		return false, j.down
	}
	s, known := j.sessions[seen.ID]
	if !known || s.Beat != seen.Beat {
		return false, nil
	}
	s.Lost = true
	j.sessions[s.ID] = s
	return true, nil
}

// Orphans implements background.Ledger.
func (j *Journal) Orphans(_ context.Context, id background.SessionID, limit int) ([]background.Run, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.down != nil {
		return nil, j.down
	}
	var out []background.Run
	for _, r := range j.runs {
		if r.State == background.Running && r.Session == id && len(out) < limit {
			out = append(out, r)
		}
	}
	return out, nil
}

// Dismiss implements background.Ledger.
func (j *Journal) Dismiss(_ context.Context, id background.SessionID) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.down != nil {
		return j.down
	}
	for _, r := range j.runs {
		if r.State == background.Running && r.Session == id {
			return nil
		}
	}
	delete(j.sessions, id)
	return nil
}
