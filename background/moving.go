package background

import (
	"errors"
	"fmt"
	"sync"
	"time"
)

// unreadyAfter is for how long something may fail before this process is not ready: what a
// connection that broke takes to be made anew is less.
const unreadyAfter = 3 * time.Second

// liveness knows whether notifications can be sent and taken, and the process shows that it
// lives, from what it does anyway: its sweeps write to Redis, its servers ask for tasks,
// and its beats are writes of the journal.
type liveness struct {
	mu                            sync.Mutex
	notifying, polling, heartbeat activity
}

// activity is how something that is done again and again goes.
type activity struct {
	failingSince time.Time // since when; zero while it goes well
	cause        error
}

func (p *activity) note(err error, now time.Time) {
	switch {
	case err == nil:
		*p = activity{}
	case p.failingSince.IsZero():
		p.failingSince, p.cause = now, err
	default:
		p.cause = err
	}
}

func (p *activity) unreadyErr(reason string, now time.Time) error {
	if p.failingSince.IsZero() || now.Sub(p.failingSince) < unreadyAfter {
		return nil
	}
	return unready(reason, fmt.Errorf("background: %s since %s: %w", reason, p.failingSince.UTC().Format(time.RFC3339), p.cause))
}

func (m *liveness) onSweep(err error) { m.note(&m.notifying, err) }
func (m *liveness) onPoll(err error)  { m.note(&m.polling, err) }
func (m *liveness) onBeat(err error)  { m.note(&m.heartbeat, err) }

func (m *liveness) note(p *activity, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err != nil || !p.failingSince.IsZero() {
		p.note(err, time.Now())
	}
}

func (m *liveness) err(now time.Time) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return errors.Join(
		m.notifying.unreadyErr("no notification can be sent", now), m.polling.unreadyErr("no notification can be taken", now), m.heartbeat.unreadyErr("no heartbeat can be written", now),
	)
}
