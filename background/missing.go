package background

import (
	"context"
	"time"
)

const (
	missingPage  = 5000 // live runs that are looked through at one time
	missingPages = 4    // of a look
)

// missing finds sessions that running runs name and that are not there, as after a restore
// that lost them. No claim can be made under one any more, so that once it has been missed
// for LostAfter it is as good as declared lost: its process has found out by then, or
// stands still.
//
// It goes through the live runs page by page, from where it stopped last.
type missing struct {
	m     *Manager
	place Cursor
	next  time.Time // of the next look, on the monotonic clock
	round int
	seen  map[SessionID]missed
}

type missed struct {
	since time.Time
	round int // in which it was seen last
}

func newMissing(m *Manager) *missing { return &missing{m: m, seen: map[SessionID]missed{}} }

// look returns the sessions that have been missed for long enough.
func (s *missing) look(ctx context.Context, now time.Time) (gone []SessionID, err error) {
	if now.Before(s.next) {
		return nil, nil
	}
	s.next = now.Add(s.m.cfg.LostAfter / 3)
	for range missingPages {
		found, next, err := s.m.cfg.Ledger.MissingSessions(ctx, s.place, missingPage)
		if err != nil {
			return nil, err
		}
		for _, id := range found {
			last, known := s.seen[id]
			if !known {
				last.since = now
			}
			last.round = s.round
			s.seen[id] = last
		}
		if s.place = next; next == (Cursor{}) {
			s.turn()
			break
		}
	}
	for id, last := range s.seen {
		if now.Sub(last.since) >= s.m.cfg.LostAfter {
			gone = append(gone, id)
		}
	}
	return gone, nil
}

// turn begins a new round, and forgets what the last one did not meet.
func (s *missing) turn() {
	for id, last := range s.seen {
		if last.round != s.round {
			delete(s.seen, id)
		}
	}
	s.round++
}
