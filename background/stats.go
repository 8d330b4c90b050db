package background

import (
	"context"
	"time"
)

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
