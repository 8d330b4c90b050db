package background

import (
	"errors"
	"sync"
	"time"
)

const (
	// slowCall is how long a call holds its slot. A longer call continues without one, so that
	// calls that hang block nobody.
	slowCall = time.Second
	// callsPerSlot times the slots bounds all calls, including those without slot.
	callsPerSlot = 4
)

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

// errInFlight gives a delivery back to asynq because this process already processes its run.
var errInFlight = errors.New("background: the run is in flight in this process")

// inFlightRuns are the runs that this process is claiming, executing or waiting for. A second
// delivery of such a run does nothing, and the run needs no notification. A newer notification
// than the one being processed goes back to asynq all the same: other processes check for the
// newest one and would send it again and again.
type inFlightRuns struct {
	mu   sync.Mutex
	runs map[RunID]*inFlightRun
}

// inFlightRun is one run in flight.
type inFlightRun struct {
	wake               chan struct{} // holds at most one signal to read the run again
	notificationNumber int           // of the task that brought the run

	mu        sync.Mutex
	handedOff bool // asynq no longer holds the delivery
}

func newInFlightRuns() *inFlightRuns { return &inFlightRuns{runs: make(map[RunID]*inFlightRun)} }

// acquire adds a run and returns true, or returns the entry that exists and false.
func (s *inFlightRuns) acquire(id RunID, notificationNumber int) (*inFlightRun, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.runs[id]; e != nil {
		return e, false
	}
	e := &inFlightRun{wake: make(chan struct{}, 1), notificationNumber: notificationNumber}
	s.runs[id] = e
	return e, true
}

func (s *inFlightRuns) release(id RunID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.runs, id)
}

func (s *inFlightRuns) has(id RunID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.runs[id] != nil
}

func (s *inFlightRuns) wake(id RunID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.runs[id]; e != nil {
		select {
		case e.wake <- struct{}{}:
		default: // a signal is pending
		}
	}
}

// handOff records that asynq was told to deliver the run again later, while this process
// continues it.
func (e *inFlightRun) handOff() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.handedOff = true
}

func (e *inFlightRun) isHandedOff() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.handedOff
}

// Wake reports that a run changed, such as by a cancel. If this process waits for the run's
// next attempt, it reads the run again now.
func (m *Manager) Wake(id RunID) { m.inFlight.wake(id) }
