package background

import (
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

// lookupSlots bounds the lookups before claims of each target, so that a service that hangs takes none of another one.
type lookupSlots struct {
	most  int
	mu    sync.Mutex
	inUse map[string]int // by target
}

// acquire returns false while the target has as many lookups as it may have.
func (s *lookupSlots) acquire(target string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.inUse[target] >= s.most {
		return false
	}
	s.inUse[target]++
	return true
}

func (s *lookupSlots) release(target string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.inUse[target]--; s.inUse[target] == 0 {
		delete(s.inUse, target)
	}
}
