package rig

import (
	"sync"
	"time"

	"github.com/recourse-dev/recourse/postadjudication"
)

// Clock is a clock that a test sets.
type Clock struct {
	mu    sync.Mutex
	ahead time.Duration
	fixed time.Time // zero: it runs
}

// Set sets how far the clock is ahead of the machine's.
func (c *Clock) Set(ahead time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ahead, c.fixed = ahead, time.Time{}
}

// Fix stops the clock at a time.
func (c *Clock) Fix(at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fixed = at
}

func (c *Clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.fixed.IsZero() {
		return c.fixed
	}
	return time.Now().Add(c.ahead)
}

// WithClock returns another process on the same servers that runs by a clock of its own. It
// executes nothing before StartWorkers.
func (r *Rig) WithClock(change ...func(*postadjudication.Config)) (*Rig, *Clock) {
	clock := &Clock{}
	simulated := func(c *postadjudication.Config) { c.Simulated, c.Now = true, clock.now }
	return r.OtherProcess(append([]func(*postadjudication.Config){simulated}, change...)...), clock
}
