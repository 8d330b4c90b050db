package background

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/singleflight"
)

// clock reads the database's clock, which all processes use for times that are recorded or
// compared across processes. Between two measurements it advances by the monotonic clock, so
// that setting this machine's clock does not move it.
//
// A simulated clock is Config.Now as it is, and is not measured.
type clock struct {
	wall      func() time.Time
	simulated bool
	origin    atomic.Pointer[time.Time] // time when the process began; nil before the first measurement
	setBack   atomic.Pointer[time.Time] // ClockReading.SetBack of the last reading; nil before the first one
	unchanged atomic.Pointer[time.Time] // see Manager.ClockUnchangedSince; nil before the first reading
	measuring singleflight.Group        // by MeasureClock

	mu           sync.Mutex
	filter       clockFilter
	otherOffsets []time.Duration // the offsets of other live processes
	measured     time.Time       // time of the last measurement
}

// now returns the time; before the first measurement, that of this machine.
func (c *clock) now() time.Time {
	if zero := c.origin.Load(); zero != nil {
		return zero.Add(time.Since(processBegan))
	}
	return c.wall()
}

// monotonic returns the reading of the clock that samples use.
func monotonic() time.Duration { return time.Since(processBegan) }

// observe adds a reading of the database's clock that was requested at sent.
func (c *clock) observe(sent time.Duration, read ClockReading) {
	if c.simulated {
		return
	}
	s := clockSample{sent: sent, received: monotonic(), wall: c.wall().Round(0), read: read}
	c.setBack.Store(&read.SetBack) // before the time that was read may be taken
	c.mu.Lock()
	defer c.mu.Unlock()
	c.filter.observe(s)
	c.publish(read.UnchangedSince)
}

// publish makes the filter's time the one that now returns. stored is ClockReading.UnchangedSince of the last reading.
func (c *clock) publish(stored time.Time) {
	if c.filter.changedTo.After(stored) {
		stored = c.filter.changedTo
	}
	c.unchanged.Store(&stored) // before the time
	zero := c.filter.current.origin
	c.origin.Store(&zero)
	c.measured = time.Now()
}

// compare stores the clock offsets of other live processes.
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

// offset returns how much later the database's clock is than this machine's; nil before the
// first measurement.
func (c *clock) offset() *time.Duration {
	if c.origin.Load() == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	off := c.filter.offset
	return &off
}

// maxError returns by how much the time may differ from the database's clock; 0 before the first measurement.
func (c *clock) maxError() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.filter.current.origin.IsZero() {
		return 0
	}
	return max(c.filter.current.maxError, c.filter.best().maxError)
}

// atLeast returns the earliest time that the database's clock shows now, unless it was set back; zero before the
// first measurement.
func (c *clock) atLeast() time.Time {
	if c.origin.Load() == nil {
		return time.Time{}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.filter.current.origin.Add(monotonic() - c.filter.current.maxError)
}

// changedTo returns what the database's clock showed when this process last found it changed; zero if it never did.
func (c *clock) changedTo() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.filter.changedTo
}

// err returns why nothing may be claimed by this clock, or nil.
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

// clockValidFor is how long a measurement is valid in a process without session, which has no
// heartbeats to measure with.
const clockValidFor = 30 * time.Second

// MeasureClock returns once the journal's clock was measured, at most clockValidFor ago. Run measures
// with each heartbeat; whatever records a time, which may happen before the first one or in a process
// that only submits, calls this before. Calls at the same time share a measurement and its error.
func (m *Manager) MeasureClock(ctx context.Context) error {
	c := m.clock
	if c.simulated || m.started.Load() && c.origin.Load() != nil || !c.due() {
		return nil
	}
	measured := c.measuring.DoChan("", func() (any, error) {
		return nil, c.measure(context.WithoutCancel(ctx), m.cfg.Store)
	})
	select {
	case result := <-measured:
		return result.Err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// measure takes as many samples as must agree.
func (c *clock) measure(ctx context.Context, store Store) error {
	var fresh clockFilter
	var first, last ClockReading
	for i := range clockAgreements {
		sent := monotonic()
		read, err := store.Clock(ctx)
		if err != nil {
			return err
		}
		fresh.observe(clockSample{sent: sent, received: monotonic(), wall: c.wall().Round(0), read: read})
		c.setBack.Store(&read.SetBack)
		if last = read; i == 0 {
			first = read
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case len(fresh.candidates) == 0 && len(c.filter.candidates) == 0 && fresh.server == c.filter.server && !c.filter.current.origin.IsZero() && !c.filter.differs(fresh.current):
		for _, m := range fresh.estimates {
			c.filter.follow(m)
		}
		c.filter.offset = fresh.offset
		c.publish(last.UnchangedSince)
	case len(fresh.candidates) == 0:
		if fresh.changedTo = c.filter.changedTo; c.filter.differs(fresh.current) {
			fresh.changedTo = first.At
		}
		c.filter = fresh
		c.publish(last.UnchangedSince)
	case c.origin.Load() == nil:
		return errors.New("background: the database's clock changed while it was measured")
	}
	return nil
}

// measureFirst takes more than the one sample of a heartbeat before anything is claimed, unless the clock was measured before: one may take long.
func (c *clock) measureFirst(ctx context.Context, store Store) error {
	if c.simulated || c.origin.Load() != nil {
		return nil
	}
	return c.measure(ctx, store)
}

func (c *clock) due() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.origin.Load() == nil || time.Since(c.measured) > clockValidFor
}

// Now returns the time that everything is recorded with: the journal's, in UTC and whole
// microseconds.
func (m *Manager) Now() time.Time { return m.now() }

// ClockSetBack returns ClockReading.SetBack as it was last read; zero of a simulated clock.
func (m *Manager) ClockSetBack() time.Time {
	if at := m.clock.setBack.Load(); at != nil {
		return *at
	}
	return time.Time{}
}

// ClockUnchangedSince returns since when, by the journal's clock, this process and the heartbeats of all have followed that
// clock without finding it changed by over MaxClockOffset, either way: how long ago anything earlier was, the clock can't
// say; since this time at least. Zero if it never changed, or is simulated.
func (m *Manager) ClockUnchangedSince() time.Time {
	if at := m.clock.unchanged.Load(); at != nil {
		return *at
	}
	return time.Time{}
}

// MaxClockOffset is how much the clock of a process may differ from the database's.
const MaxClockOffset = time.Second

const (
	clockWindow     = 60 // samples kept; the best one counts
	clockAgreements = 3  // samples that must agree after a change of the server
)

// ClockReading is one reading of the database's clock.
type ClockReading struct {
	At     time.Time
	Server string // identity of the server: system, timeline and start
	// SetBack is the latest time that the database's clock had shown when it was found set back by over
	// MaxClockOffset, by whichever process, also after a restart of all; zero if it never was. How long ago an earlier
	// time was, nobody can say.
	SetBack time.Time
	// UnchangedSince is what the database's clock showed when it was last found changed by over MaxClockOffset, either way,
	// or at the first heartbeat after there was none for Session.LostAfter; zero if neither ever was.
	UnchangedSince time.Time
}

// clockSample is a reading with the times around it, on the clocks of this process. Nobody can
// set the monotonic one: when the database's moves against it, the database's was changed, or
// this machine was suspended.
type clockSample struct {
	sent, received time.Duration // monotonic, since the process began
	wall           time.Time     // of this machine, when the reading arrived
	read           ClockReading
}

// clockEstimate is the result of a sample: the database's time when the process began, and its
// maximum error, which is half the round trip.
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

// near returns what an estimate proves, once the clock has drifted away from an older one: itself, unless it took longer. Then
// the time is at its end that is nearer to the older one, and may be at the other.
func (m clockEstimate) near(older clockEstimate) clockEstimate {
	switch {
	case m.maxError <= older.maxError:
		return m
	case m.origin.Before(older.origin):
		return clockEstimate{origin: m.origin.Add(m.maxError), maxError: 2 * m.maxError}
	}
	return clockEstimate{origin: m.origin.Add(-m.maxError), maxError: 2 * m.maxError}
}

// clockFilter computes the time from samples of the database's clock. It is pure: times and
// round trips come in, decisions go out.
//
//   - Of the last 60 samples the one with the shortest round trip counts. The time follows
//     it only where it differs by more than its own error. A sample that took longer than the best is not
//     followed, not even where both can't be right: the clock drifted by as little as that proves.
//   - When the server changes, or its clock jumps by over MaxClockOffset, the old time
//     continues until three samples in a row agree on the new one. Nothing is claimed until
//     then.
//   - A machine claims nothing while its own clock is off by over MaxClockOffset and most
//     other processes do not share that offset: its clock was changed, or its measurement
//     is wrong. A machine that is alone, or off like the others, uses the database's clock.
type clockFilter struct {
	current    clockEstimate // the estimate in use; zero before the first sample
	server     string
	estimates  []clockEstimate // estimates that agree, oldest first
	candidates []clockEstimate // since the server changed; empty once the change is confirmed
	changing   time.Time       // what the first candidate read
	changedTo  time.Time       // what the clock showed when it was last found to jump; zero if it never was
	offset     time.Duration
}

// observe adds a sample.
func (j *clockFilter) observe(s clockSample) {
	m := s.estimate()
	switch {
	case j.current.origin.IsZero():
		j.adopt(s.read.Server, m)
	case len(j.candidates) > 0:
		j.confirmChange(s.read, m)
	case s.read.Server != j.server || j.differs(m):
		j.server, j.candidates, j.changing = s.read.Server, []clockEstimate{m}, s.read.At
	default:
		j.follow(m)
	}
	j.offset = j.current.origin.Add(s.received).Sub(s.wall)
}

// confirmChange adds a sample while a change of the server is being confirmed.
func (j *clockFilter) confirmChange(read ClockReading, m clockEstimate) {
	if read.Server != j.server || slices.ContainsFunc(j.candidates, func(c clockEstimate) bool { return !c.agrees(m) }) {
		j.server, j.candidates, j.changing = read.Server, j.candidates[:0], read.At
	}
	if j.candidates = append(j.candidates, m); len(j.candidates) >= clockAgreements {
		before := *j
		if j.adopt(read.Server, j.candidates...); before.differs(j.current) {
			j.changedTo = j.changing
		}
	}
}

// differs reports whether an estimate is over MaxClockOffset from the one in use, if there is one, by more than both may err.
func (j *clockFilter) differs(m clockEstimate) bool {
	return !j.current.origin.IsZero() && m.origin.Sub(j.current.origin).Abs() > m.maxError+j.current.maxError+MaxClockOffset
}

func (j *clockFilter) adopt(server string, estimates ...clockEstimate) {
	j.server, j.estimates, j.candidates = server, estimates, nil
	j.current = j.best()
}

func (j *clockFilter) follow(m clockEstimate) {
	if len(j.estimates) == clockWindow {
		j.estimates = slices.Delete(j.estimates, 0, 1)
	}
	if best := j.best(); !best.agrees(m) { // it drifted away from them
		j.estimates = j.estimates[:0]
		m = m.near(best)
	}
	j.estimates = append(j.estimates, m)
	if best := j.best(); best.origin.Sub(j.current.origin).Abs() > best.maxError {
		j.current = best
	}
}

func (j *clockFilter) best() clockEstimate {
	return slices.MinFunc(j.estimates, func(a, b clockEstimate) int { return int(a.maxError - b.maxError) })
}

// blockReason returns why nothing may be claimed, given the clock offsets of other live
// processes; empty when claiming is allowed.
func (j *clockFilter) blockReason(others []time.Duration) string {
	if len(j.candidates) > 0 {
		return "the database's server or its clock has changed: claiming is blocked until three heartbeats agree on the time"
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
	return fmt.Sprintf("the clock of this machine is %s from the database's, that of %d of %d other processes is not: claiming is blocked until it is set",
		j.offset.Round(time.Millisecond).Abs(), len(others)-shared, len(others))
}

// instant is one moment on the clocks of this machine. The wall clock may be set back, and the
// monotonic one stands still while the machine is suspended: none of them is trusted alone.
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

// until returns how much later another instant is, by the clock that shows the longest time.
func (i instant) until(later instant) time.Duration {
	return max(later.wall.Sub(i.wall), later.mono-i.mono, later.boot-i.boot)
}
