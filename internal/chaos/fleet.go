package main

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"syscall"
	"time"

	"github.com/recourse-dev/recourse/internal/chaos/worker"
)

// openTimeout is how long a worker may take to open when all servers work.
const openTimeout = 30 * time.Second

// fleet is the workers. A seat holds one process after the other.
type fleet struct {
	log     io.Writer
	mu      sync.Mutex
	seats   []*seat
	crashes []string // of workers that ended by themselves
	started []*workerProcess
}

// seat is the place of one worker.
type seat struct {
	settings      worker.Settings // of its next process
	worker        *workerProcess
	frozen        bool
	freezesItself bool // it will stop itself by SIGSTOP
	starts        int
}

func openFleet(n int, log io.Writer, s worker.Settings) (*fleet, error) {
	f := &fleet{log: log}
	for i := range n {
		s.Name = fmt.Sprintf("worker-%d", i)
		f.seats = append(f.seats, &seat{settings: s})
	}
	return f, f.heal()
}

// start starts a new process on a seat without a live one.
func (f *fleet) start(i int, failpoint string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.startLocked(f.seats[i], failpoint)
}

func (f *fleet) startLocked(s *seat, failpoint string) error {
	f.checkExit(s)
	settings := s.settings
	settings.Failpoint = failpoint
	settings.Name = fmt.Sprintf("%s.%d", settings.Name, s.starts)
	h, err := launch(settings, f.log)
	if err != nil {
		return err
	}
	s.worker, s.frozen = h, false
	f.started = append(f.started, h)
	s.starts++
	return nil
}

// checkExit records a crash when the process on a seat ended neither by a kill nor gracefully. One
// that could not open is none: its servers were down.
func (f *fleet) checkExit(s *seat) {
	if s.worker == nil || s.worker.alive() {
		return
	}
	code := s.worker.process.Code()
	if s.worker.opened() && code != 0 && code != 128+int(syscall.SIGKILL) {
		f.crashes = append(f.crashes, fmt.Sprintf("%s.%d ended by itself with code %d", s.settings.Name, s.starts-1, code))
	}
}

func (f *fleet) checkExits() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range f.seats {
		f.checkExit(s)
	}
}

// heal wakes frozen processes and replaces dead ones, until all are open.
func (f *fleet) heal() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range f.seats {
		if s.worker != nil && s.frozen {
			if err := s.worker.process.Signal(syscall.SIGCONT); err != nil {
				return err
			}
			s.frozen = false
		}
		if s.worker != nil && s.worker.alive() {
			continue
		}
		if err := f.startLocked(s, ""); err != nil {
			return err
		}
	}
	deadline := time.After(openTimeout)
	for _, s := range f.seats {
		for {
			select {
			case <-s.worker.ready:
			case <-s.worker.ended: // its servers were not up yet
				if err := f.startLocked(s, ""); err != nil {
					return err
				}
				time.Sleep(100 * time.Millisecond)
				select {
				case <-deadline:
					return errors.New("the workers do not open")
				default:
				}
				continue
			case <-deadline:
				return errors.New("the workers do not open")
			}
			break
		}
	}
	return nil
}

// killOne ends a seat's process with SIGKILL.
func (f *fleet) killOne(i int) error {
	f.mu.Lock()
	h := f.seats[i].worker
	f.mu.Unlock()
	return h.kill()
}

func (f *fleet) kill() error {
	var errs []error
	for i := range f.seats {
		if f.seats[i].worker != nil {
			errs = append(errs, f.killOne(i))
		}
	}
	return errors.Join(errs...)
}

// freeze stops a seat's process by SIGSTOP. It does nothing to one that will stop itself at a
// point: frozen and woken before that point, it would stop there later, and nobody would wake it.
func (f *fleet) freeze(i int) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.seats[i].freezesItself {
		return nil
	}
	f.seats[i].frozen = true
	return f.seats[i].worker.process.Signal(syscall.SIGSTOP)
}

// expectFrozen records that a seat's process will stop itself. It gets no commands.
func (f *fleet) expectFrozen(i int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.seats[i].frozen, f.seats[i].freezesItself = true, true
}

// thaw wakes the process on a seat that was expected to stop itself, or kills it when it has
// not stopped.
func (f *fleet) thaw(i int) error {
	f.mu.Lock()
	s := f.seats[i]
	h, expected := s.worker, s.freezesItself
	s.freezesItself = false
	f.mu.Unlock()
	if !expected || h == nil || !h.alive() {
		return nil
	}
	stopped, err := h.stopped()
	if err != nil || !stopped {
		return errors.Join(err, h.kill())
	}
	return h.process.Signal(syscall.SIGCONT)
}

// change changes the settings of the next process on a seat.
func (f *fleet) change(i int, change func(*worker.Settings)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(&f.seats[i].settings)
}

// settings returns the settings of the next process on a seat.
func (f *fleet) settings(i int) worker.Settings {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.seats[i].settings
}

// stop ends a seat's process gracefully and waits for it.
func (f *fleet) stop(i int, limit time.Duration) error {
	f.mu.Lock()
	h := f.seats[i].worker
	f.mu.Unlock()
	if err := h.stop(); err != nil {
		return err
	}
	select {
	case <-h.process.Done():
		return nil
	case <-time.After(limit):
		return fmt.Errorf("worker %d does not end within %s", i, limit)
	}
}

// anyReady returns a worker that takes commands; nil when there is none.
func (f *fleet) anyReady(rng *rand.Rand) *workerProcess {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, i := range rng.Perm(len(f.seats)) {
		if s := f.seats[i]; s.worker.alive() && !s.frozen {
			if s.worker.opened() {
				return s.worker
			}
		}
	}
	return nil
}

// workerAt returns the process on a seat.
func (f *fleet) workerAt(i int) *workerProcess {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.seats[i].worker
}

func (h *workerProcess) opened() bool {
	select {
	case <-h.ready:
		return true
	default:
		return false
	}
}

func (h *workerProcess) alive() bool {
	select {
	case <-h.ended:
		return false
	default:
		return true
	}
}
