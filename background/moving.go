package background

import (
	"errors"
	"fmt"
	"sync"
	"time"
)

// stuckFor is for how long something may fail before this process is not ready: what a
// connection that broke takes to be made anew is less.
const stuckFor = 3 * time.Second

// moving knows whether notifications can be sent and taken, and the process shows that it
// lives, from what it does anyway: its sweeps write to Redis, its servers ask for tasks,
// and its beats are writes of the journal.
type moving struct {
	mu                  sync.Mutex
	sent, taken, beaten progress
}

// progress is how something that is done again and again goes.
type progress struct {
	failing time.Time // since when; zero while it goes well
	cause   error
}

func (p *progress) note(err error, now time.Time) {
	switch {
	case err == nil:
		*p = progress{}
	case p.failing.IsZero():
		p.failing, p.cause = now, err
	default:
		p.cause = err
	}
}

func (p *progress) stuck(what string, now time.Time) error {
	if p.failing.IsZero() || now.Sub(p.failing) < stuckFor {
		return nil
	}
	return unready(what, fmt.Errorf("background: %s since %s: %w", what, p.failing.UTC().Format(time.RFC3339), p.cause))
}

func (m *moving) swept(err error)  { m.note(&m.sent, err) }
func (m *moving) took(err error)   { m.note(&m.taken, err) }
func (m *moving) showed(err error) { m.note(&m.beaten, err) }

func (m *moving) note(p *progress, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err != nil || !p.failing.IsZero() {
		p.note(err, time.Now())
	}
}

func (m *moving) err(now time.Time) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return errors.Join(
		m.sent.stuck("no notification can be sent", now), m.taken.stuck("no notification can be taken", now), m.beaten.stuck("no heartbeat can be written", now),
	)
}
