package background

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// clock tells the time of the database's clock, which all processes go by: what is
// written and compared across processes has it. Between two measurements it goes on by
// the monotonic clock, so that nobody who sets this machine's moves it.
//
// A simulated clock is Config.Now as it is, and is not measured.
type clock struct {
	wall      func() time.Time
	simulated bool
	origin    atomic.Pointer[time.Time] // when the process began; nil before it was measured
	measuring atomic.Bool               // by MeasureClock

	mu           sync.Mutex
	filter       clockFilter
	otherOffsets []time.Duration // the offsets of other live processes
	measured     time.Time       // the last time
}

// now is the time; before it was measured, that of this machine.
func (c *clock) now() time.Time {
	if zero := c.origin.Load(); zero != nil {
		return zero.Add(time.Since(processBegan))
	}
	return c.wall()
}

// monotonic is the reading of the clock that samples are taken by.
func monotonic() time.Duration { return time.Since(processBegan) }

// observe takes in what the database said, asked at a time given.
func (c *clock) observe(sent time.Duration, read ClockReading) {
	if c.simulated {
		return
	}
	s := clockSample{sent: sent, received: monotonic(), wall: c.wall().Round(0), read: read}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.filter.observe(s)
	c.publish()
}

func (c *clock) publish() {
	zero := c.filter.current.origin
	c.origin.Store(&zero)
	c.measured = time.Now()
}

// compare takes in what other live processes measure of their clocks.
func (c *clock) compare(sessions []Session, own SessionID) {
	var others []time.Duration
	for _, s := range sessions {
		if s.ID != own && !s.Lost && s.ClockOffset != nil {
			others = append(others, *s.ClockOffset)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.otherOffsets = others
}

// offset is how much later the database's clock is than this machine's; nil when it
// was not measured.
func (c *clock) offset() *time.Duration {
	if c.origin.Load() == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	off := c.filter.offset
	return &off
}

// err says why nothing may be claimed by this clock.
func (c *clock) err() error {
	if c.origin.Load() == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if why := c.filter.blockReason(c.otherOffsets); why != "" {
		return unready("the clock of this machine, or that of the database, is off", errors.New("background: "+why))
	}
	return nil
}

// clockValidFor is for how long a process that has no session, and so measures with no
// beat, goes by what it measured last.
const clockValidFor = 30 * time.Second

// MeasureClock asks the ledger for its time if that was not done for a while. A process
// that runs does it with each beat; one that only hands over calls this before.
func (m *Manager) MeasureClock(ctx context.Context) error {
	c := m.clock
	if c.simulated || m.started.Load() || !c.due() || !c.measuring.CompareAndSwap(false, true) {
		return nil
	}
	defer c.measuring.Store(false)
	var fresh clockFilter
	for range clockAgreements {
		sent := monotonic()
		read, err := m.cfg.Store.Clock(ctx)
		if err != nil {
			return err
		}
		fresh.observe(clockSample{sent: sent, received: monotonic(), wall: c.wall().Round(0), read: read})
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(fresh.candidates) == 0 {
		c.filter = fresh
		c.publish()
	}
	return nil
}

func (c *clock) due() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.origin.Load() == nil || time.Since(c.measured) > clockValidFor
}

// Now is the time that everything is recorded with: that of the ledger's clock, in UTC
// and whole microseconds.
func (m *Manager) Now() time.Time { return m.now() }
