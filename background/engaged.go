package background

import (
	"errors"
	"sync"
)

// errInFlight hands a delivery back to asynq because this process is at its run.
var errInFlight = errors.New("background: this process is at the run already")

// inFlightRuns are the runs that this process is claiming, executing or waiting
// on. A second delivery of such a run has nothing to do, and no bell is missing
// for it. A bell that is newer than the one it came by is put back all the same: other
// processes look for the newest, and would ring again and again.
type inFlightRuns struct {
	mu   sync.Mutex
	runs map[RunID]*inFlightRun
}

// inFlightRun is one of them.
type inFlightRun struct {
	wake               chan struct{} // holds at most one: look at the run again
	notificationNumber int           // of the task that brought the run

	mu        sync.Mutex
	handedOff bool // asynq no longer holds the delivery
}

func newInFlightRuns() *inFlightRuns { return &inFlightRuns{runs: make(map[RunID]*inFlightRun)} }

// acquire begins an engagement, or returns the one that is going on and false.
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
		default: // one is waiting already
		}
	}
}

// handOff notes that asynq was told to bring the run again later, while this
// process goes on with it.
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

// Wake tells the manager that a run changed, such as by a cancel: if this
// process waits for the run's next attempt, it looks at the run again now.
func (m *Manager) Wake(id RunID) { m.inFlight.wake(id) }
