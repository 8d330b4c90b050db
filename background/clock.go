package background

import (
	"context"
	"errors"
	"fmt"
	"slices"
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

// MaxClockOffset is by how much the clock of a process may differ from the one that all go
// by, which is the database's.
const MaxClockOffset = time.Second

const (
	clockWindow     = 60 // of which the best counts
	clockAgreements = 3  // readings that must agree after a change of the server
)

// ClockReading is what the database said of its clock.
type ClockReading struct {
	At     time.Time
	Server string // which server said it: another system, timeline or start is another
}

// clockSample is a reading with the times around it, on the clocks of this process. The
// monotonic one can't be set: that the database's moves against it is the database's
// doing, or this machine was suspended.
type clockSample struct {
	sent, received time.Duration // monotonic, since the process began
	wall           time.Time     // of this machine, when it was received
	read           ClockReading
}

// clockEstimate is what a sample tells: where the database's clock stood when the process
// began, and by how much that may be wrong at most, which is half the round trip.
type clockEstimate struct {
	origin   time.Time
	maxError time.Duration
}

func (s clockSample) estimate() clockEstimate {
	return clockEstimate{origin: s.read.At.Add(-(s.sent + s.received) / 2), maxError: (s.received-s.sent)/2 + time.Microsecond}
}

func (m clockEstimate) agrees(other clockEstimate) bool {
	return m.origin.Sub(other.origin).Abs() <= m.maxError+other.maxError
}

// clockFilter decides what time it is by samples of the database's clock. It is pure: times
// and round trips come in, decisions go out.
//
//   - Of the last 60 samples the one with the shortest round trip counts, and it is
//     followed only where it differs by more than its own error.
//   - When the server changes, or its clock jumps by over MaxClockOffset, the old time goes on
//     until three samples in a row agree on the new one. Nothing is claimed until then.
//   - A machine whose own clock is off by over MaxClockOffset, which most other processes do
//     not share, claims nothing: its clock was changed, or its measurement is spoilt. One
//     that is alone, or off like the others, goes by the database's.
type clockFilter struct {
	current    clockEstimate // what is gone by; zero before the first sample
	server     string
	estimates  []clockEstimate // that agree, the oldest first
	candidates []clockEstimate // since the server changed; empty when it is settled
	offset     time.Duration
}

// observe takes a sample in.
func (j *clockFilter) observe(s clockSample) {
	m := s.estimate()
	switch {
	case j.current.origin.IsZero():
		j.adopt(s.read.Server, m)
	case len(j.candidates) > 0:
		j.confirmChange(s.read.Server, m)
	case s.read.Server != j.server || m.origin.Sub(j.current.origin).Abs() > m.maxError+j.current.maxError+MaxClockOffset:
		j.server, j.candidates = s.read.Server, []clockEstimate{m}
	default:
		j.follow(m)
	}
	j.offset = j.current.origin.Add(s.received).Sub(s.wall)
}

// confirmChange takes a sample in while the change of a server is looked at.
func (j *clockFilter) confirmChange(server string, m clockEstimate) {
	if server != j.server || slices.ContainsFunc(j.candidates, func(c clockEstimate) bool { return !c.agrees(m) }) {
		j.server, j.candidates = server, j.candidates[:0]
	}
	if j.candidates = append(j.candidates, m); len(j.candidates) >= clockAgreements {
		j.adopt(server, j.candidates...)
	}
}

func (j *clockFilter) adopt(server string, estimates ...clockEstimate) {
	j.server, j.estimates, j.candidates = server, estimates, nil
	j.current = j.best()
}

func (j *clockFilter) follow(m clockEstimate) {
	if !j.best().agrees(m) {
		j.estimates = j.estimates[:0] // it drifted away from them
	}
	if j.estimates = append(j.estimates, m); len(j.estimates) > clockWindow {
		j.estimates = slices.Delete(j.estimates, 0, 1)
	}
	if best := j.best(); best.origin.Sub(j.current.origin).Abs() > best.maxError {
		j.current = best
	}
}

func (j *clockFilter) best() clockEstimate {
	return slices.MinFunc(j.estimates, func(a, b clockEstimate) int { return int(a.maxError - b.maxError) })
}

// blockReason says why nothing may be claimed, by what other live processes measure of their
// clocks; empty when something may.
func (j *clockFilter) blockReason(others []time.Duration) string {
	if len(j.candidates) > 0 {
		return "the database's server or its clock has changed: nothing is claimed until three beats agree on the time"
	}
	shared := 0
	for _, o := range others {
		if (o - j.offset).Abs() <= MaxClockOffset {
			shared++
		}
	}
	if j.offset.Abs() <= MaxClockOffset || 2*shared >= len(others) {
		return ""
	}
	return fmt.Sprintf("the clock of this machine is %s from the database's, that of %d of %d other processes is not: nothing is claimed until it is set",
		j.offset.Round(time.Millisecond).Abs(), len(others)-shared, len(others))
}

// instant is one moment as the clocks of this machine show it. A clock on the wall may
// be set back, and a monotonic one may stand still with a suspended machine: none of
// them is trusted alone.
type instant struct {
	wall time.Time
	mono time.Duration // since the process began
	boot time.Duration // since the machine was started
}

var processBegan = time.Now()

func readClocks() instant {
	now := time.Now()
	return instant{wall: now.Round(0), mono: now.Sub(processBegan), boot: bootTime()}
}

// until is how much later another instant is, by the clock that says most.
func (i instant) until(later instant) time.Duration {
	return max(later.wall.Sub(i.wall), later.mono-i.mono, later.boot-i.boot)
}
