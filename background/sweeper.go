package background

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/recourse-dev/recourse/internal/every"
)

const (
	sweepPage = 500
	// A short scan reads only the oldest due runs. When notifications are missing, or Redis was
	// unreachable or emptied, a full scan reads as many as a recovery within seconds needs.
	shortScanPages = 2
	fullScanPages  = 40
	// deadWorkerTimeout is longer than asynq needs to give a dead worker's task to another.
	deadWorkerTimeout = 3 * time.Minute
	resendConcurrency = 32
)

// sweeper notifies again for live runs that are due and have no notification in Redis, whatever
// the cause: never sent, flushed, evicted, deleted or archived.
type sweeper struct {
	m                 *Manager
	resent            atomic.Uint64
	fullScanRequested atomic.Bool // the next sweep starts a full scan
	deliveriesLost    atomic.Bool // deliveries were lost since the last sweep

	// Used by the goroutine of run only:
	generation       string // of Redis as last read
	cursor           Cursor // where the last sweep stopped
	fullScan         bool   // until the end of the list
	lostDeliveries   lostDeliveries
	checkOrphans     bool      // until the end of the list, orphaned tasks are searched too
	orphansCheckedAt time.Time // when the last such pass began
	observations     taskObservations

	lostLocallyAt atomic.Pointer[time.Time] // when this process last lost a delivery
}

func newSweeper(m *Manager) *sweeper { return &sweeper{m: m} }

// requestFullScan makes the next sweep start a full scan.
func (s *sweeper) requestFullScan() { s.fullScanRequested.Store(true) }

// reportLost reports that deliveries may have been lost now, and that more may follow shortly.
func (s *sweeper) reportLost() { s.deliveriesLost.Store(true) }

// lostLocally is reportLost for deliveries that this process lost itself.
func (s *sweeper) lostLocally() {
	now := time.Now()
	s.lostLocallyAt.Store(&now)
	s.reportLost()
}

// mayHaveLost reports whether lost deliveries of this process may still have to be looked for.
func (s *sweeper) mayHaveLost() bool {
	at := s.lostLocallyAt.Load()
	return at != nil && time.Since(*at) < lostDeliveryDelays[len(lostDeliveryDelays)-1]+lostDeliveryPasses*s.m.cfg.SweepEvery
}

// run sweeps until ctx ends.
func (s *sweeper) run(ctx context.Context) {
	failures := every.Failures{Log: s.m.log, Failed: "sweep failed", Again: "sweep succeeded again"}
	every.Loop{Interval: s.m.cfg.SweepEvery, Failures: failures}.Run(ctx, func(ctx context.Context) error {
		err := s.sweep(ctx)
		if ctx.Err() == nil {
			s.m.liveness.onSweep(err)
		}
		if err != nil {
			s.requestFullScan()
		}
		return err
	})
}

// sweep reads some pages of due runs, from where the last sweep stopped. It skips runs that
// have been due for less than SweepEvery, because most of those are being delivered.
func (s *sweeper) sweep(ctx context.Context) error {
	dataLost, err := s.checkGeneration(ctx)
	if err != nil {
		return err
	}
	if s.m.redisOwner.err() != nil { // what is missing in this Redis is no reason to notify again
		s.requestFullScan()
		return nil
	}
	if s.deliveriesLost.Swap(false) {
		s.lostDeliveries.schedule(time.Now())
	}
	lossDue := s.lostDeliveries.due(time.Now())
	if s.fullScanRequested.Swap(false) || dataLost || lossDue {
		s.cursor, s.fullScan = Cursor{}, true
	}
	s.fullScan = s.fullScan || s.lostDeliveries.active()
	if s.cursor == (Cursor{}) {
		if s.checkOrphans = time.Since(s.orphansCheckedAt) >= orphanedAfter; s.checkOrphans {
			s.orphansCheckedAt = time.Now()
		}
	}
	s.observations.rotate(dataLost)
	now := s.m.now()
	for page := 0; page < shortScanPages || s.fullScan && page < fullScanPages; page++ {
		due, err := s.m.cfg.Store.DueRuns(ctx, s.cursor, now.Add(-s.m.cfg.SweepEvery), sweepPage)
		if err != nil {
			return fmt.Errorf("background: list waiting runs: %w", err)
		}
		missing, err := s.withoutNotification(ctx, due, now)
		if err != nil {
			return err
		}
		if err := s.resend(ctx, missing); err != nil {
			return err
		}
		s.fullScan = s.fullScan || len(missing) > 0
		if len(due) < sweepPage {
			s.cursor, s.fullScan = Cursor{}, false
			s.lostDeliveries.passDone()
			return nil
		}
		last := due[len(due)-1]
		s.cursor = Cursor{DueAt: last.DueAt, ID: last.ID}
	}
	return nil
}

// withoutNotification returns the runs that have no notification.
func (s *sweeper) withoutNotification(ctx context.Context, due []Run, now time.Time) ([]Run, error) {
	if len(due) == 0 {
		return nil, nil
	}
	pipe := s.m.redis.Pipeline()
	states := make([]*redis.StringCmd, len(due))
	for i, r := range due {
		states[i] = pipe.HGet(ctx, taskKey(r.Queue, taskID(r)), "state")
	}
	if _, err := pipe.Exec(ctx); err != nil && !errors.Is(err, redis.Nil) {
		return nil, fmt.Errorf("background: read tasks: %w", err)
	}
	var orphaned map[int]bool
	if s.checkOrphans {
		var err error
		if orphaned, err = s.orphanedTasks(ctx, due, states, now); err != nil {
			return nil, err
		}
	}
	var missing []Run
	var tampered []tampering
	for i, r := range due {
		s.m.queues.serve(r)
		state, err := states[i].Result()
		if err != nil && !errors.Is(err, redis.Nil) {
			return nil, fmt.Errorf("background: read the task of run %s: %w", r.ID, err)
		}
		if kind := s.observations.record(r, state, now.Sub(r.DueAt)); kind != "" && r.State.Waiting() {
			tampered = append(tampered, tampering{r, kind})
		}
		if r.State.Waiting() && (orphaned[i] || !willBeDelivered(state, now.Sub(r.DueAt), s.lostDeliveries.active())) && !s.m.inFlight.has(r.ID) {
			missing = append(missing, r)
		}
	}
	return missing, s.reportTampering(ctx, tampered)
}

// tampering is a possible manipulation of a run's task.
type tampering struct {
	run  Run
	kind string
}

// reportTampering verifies and records tampering, unless Redis has lost its data meanwhile. It
// returns before the runs' notification numbers are raised.
func (s *sweeper) reportTampering(ctx context.Context, tampered []tampering) error {
	if len(tampered) == 0 {
		return nil
	}
	if same, err := s.sameGeneration(ctx); err != nil || !same {
		return err
	}
	var all sync.WaitGroup
	var next atomic.Int64
	for range min(resendConcurrency, len(tampered)) {
		all.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(tampered)); i = next.Add(1) - 1 {
				s.m.tampering.verify(ctx, tampered[i].run, tampered[i].kind)
			}
		})
	}
	all.Wait()
	return nil
}

// willBeDelivered reports whether a task in this state of asynq will still be delivered. An
// active task whose run stays due for long belongs to a dead worker. With deliveriesLost, any
// active task may be a lost delivery.
func willBeDelivered(state string, overdue time.Duration, deliveriesLost bool) bool {
	switch state {
	case "pending", "scheduled", "retry":
		return true
	case "active":
		return overdue < deadWorkerTimeout && !deliveriesLost
	}
	return false // absent, archived or completed
}

// resend sends notifications with a new number, so that what is left of the old task does not
// matter.
func (s *sweeper) resend(ctx context.Context, runs []Run) error {
	if len(runs) == 0 {
		return nil
	}
	renewed, err := s.m.cfg.Store.AdvanceNotifications(ctx, runs)
	if err != nil {
		return fmt.Errorf("background: advance notifications: %w", err)
	}
	var (
		all    sync.WaitGroup
		failed atomic.Pointer[error]
		next   atomic.Int64
	)
	for range min(resendConcurrency, len(renewed)) {
		all.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(renewed)); i = next.Add(1) - 1 {
				if err := s.m.Notify(ctx, renewed[i]); err != nil {
					failed.Store(&err)
					return
				}
				s.resent.Add(1)
			}
		})
	}
	all.Wait()
	if err := failed.Load(); err != nil {
		return *err
	}
	return nil
}

// orphanedAfter is longer than asynq is ever asked to delay the task of a due run. It is also
// the interval between checks for orphaned tasks: where clocks differ by more, the same run is
// found again and again.
const orphanedAfter = 2 * time.Minute

// orphanedTasks returns the runs whose task claims to be queued but is where no server dequeues
// it: its queue is gone, or it waits for a time set by another machine's clock. If a queue was
// lost and has new tasks, its orphans are found once it is empty. Only runs that have been due
// for long are checked, because most others are being delivered. A task that moves between the
// two reads may count as orphaned; its run is then notified twice.
func (s *sweeper) orphanedTasks(ctx context.Context, due []Run, states []*redis.StringCmd, now time.Time) (map[int]bool, error) {
	pipe := s.m.redis.Pipeline()
	queued, held := map[string]*redis.IntCmd{}, map[int]*redis.FloatCmd{}
	for i, r := range due {
		if now.Sub(r.DueAt) < deadWorkerTimeout {
			continue
		}
		switch state := states[i].Val(); state {
		case "pending":
			if key := queueKey(r.Queue, state); queued[key] == nil {
				queued[key] = pipe.LLen(ctx, key)
			}
		case "retry", "scheduled":
			held[i] = pipe.ZScore(ctx, queueKey(r.Queue, state), taskID(r))
		}
	}
	if pipe.Len() == 0 {
		return nil, nil
	}
	answers, err := pipe.Exec(ctx)
	for _, a := range answers {
		if err == nil || errors.Is(err, redis.Nil) {
			err = a.Err()
		}
	}
	if err != nil && !errors.Is(err, redis.Nil) {
		return nil, fmt.Errorf("background: read orphaned tasks: %w", err)
	}
	orphaned := map[int]bool{}
	for i, r := range due {
		if at := held[i]; at != nil {
			orphaned[i] = at.Err() != nil || time.Unix(int64(at.Val()), 0).Sub(now) > orphanedAfter
		} else if n := queued[queueKey(r.Queue, "pending")]; n != nil && states[i].Val() == "pending" {
			orphaned[i] = n.Val() == 0 && now.Sub(r.DueAt) >= deadWorkerTimeout
		}
	}
	return orphaned, nil
}

// lostDeliveries schedules the search for tasks that asynq shows as active and that no process
// holds: those of a lost process, including runs that it had not claimed yet or waited for, and
// those that a dequeue took whose reply was lost.
//
// It decides when active tasks count as lost. A second notification of a run in flight does no
// harm, so the search may run too often but not too late.
type lostDeliveries struct {
	times  []time.Time // start times of the next searches, in order
	passes int         // remaining passes in which an active task counts as lost
}

// lostDeliveryDelays are the delays between a loss and its searches. A dequeue whose caller
// gave up may be held in a stalled network and take its task when the stall ends.
var lostDeliveryDelays = []time.Duration{0, 10 * time.Second, 30 * time.Second}

// lostDeliveryPasses covers runs that were due too recently to be checked in the first pass.
const lostDeliveryPasses = 3

// schedule resets the schedule for a loss at this time: an earlier loss is searched for later,
// but still searched for.
func (g *lostDeliveries) schedule(at time.Time) {
	g.times = g.times[:0]
	for _, after := range lostDeliveryDelays {
		g.times = append(g.times, at.Add(after))
	}
}

// due reports whether a search is to start from the first run. A search that is running
// continues from its position, for longer: if each new loss restarted it, it might never reach
// the last run.
func (g *lostDeliveries) due(now time.Time) bool {
	wasActive := g.active()
	for len(g.times) > 0 && !now.Before(g.times[0]) {
		g.times, g.passes = g.times[1:], lostDeliveryPasses
	}
	return g.active() && !wasActive
}

// active reports whether an active task may be a lost delivery now.
func (g *lostDeliveries) active() bool { return g.passes > 0 }

// passDone records that all runs have been checked once more.
func (g *lostDeliveries) passDone() { g.passes = max(0, g.passes-1) }
