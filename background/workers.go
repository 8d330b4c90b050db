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

// admitTimeout is for how long a delivery waits for the journal to come back
// before it is handed back.
const admitTimeout = time.Second

// slots bounds how many handlers are called at one time. A run that waits for
// its next attempt holds none.
type slots struct {
	free     chan struct{}
	overflow chan struct{} // full of calls that have left their slot
}

func newSlots(n int) *slots {
	s := &slots{free: make(chan struct{}, n), overflow: make(chan struct{}, (callsPerSlot-1)*n)}
	for range n {
		s.free <- struct{}{}
	}
	return s
}

// acquire waits for a slot; it reports false when stop closes first.
func (s *slots) acquire(stop <-chan struct{}) bool {
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

// holdDuringCall says that a call is made in a slot that was taken, until what it returns is
// called: that gives the slot back, if the call has not left it before.
func (s *slots) holdDuringCall() (endCall func()) {
	ended, leftSlot := make(chan struct{}), make(chan bool, 1)
	slow := time.AfterFunc(slowCall, func() {
		select {
		case s.overflow <- struct{}{}:
			s.release()
			leftSlot <- true
		case <-ended:
			leftSlot <- false
		}
	})
	return func() {
		if slow.Stop() {
			s.release()
			return
		}
		close(ended)
		if <-leftSlot {
			<-s.overflow
		} else {
			s.release()
		}
	}
}

// claimsBlocked reports whether this process may claim nothing: its clock is off, a claim of it
// grew old a short while ago, or its servers are not those that it may work on.
func (m *Manager) claimsBlocked() bool { return m.claimsBlockedBy() != "" }

// mayNotLead reports whether this process must leave to others what one does for all: it
// could carry none of it out.
func (m *Manager) mayNotLead() bool {
	why := m.claimsBlockedBy()
	return why == BlockedByClock || why == BlockedByServers
}

func (m *Manager) claimsBlockedBy() string {
	switch {
	case m.clock.err() != nil:
		return BlockedByClock
	case m.claimBackoff.remaining() > 0:
		return BlockedByStaleClaims
	case m.serversErr() != nil:
		return BlockedByServers
	}
	return ""
}

// serversErr says why nothing may be claimed on these servers.
func (m *Manager) serversErr() error {
	if m.cfg.ClaimsBlocked == nil {
		return m.redisOwner.err()
	}
	return errors.Join(m.cfg.ClaimsBlocked(), m.redisOwner.err())
}

// admit takes a slot for a delivery while evidence can be written. Its error says
// when asynq should bring the run again.
func (m *Manager) admit() error {
	for {
		if err := m.awaitHealth(); err != nil {
			return err
		}
		if !m.slots.acquire(m.stop) {
			return &redeliverAt{at: m.now()}
		}
		if _, _, alive := m.session.current(); !alive {
			m.slots.release()
			return errUnavailable
		}
		if m.claimsBlocked() {
			m.slots.release()
			return &redeliverAt{at: m.now()} // to another process: this one asks for no task
		}
		if m.claimErr() == nil {
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
	timeout := time.NewTimer(admitTimeout)
	defer timeout.Stop()
	select {
	case <-writable:
		return nil
	case <-m.stop:
		return &redeliverAt{at: m.now()}
	case <-timeout.C:
		return errUnavailable
	}
}

// maxIdleWorkers is how many goroutines of a crew wait for work.
const maxIdleWorkers = 256

// workerPool lends goroutines that have worked before. The stack of a new one grows to
// what a delivery needs by being copied several times over; theirs has grown.
type workerPool struct {
	jobs chan func()
	idle chan struct{} // one token for each goroutine that may wait
	done chan struct{}
}

func newWorkerPool() *workerPool {
	return &workerPool{jobs: make(chan func()), idle: make(chan struct{}, maxIdleWorkers), done: make(chan struct{})}
}

// do runs fn in a goroutine of its own.
func (c *workerPool) do(fn func()) {
	select {
	case c.jobs <- fn:
	default:
		go c.work(fn)
	}
}

func (c *workerPool) work(fn func()) {
	for {
		fn()
		select {
		case c.idle <- struct{}{}:
		default:
			return
		}
		select {
		case fn = <-c.jobs:
			<-c.idle
		case <-c.done:
			return
		}
	}
}

// close lets those go that wait. What runs goes on, and do still works.
func (c *workerPool) close() { close(c.done) }
