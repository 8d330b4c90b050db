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

// unreadyAfter is for how long something may fail before this process is not ready: what a
// connection that broke takes to be made anew is less.
const unreadyAfter = 3 * time.Second

// liveness knows whether notifications can be sent and taken, and the process shows that it
// lives, from what it does anyway: its sweeps write to Redis, its servers ask for tasks,
// and its beats are writes of the journal.
type liveness struct {
	mu                            sync.Mutex
	notifying, polling, heartbeat activity
}

// activity is how something that is done again and again goes.
type activity struct {
	failingSince time.Time // since when; zero while it goes well
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
		m.notifying.unreadyErr("no notification can be sent", now), m.polling.unreadyErr("no notification can be taken", now), m.heartbeat.unreadyErr("no heartbeat can be written", now),
	)
}

// Stats are counts of one process.
type Stats struct {
	Running              int    // handlers being called
	Waiting              int    // runs waiting in place for their next attempt
	Abandoned            int    // calls that outlived their attempt and have not answered yet
	WriteFailures        uint64 // failed tries to write a move, since the start
	StaleClaims          uint64 // claims that were too old to be called on, since the start
	BreakersNotClosed    int    // circuit breakers that are not closed
	PausedDeliveries     uint64 // deliveries let go of because a circuit breaker was open, since the start
	StalledBreakers      int    // circuit breakers behind which runs wait, and no new case comes to ask
	StalledRuns          int    // runs that wait behind those
	NotificationsResent  uint64 // bells rung again by the sweeper, since the start
	ArchivedTasksRemoved uint64 // mirrors of dead letters removed from asynq's archive, since the start
	ArchiveScans         uint64 // times that asynq's archive was looked through, since the start
	Unrecordable         uint64 // outcomes that could not be recorded as they were, since the start
	PausedQueues         int    // queues that somebody paused in asynq, as last seen

	ClockOffset time.Duration // how much later the ledger's clock is than this machine's; 0 before it was measured
}

// Stats counts now.
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
		StalledBreakers:      len(stalled),
		StalledRuns:          runs,
		Running:              int(m.running.Load()),
		Waiting:              int(m.waiting.Load()),
		Abandoned:            int(m.abandoned.Load()),
		WriteFailures:        m.health.failures.Load(),
		StaleClaims:          m.claimBackoff.staleClaims.Load(),
		BreakersNotClosed:    len(*m.breakers.current.Load()),
		PausedDeliveries:     m.breakers.pausedDeliveries.Load(),
		NotificationsResent:  m.sweeper.resent.Load(),
		ArchivedTasksRemoved: m.archive.removed.Load(),
		ArchiveScans:         m.archive.scans.Load(),
		Unrecordable:         m.unrecordable.Load(),
		PausedQueues:         len(*m.archive.pausedQueues.Load()),
	}
}

// QueueIsPaused asks Redis whether somebody paused a queue in asynq.
func (m *Manager) QueueIsPaused(ctx context.Context, queue string) (bool, error) {
	n, err := m.redis.Exists(ctx, queueKey(queue, "paused")).Result()
	return n > 0, err
}

// PausedQueues names the queues that somebody paused in asynq, as last seen. None of their
// runs is delivered until they go on.
func (m *Manager) PausedQueues() []string { return *m.archive.pausedQueues.Load() }
