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

// openLimit is for how long a worker may take to open when everything is well.
const openLimit = 30 * time.Second

// fleet is the workers. A seat stays, the processes on it come and go.
type fleet struct {
	log     io.Writer
	mu      sync.Mutex
	seats   []*seat
	crashes []string // of workers that ended as nobody made them end
}

type seat struct {
	settings worker.Settings
	hand     *hand
	frozen   bool
	expected bool // to stand still by itself
	lives    int
}

func openFleet(n int, log io.Writer, s worker.Settings) (*fleet, error) {
	f := &fleet{log: log}
	for i := range n {
		s.Name = fmt.Sprintf("worker-%d", i)
		f.seats = append(f.seats, &seat{settings: s})
	}
	return f, f.heal()
}

// start puts a new process on a seat where none lives.
func (f *fleet) start(i int, failpoint string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.startLocked(f.seats[i], failpoint)
}

func (f *fleet) startLocked(s *seat, failpoint string) error {
	f.bury(s)
	settings := s.settings
	settings.Failpoint = failpoint
	settings.Name = fmt.Sprintf("%s.%d", settings.Name, s.lives)
	h, err := launch(settings, f.log)
	if err != nil {
		return err
	}
	s.hand, s.frozen = h, false
	s.lives++
	return nil
}

// bury looks how the process on a seat ended: killed, or gracefully. One that could
// not even open found its servers gone.
func (f *fleet) bury(s *seat) {
	if s.hand == nil || s.hand.alive() {
		return
	}
	code := s.hand.process.Code()
	if s.hand.opened() && code != 0 && code != 128+int(syscall.SIGKILL) {
		f.crashes = append(f.crashes, fmt.Sprintf("%s.%d ended by itself with code %d", s.settings.Name, s.lives-1, code))
	}
}

func (f *fleet) buryAll() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range f.seats {
		f.bury(s)
	}
}

// heal wakes the frozen and replaces the dead, until all are open.
func (f *fleet) heal() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range f.seats {
		if s.hand != nil && s.frozen {
			if err := s.hand.process.Signal(syscall.SIGCONT); err != nil {
				return err
			}
			s.frozen = false
		}
		if s.hand != nil && s.hand.alive() {
			continue
		}
		if err := f.startLocked(s, ""); err != nil {
			return err
		}
	}
	deadline := time.After(openLimit)
	for _, s := range f.seats {
		for {
			select {
			case <-s.hand.ready:
			case <-s.hand.gone: // its servers were not there yet
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
	h := f.seats[i].hand
	f.mu.Unlock()
	return h.kill()
}

func (f *fleet) kill() error {
	var errs []error
	for i := range f.seats {
		if f.seats[i].hand != nil {
			errs = append(errs, f.killOne(i))
		}
	}
	return errors.Join(errs...)
}

// freeze stops a seat's process where it is. It leaves one alone that will stand still by itself:
// stopped before it came there and woken, that would stand still once more, and nobody would
// wake it.
func (f *fleet) freeze(i int) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.seats[i].expected {
		return nil
	}
	f.seats[i].frozen = true
	return f.seats[i].hand.process.Signal(syscall.SIGSTOP)
}

// expectFrozen notes that a seat's process will stand still by itself. It is told nothing.
func (f *fleet) expectFrozen(i int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.seats[i].frozen, f.seats[i].expected = true, true
}

// thaw wakes the process on a seat that was expected to stand still, or kills it when it
// does not.
func (f *fleet) thaw(i int) error {
	f.mu.Lock()
	s := f.seats[i]
	h, expected := s.hand, s.expected
	s.expected = false
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

// change changes what the next process on a seat is started with.
func (f *fleet) change(i int, change func(*worker.Settings)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(&f.seats[i].settings)
}

// settings are what the next process on a seat is started with.
func (f *fleet) settings(i int) worker.Settings {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.seats[i].settings
}

// leave ends a seat's process gracefully and waits for it.
func (f *fleet) leave(i int, limit time.Duration) error {
	f.mu.Lock()
	h := f.seats[i].hand
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

// any picks a worker that can be told something; nil when there is none.
func (f *fleet) any(rng *rand.Rand) *hand {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, i := range rng.Perm(len(f.seats)) {
		if s := f.seats[i]; s.hand.alive() && !s.frozen {
			if s.hand.opened() {
				return s.hand
			}
		}
	}
	return nil
}

// at is the process on a seat.
func (f *fleet) at(i int) *hand {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.seats[i].hand
}

func (h *hand) opened() bool {
	select {
	case <-h.ready:
		return true
	default:
		return false
	}
}

func (h *hand) alive() bool {
	select {
	case <-h.gone:
		return false
	default:
		return true
	}
}
