package background

import (
	"context"
	"time"
)

const (
	missingPage  = 5000 // live runs that are looked through at one time
	missingPages = 4    // of a look
)

// missingSessions finds sessions that running runs name and that are not there, as after a restore
// that lost them. No claim can be made under one any more, so that once it has been missed
// for LostAfter it is as good as declared lost: its process has found out by then, or
// stands still.
//
// It goes through the live runs page by page, from where it stopped last.
type missingSessions struct {
	m      *Manager
	cursor Cursor
	next   time.Time // of the next look, on the monotonic clock
	pass   int
	seen   map[SessionID]missingSession
}

type missingSession struct {
	since time.Time
	pass  int // in which it was seen last
}

func newMissingSessions(m *Manager) *missingSessions {
	return &missingSessions{m: m, seen: map[SessionID]missingSession{}}
}

// scan returns the sessions that have been missed for long enough.
func (s *missingSessions) scan(ctx context.Context, now time.Time) (gone []SessionID, err error) {
	if now.Before(s.next) {
		return nil, nil
	}
	s.next = now.Add(s.m.cfg.LostAfter / 3)
	for range missingPages {
		found, next, err := s.m.cfg.Store.MissingSessions(ctx, s.cursor, missingPage)
		if err != nil {
			return nil, err
		}
		for _, id := range found {
			last, known := s.seen[id]
			if !known {
				last.since = now
			}
			last.pass = s.pass
			s.seen[id] = last
		}
		if s.cursor = next; next == (Cursor{}) {
			s.passDone()
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

// passDone begins a new round, and forgets what the last one did not meet.
func (s *missingSessions) passDone() {
	for id, last := range s.seen {
		if last.pass != s.pass {
			delete(s.seen, id)
		}
	}
	s.pass++
}
