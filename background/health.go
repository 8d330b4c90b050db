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

// errUnavailable gives a delivery back to asynq because the journal cannot be written: another
// process may reach it.
var errUnavailable = errors.New("background: the journal cannot be reached")

// Unready is a reason why a process does no work.
type Unready struct {
	Reason string // names no server, address or tenant: safe to show to anybody
	Err    error  // the full error
}

// Error implements error.
func (u *Unready) Error() string { return u.Err.Error() }

// Unwrap returns the full error.
func (u *Unready) Unwrap() error { return u.Err }

func unready(reason string, err error) error {
	if err == nil {
		return nil
	}
	return &Unready{reason, err}
}

// health records whether the journal can be written. While a single transition of this process
// waits to be written, nothing new is claimed.
type health struct {
	log      *zap.Logger
	failures atomic.Uint64 // failed writes since the start

	mu            sync.Mutex
	failingWrites int // transitions that failed to be written and are retried
	cause         error
	restored      chan struct{} // closed while failingWrites is 0
}

func newHealth(log *zap.Logger) *health {
	h := &health{log: log, restored: make(chan struct{})}
	close(h.restored)
	return h
}

// onWriteFailed records a failed write; first reports whether it is the transition's first.
func (h *health) onWriteFailed(first bool, tr *Transition, cause error) {
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
		h.log.Error("journal cannot be written, claiming is paused",
			zap.Stringer("run", tr.Run.ID), zap.String("event", string(tr.Subtype)), zap.Error(cause))
	}
}

// onWriteAnswered records that a transition that had failed was answered, or was given up.
func (h *health) onWriteAnswered() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.failingWrites--
	if h.failingWrites == 0 {
		close(h.restored)
		h.log.Info("journal can be written again")
	}
}

func (h *health) err() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.failingWrites == 0 {
		return nil
	}
	return unready("the journal cannot be written", fmt.Errorf("background: %d transitions wait to be written: %w", h.failingWrites, h.cause))
}

func (h *health) writable() <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.restored
}

// Ping checks the connection to Redis.
func (m *Manager) Ping(ctx context.Context) error { return m.redis.Ping(ctx).Err() }

// Healthy returns nil while everything that this process knows is recorded, claims can be
// written, and notifications can be sent and received. Otherwise each of the joined errors is
// an *Unready.
func (m *Manager) Healthy() error {
	if !m.started.Load() {
		return m.health.err()
	}
	return errors.Join(m.claimGate.serversErr(), m.claimGate.claimErr(), m.liveness.err(time.Now()))
}

var errNoSession = unready("this process cannot send heartbeats", errors.New("background: this process cannot send heartbeats; nothing is claimed"))

// unreadyAfter is how long something may fail before this process is not ready. It is longer
// than a broken connection takes to be made again.
const unreadyAfter = 3 * time.Second

// liveness records whether notifications can be sent and received, and whether heartbeats are
// answered. It uses what the process does anyway: its sweeps write to Redis, its servers poll
// for tasks, and its heartbeats write to the journal.
type liveness struct {
	mu                            sync.Mutex
	notifying, polling, heartbeat activity
}

// activity is the state of something that is done repeatedly.
type activity struct {
	failingSince time.Time // zero while it succeeds
	cause        error
}

func (p *activity) note(err error, now time.Time) {
	switch {
	case err == nil:
		*p = activity{}
	case p.failingSince.IsZero():
		p.failingSince, p.cause = now, err
	default:
		p.cause = err
	}
}

func (p *activity) unreadyErr(reason string, now time.Time) error {
	if p.failingSince.IsZero() || now.Sub(p.failingSince) < unreadyAfter {
		return nil
	}
	return unready(reason, fmt.Errorf("background: %s since %s: %w", reason, p.failingSince.UTC().Format(time.RFC3339), p.cause))
}

func (m *liveness) onSweep(err error) { m.note(&m.notifying, err) }
func (m *liveness) onPoll(err error)  { m.note(&m.polling, err) }
func (m *liveness) onBeat(err error)  { m.note(&m.heartbeat, err) }

func (m *liveness) note(p *activity, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err != nil || !p.failingSince.IsZero() {
		p.note(err, time.Now())
	}
}

func (m *liveness) err(now time.Time) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return errors.Join(
		m.notifying.unreadyErr("no notification can be sent", now), m.polling.unreadyErr("no queue can be polled", now), m.heartbeat.unreadyErr("no heartbeat can be written", now),
	)
}

// Stats are counters of one process.
type Stats struct {
	Running              int    // running handler calls
	Waiting              int    // runs waiting in place for their next attempt
	Abandoned            int    // outstanding calls of this process
	WriteFailures        uint64 // failed tries to write a transition, since the start
	StaleClaims          uint64 // claims that became stale before their call, since the start
	BreakersNotClosed    int    // circuit breakers that are not closed
	PausedDeliveries     uint64 // deliveries acknowledged because a circuit breaker was open, since the start
	StalledBreakers      int    // circuit breakers that pause runs and have no new case to probe
	StalledRuns          int    // runs paused by those
	NotificationsResent  uint64 // notifications resent, since the start
	ArchivedTasksRemoved uint64 // tasks of dead letters removed from asynq's archive, since the start
	ArchiveScans         uint64 // scans of asynq's archive, since the start
	Unrecordable         uint64 // outcomes that could not be recorded as they were, since the start
	PausedQueues         int    // queues paused in asynq, as last seen

	ClockOffset time.Duration // how much later the journal's clock is than this machine's; 0 before it was measured
	ClockError  time.Duration // how much what this process takes for that clock may differ from it: half the shortest round trip of the last measurements
}

// Stats returns the counters.
func (m *Manager) Stats() Stats {
	stalled := m.breakerLoop.stalledBreakers()
	runs := 0
	for _, b := range stalled {
		runs += b.Paused
	}
	var offset time.Duration
	if known := m.clock.offset(); known != nil {
		offset = *known
	}
	return Stats{
		ClockOffset:          offset,
		ClockError:           m.clock.maxError(),
		StalledBreakers:      len(stalled),
		StalledRuns:          runs,
		Running:              int(m.caller.running.Load()),
		Waiting:              int(m.waiting.Load()),
		Abandoned:            int(m.caller.outstanding.Load()),
		WriteFailures:        m.health.failures.Load(),
		StaleClaims:          m.claimBackoff.staleClaims.Load(),
		BreakersNotClosed:    len(*m.breakers.current.Load()),
		PausedDeliveries:     m.breakers.pausedDeliveries.Load(),
		NotificationsResent:  m.sweeper.resent.Load(),
		ArchivedTasksRemoved: m.archive.removed.Load(),
		ArchiveScans:         m.archive.scans.Load(),
		Unrecordable:         m.recorder.unrecordable.Load(),
		PausedQueues:         len(*m.archive.pausedQueues.Load()),
	}
}

// QueueIsPaused reads from Redis whether a queue is paused in asynq.
func (m *Manager) QueueIsPaused(ctx context.Context, queue string) (bool, error) {
	n, err := m.redis.Exists(ctx, queueKey(queue, "paused")).Result()
	return n > 0, err
}

// PausedQueues returns the queues that are paused in asynq, as last seen. None of their runs is
// delivered meanwhile.
func (m *Manager) PausedQueues() []string { return *m.archive.pausedQueues.Load() }
