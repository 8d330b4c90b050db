package background

import (
	"errors"
	"time"
)

const (
	// slowCall is for how long a call holds its slot: one that takes longer is waited for
	// without, so that calls which hang keep nobody else waiting.
	slowCall = time.Second
	// callsPerSlot bounds the calls that are out in all, those without a slot included.
	callsPerSlot = 4
)

// admitPatience is for how long a delivery waits for the journal to come back
// before it is handed back.
const admitPatience = time.Second

// slots bounds how many handlers are called at one time. A run that waits for
// its next attempt holds none.
type slots struct {
	free   chan struct{}
	beyond chan struct{} // full of calls that have left their slot
}

func newSlots(n int) *slots {
	s := &slots{free: make(chan struct{}, n), beyond: make(chan struct{}, (callsPerSlot-1)*n)}
	for range n {
		s.free <- struct{}{}
	}
	return s
}

// take waits for a slot; it reports false when stop closes first.
func (s *slots) take(stop <-chan struct{}) bool {
	select {
	case <-stop: // a free slot must not win against a shutdown
		return false
	default:
	}
	select {
	case <-s.free:
		return true
	case <-stop:
		return false
	}
}

func (s *slots) release() { s.free <- struct{}{} }

// during says that a call is made in a slot that was taken, until what it returns is
// called: that gives the slot back, if the call has not left it before.
func (s *slots) during() (over func()) {
	ended, left := make(chan struct{}), make(chan bool, 1)
	slow := time.AfterFunc(slowCall, func() {
		select {
		case s.beyond <- struct{}{}:
			s.release()
			left <- true
		case <-ended:
			left <- false
		}
	})
	return func() {
		if slow.Stop() {
			s.release()
			return
		}
		close(ended)
		if <-left {
			<-s.beyond
		} else {
			s.release()
		}
	}
}

// barred reports whether this process may claim nothing: its clock is off, a claim of it
// grew old a short while ago, or its servers are not those that it may work on.
func (m *Manager) barred() bool { return m.barredBy() != "" }

// leadsNothing reports whether this process must leave to others what one does for all: it
// could carry none of it out.
func (m *Manager) leadsNothing() bool {
	why := m.barredBy()
	return why == BarredByClock || why == BarredByServers
}

func (m *Manager) barredBy() string {
	switch {
	case m.clock.err() != nil:
		return BarredByClock
	case m.pausing.remaining() > 0:
		return BarredByAge
	case m.unsuitable() != nil:
		return BarredByServers
	}
	return ""
}

// unsuitable says why nothing may be claimed on these servers.
func (m *Manager) unsuitable() error {
	if m.cfg.Barred == nil {
		return m.redisOwner.err()
	}
	return errors.Join(m.cfg.Barred(), m.redisOwner.err())
}

// admit takes a slot for a delivery while evidence can be written. Its error says
// when asynq should bring the run again.
func (m *Manager) admit() error {
	for {
		if err := m.awaitHealth(); err != nil {
			return err
		}
		if !m.slots.take(m.stop) {
			return &handBack{at: m.now()}
		}
		if _, _, alive := m.session.current(); !alive {
			m.slots.release()
			return errUnavailable
		}
		if m.barred() {
			m.slots.release()
			return &handBack{at: m.now()} // to another process: this one asks for no task
		}
		if m.claimable() == nil {
			return nil
		}
		m.slots.release() // it went while the delivery stood in line
	}
}

func (m *Manager) awaitHealth() error {
	writable := m.health.writable()
	select {
	case <-writable:
		return nil
	default:
	}
	patience := time.NewTimer(admitPatience)
	defer patience.Stop()
	select {
	case <-writable:
		return nil
	case <-m.stop:
		return &handBack{at: m.now()}
	case <-patience.C:
		return errUnavailable
	}
}
