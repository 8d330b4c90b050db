package background

import (
	"errors"
	"sync/atomic"
	"time"
)

const (
	// slowCall is how long a call holds its slot. A longer call continues without one, so that
	// calls that hang block nobody.
	slowCall = time.Second
	// callsPerSlot times the slots bounds all calls, including those without slot.
	callsPerSlot = 4
)

// admitTimeout is how long a delivery waits for the journal before it goes back to asynq.
const admitTimeout = time.Second

// slots bounds how many handlers are called at one time. A run that waits for its next attempt
// holds none.
type slots struct {
	free     chan struct{}
	overflow chan struct{} // one element for each call that left its slot
}

func newSlots(n int) *slots {
	s := &slots{free: make(chan struct{}, n), overflow: make(chan struct{}, (callsPerSlot-1)*n)}
	for range n {
		s.free <- struct{}{}
	}
	return s
}

// acquire waits for a slot; it returns false when stop closes first.
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

// holdDuringCall starts a call in an acquired slot. The returned function ends the call and
// releases the slot, unless the call has left it before.
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

// claimGate decides whether this process may claim, and acquires the slots of deliveries.
type claimGate struct {
	clock           *clock
	claimBackoff    *claimBackoff
	redisOwner      *redisOwner
	blockedByConfig func() error // Config.ClaimsBlocked
	health          *health
	session         *session
	slots           *slots
	now             func() time.Time
	stop            <-chan struct{} // closed: nothing new is claimed
	started         *atomic.Bool    // Run was called
}

// claimErr returns why the journal accepts no claims of this process, or nil.
func (a *claimGate) claimErr() error {
	if _, _, alive := a.session.current(); a.started.Load() && !alive {
		return errors.Join(errNoSession, a.health.err())
	}
	if a.started.Load() {
		return errors.Join(a.clock.err(), a.health.err())
	}
	return a.health.err()
}

// claimsBlocked reports whether this process may claim nothing: its clock is off, one of its
// claims became stale a short while ago, or it must not work with its servers.
func (a *claimGate) claimsBlocked() bool { return a.claimsBlockedBy() != "" }

// mayNotLead reports whether this process must leave work for all processes to others, because
// it could not carry it out.
func (a *claimGate) mayNotLead() bool {
	why := a.claimsBlockedBy()
	return why == BlockedByClock || why == BlockedByServers
}

func (a *claimGate) claimsBlockedBy() string {
	switch {
	case a.clock.err() != nil:
		return BlockedByClock
	case a.claimBackoff.remaining() > 0:
		return BlockedByStaleClaims
	case a.serversErr() != nil:
		return BlockedByServers
	}
	return ""
}

// serversErr returns why nothing may be claimed with these servers, or nil.
func (a *claimGate) serversErr() error {
	if a.blockedByConfig == nil {
		return a.redisOwner.err()
	}
	return errors.Join(a.blockedByConfig(), a.redisOwner.err())
}

// admit acquires a slot for a delivery while the journal can be written. Its error tells asynq
// when to deliver the run again.
func (a *claimGate) admit() error {
	for {
		if err := a.awaitHealth(); err != nil {
			return err
		}
		if !a.slots.acquire(a.stop) {
			return &redeliverAt{at: a.now()}
		}
		if _, _, alive := a.session.current(); !alive {
			a.slots.release()
			return errUnavailable
		}
		if a.claimsBlocked() {
			a.slots.release()
			return &redeliverAt{at: a.now()} // to another process: this one dequeues no task
		}
		if a.claimErr() == nil {
			return nil
		}
		a.slots.release() // claims became impossible while the delivery waited
	}
}

func (a *claimGate) awaitHealth() error {
	writable := a.health.writable()
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
	case <-a.stop:
		return &redeliverAt{at: a.now()}
	case <-timeout.C:
		return errUnavailable
	}
}

// maxIdleWorkers bounds the idle goroutines of a workerPool.
const maxIdleWorkers = 256

// workerPool reuses goroutines. The stack of a new goroutine is copied several times until it
// is large enough for a delivery; that of a reused one has grown.
type workerPool struct {
	jobs chan func()
	idle chan struct{} // one element for each idle goroutine
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

// close ends idle goroutines. Running ones finish, and do still works.
func (c *workerPool) close() { close(c.done) }
