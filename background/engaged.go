package background

import (
	"errors"
	"sync"
)

// errEngaged hands a delivery back to asynq because this process is at its run.
var errEngaged = errors.New("background: this process is at the run already")

// engagements are the runs that this process is claiming, executing or waiting
// on. A second delivery of such a run has nothing to do, and no bell is missing
// for it. A bell that is newer than the one it came by is put back all the same: other
// processes look for the newest, and would ring again and again.
type engagements struct {
	mu   sync.Mutex
	runs map[RunID]*engagement
}

// engagement is one of them.
type engagement struct {
	wake chan struct{} // holds at most one: look at the run again
	bell int           // of the task that brought the run

	mu       sync.Mutex
	detached bool // asynq no longer holds the delivery
}

func newEngagements() *engagements { return &engagements{runs: make(map[RunID]*engagement)} }

// enter begins an engagement, or returns the one that is going on and false.
func (s *engagements) enter(id RunID, bell int) (*engagement, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.runs[id]; e != nil {
		return e, false
	}
	e := &engagement{wake: make(chan struct{}, 1), bell: bell}
	s.runs[id] = e
	return e, true
}

func (s *engagements) leave(id RunID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.runs, id)
}

func (s *engagements) has(id RunID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.runs[id] != nil
}

func (s *engagements) wake(id RunID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.runs[id]; e != nil {
		select {
		case e.wake <- struct{}{}:
		default: // one is waiting already
		}
	}
}

// detach notes that asynq was told to bring the run again later, while this
// process goes on with it.
func (e *engagement) detach() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.detached = true
}

func (e *engagement) isDetached() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.detached
}

// Wake tells the manager that a run changed, such as by a cancel: if this
// process waits for the run's next attempt, it looks at the run again now.
func (m *Manager) Wake(id RunID) { m.engaged.wake(id) }
