package backgroundtest

import (
	"context"
	"slices"
	"time"

	"github.com/recourse-dev/recourse/background"
)

// sessionStore has the sessions of a Journal.
type sessionStore struct{ *state }

// Register implements background.Store.
func (j sessionStore) Register(_ context.Context, s background.Session) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.down != nil {
		return j.down
	}
	s.StartedAt = j.clock().At
	j.sessions[s.ID] = s
	return nil
}

// Beat implements background.Store.
func (j sessionStore) Beat(_ context.Context, status background.Session) (bool, background.ClockReading, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.down != nil {
		return false, background.ClockReading{}, j.down
	}
	s, known := j.sessions[status.ID]
	if !known || s.Lost {
		return false, background.ClockReading{}, nil
	}
	s.Beat++
	s.ClockOffset, s.BeatAt, s.Queues, s.Targets, s.ClaimsBlockedBy, s.Redis = status.ClockOffset, status.BeatAt, status.Queues, status.Targets, status.ClaimsBlockedBy, status.Redis
	j.sessions[status.ID] = s
	return true, j.clock(), nil
}

// Clock implements background.Store.
func (j sessionStore) Clock(context.Context) (background.ClockReading, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.clock(), j.down
}

// SetClock sets the offset of the journal's clock and the name of its server.
func (j sessionStore) SetClock(offset time.Duration, server string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.clockOffset, j.server = offset, server
}

func (s *state) clock() background.ClockReading {
	return background.ClockReading{At: time.Now().Add(s.clockOffset).Round(0), Server: s.server}
}

// MissingSessions implements background.Store.
func (j sessionStore) MissingSessions(context.Context, background.Cursor, int) ([]background.SessionID, background.Cursor, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.down != nil {
		return nil, background.Cursor{}, j.down
	}
	var out []background.SessionID
	for _, r := range j.runs {
		if _, known := j.sessions[r.Session]; r.State == background.Running && !known && !slices.Contains(out, r.Session) {
			out = append(out, r.Session)
		}
	}
	return out, background.Cursor{}, nil
}

// ForgetSessions deletes all sessions, as a restore may.
func (j sessionStore) ForgetSessions() {
	j.mu.Lock()
	defer j.mu.Unlock()
	clear(j.sessions)
}

// Sessions implements background.Store.
func (j sessionStore) Sessions(context.Context) ([]background.Session, error) {
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

// MarkLost implements background.Store.
func (j sessionStore) MarkLost(_ context.Context, seen background.Session) (bool, error) {
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

// AttemptsOf implements background.Store.
func (j sessionStore) AttemptsOf(_ context.Context, id background.SessionID, limit int) ([]background.Run, error) {
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

// Remove implements background.Store.
func (j sessionStore) Remove(_ context.Context, id background.SessionID) error {
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
