package background

import (
	"errors"
	"sync"
)

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
