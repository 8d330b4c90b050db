package background

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
)

// errUnavailable hands a delivery back to asynq because the journal can't be
// written: another process may reach it.
var errUnavailable = errors.New("background: the journal cannot be reached")

// Unready is why a process does no work.
type Unready struct {
	Reason string // names no server, address or tenant: whoever asks may read it
	Err    error  // says it in full
}

// Error implements error.
func (u *Unready) Error() string { return u.Err.Error() }

// Unwrap gives the error in full.
func (u *Unready) Unwrap() error { return u.Err }

func unready(reason string, err error) error {
	if err == nil {
		return nil
	}
	return &Unready{reason, err}
}

// health knows whether evidence can be written. While a single move of this
// process is waiting to be written, nothing new is claimed.
type health struct {
	log      *zap.Logger
	failures atomic.Uint64 // writes that failed, in all

	mu            sync.Mutex
	failingWrites int // moves that failed to be written and are tried again
	cause         error
	restored      chan struct{} // closed while troubled is 0
}

func newHealth(log *zap.Logger) *health {
	h := &health{log: log, restored: make(chan struct{})}
	close(h.restored)
	return h
}

// onWriteFailed notes a write that failed; first says whether it is the move's first.
func (h *health) onWriteFailed(first bool, tr Transition, cause error) {
	h.failures.Add(1)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.cause = cause
	if !first {
		return
	}
	h.failingWrites++
	if h.failingWrites == 1 {
		h.restored = make(chan struct{})
		h.log.Error("evidence cannot be written, nothing new is claimed until it can",
			zap.Stringer("run", tr.Run.ID), zap.String("fact", string(tr.Event)), zap.Error(cause))
	}
}

// onWriteAnswered notes that a move that had failed was answered, or was given up.
func (h *health) onWriteAnswered() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.failingWrites--
	if h.failingWrites == 0 {
		close(h.restored)
		h.log.Info("evidence can be written again")
	}
}

func (h *health) err() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.failingWrites == 0 {
		return nil
	}
	return unready("evidence can't be written", fmt.Errorf("background: %d moves wait to be written: %w", h.failingWrites, h.cause))
}

func (h *health) writable() <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.restored
}

// Ping asks Redis for an answer.
func (m *Manager) Ping(ctx context.Context) error { return m.redis.Ping(ctx).Err() }

// Healthy is nil while all that this process knows is on record, and work can move: a
// claim can be written, and notifications be sent and taken. Otherwise it says why not: each of
// the errors that are joined is an *Unready.
func (m *Manager) Healthy() error {
	if !m.started.Load() {
		return m.health.err()
	}
	return errors.Join(m.serversErr(), m.claimErr(), m.liveness.err(time.Now()))
}

// claimErr says why nothing new is claimed though it may be: the journal refuses.
func (m *Manager) claimErr() error {
	if _, _, alive := m.session.current(); m.started.Load() && !alive {
		return errors.Join(errNoSession, m.health.err())
	}
	if m.started.Load() {
		return errors.Join(m.clock.err(), m.health.err())
	}
	return m.health.err()
}

var errNoSession = unready("this process can't show that it lives", errors.New("background: this process can't show that it lives; nothing is claimed"))
