package background

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"
)

const (
	sweepPage = 500
	// A calm sweep only makes sure; when bells are missing, or Redis was away or
	// emptied, it goes through as much as a heal within seconds asks for.
	shortScanPages = 2
	fullScanPages  = 40
	// deadWorkerTimeout is more than asynq needs to give a dead worker's task to another.
	deadWorkerTimeout = 3 * time.Minute
	resendConcurrency = 32
)

// sweeper rings again for live runs that are due and have no bell in Redis,
// whatever became of it: never rung, flushed, evicted, deleted or archived.
type sweeper struct {
	m                 *Manager
	resent            atomic.Uint64
	fullScanRequested atomic.Bool // asked to be thorough, from the start
	deliveriesLost    atomic.Bool // tasks were lost from sight since the last look

	// Of the sweeping goroutine alone:
	generation       string // of Redis as last seen
	cursor           Cursor // where the last sweep stopped
	fullScan         bool   // until the end of the list is reached
	lostDeliveries   lostDeliveries
	checkOrphans     bool      // until then too, stranded tasks are looked for
	orphansCheckedAt time.Time // when that was begun last
	failing          bool      // the last sweep failed
	observations     taskObservations

	lostLocallyAt atomic.Pointer[time.Time] // when this process lost tasks from sight last
}

func newSweeper(m *Manager) *sweeper { return &sweeper{m: m} }

// requestFullScan makes the next sweep a thorough one.
func (s *sweeper) requestFullScan() { s.fullScanRequested.Store(true) }

// reportLost tells that there may be ghosts now, and some more before long.
func (s *sweeper) reportLost() { s.deliveriesLost.Store(true) }

// lostLocally is bereave for tasks that this process itself lost from sight.
func (s *sweeper) lostLocally() {
	now := time.Now()
	s.lostLocallyAt.Store(&now)
	s.reportLost()
}

// mayHaveLost reports whether ghosts that this process left may still have to be looked for.
func (s *sweeper) mayHaveLost() bool {
	at := s.lostLocallyAt.Load()
	return at != nil && time.Since(*at) < lostDeliveryDelays[len(lostDeliveryDelays)-1]+lostDeliveryPasses*s.m.cfg.SweepEvery
}

// run sweeps until ctx ends.
func (s *sweeper) run(ctx context.Context) {
	tick := time.NewTicker(s.m.cfg.SweepEvery)
	defer tick.Stop()
	for {
		err := s.sweep(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil && !s.failing:
			s.m.log.Error("bells cannot be checked", zap.Error(err))
		case err == nil && s.failing:
			s.m.log.Info("bells can be checked again")
		}
		s.m.liveness.onSweep(err)
		if s.failing = err != nil; s.failing {
			s.requestFullScan()
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// sweep goes through some pages of due runs, from where the last one stopped. Runs
// due for less than a sweep's time are left alone: most are on their way.
func (s *sweeper) sweep(ctx context.Context) error {
	dataLost, err := s.checkGeneration(ctx)
	if err != nil {
		return err
	}
	if s.m.redisOwner.err() != nil { // what it has not is no reason to notify again
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

// withoutNotification returns the runs that no bell rings for.
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
		return nil, fmt.Errorf("background: look for bells: %w", err)
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
		s.m.former.serve(r)
		state, err := states[i].Result()
		if err != nil && !errors.Is(err, redis.Nil) {
			return nil, fmt.Errorf("background: look for the bell of run %s: %w", r.ID, err)
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

// tampering is what somebody may have done to the task of a run.
type tampering struct {
	run  Run
	kind string
}

// reportTampering notices what was done to tasks, unless Redis has lost its memory meanwhile. It
// returns before their bells are raised.
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
				s.m.verifyTampering(ctx, tampered[i].run, tampered[i].kind)
			}
		})
	}
	all.Wait()
	return nil
}

// willBeDelivered reports whether a task in this state of asynq will still be delivered. An
// active task whose run stays due for long belongs to a worker that is gone, and any
// may when there are ghosts.
func willBeDelivered(state string, overdue time.Duration, deliveriesLost bool) bool {
	switch state {
	case "pending", "scheduled", "retry":
		return true
	case "active":
		return overdue < deadWorkerTimeout && !deliveriesLost
	}
	return false // absent, archived or completed
}

// resend gives runs a new bell, so that nothing that is left of the old one is in
// the way.
func (s *sweeper) resend(ctx context.Context, runs []Run) error {
	if len(runs) == 0 {
		return nil
	}
	renewed, err := s.m.cfg.Store.AdvanceNotifications(ctx, runs)
	if err != nil {
		return fmt.Errorf("background: raise bells: %w", err)
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

// orphanedAfter is more than asynq is ever asked to hold the task of a due run back,
// and how often stranded tasks are looked for: where clocks differ by more, the same
// run is found again and again.
const orphanedAfter = 2 * time.Minute

// orphanedTasks tells of which runs the task says that it waits, and stands where nothing
// brings it: its queue is gone, or it waits for a time that the clock of another
// machine named. Of a queue that was lost and has new tasks it tells when those are
// through. Only runs are looked at that have been due for long: most are on their way.
// A task that is moved between two looks may be taken for stranded, and is rung twice.
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
		return nil, fmt.Errorf("background: look for stranded tasks: %w", err)
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

// lostDeliveries are tasks that asynq shows as active and that no process holds: those of a
// process that was lost, also of runs that it had not claimed yet or waited with, and
// those that were taken from their queue by a question whose answer was lost.
//
// It tells when active tasks are to be taken for ghosts. A second bell for a run that
// a process holds does no harm, so too often is better than too late.
type lostDeliveries struct {
	times  []time.Time // when to look, in order
	passes int         // for as many times through all runs, an active task may be a ghost
}

// lostDeliveryDelays are how long after tasks were lost from sight they are looked for. A
// question that was given up may wait in a stalled network, and take its task when
// that stall ends.
var lostDeliveryDelays = []time.Duration{0, 10 * time.Second, 30 * time.Second}

// lostDeliveryPasses covers runs that were due too short a time before to be looked at in
// the first round.
const lostDeliveryPasses = 3

// schedule tells that tasks were lost from sight at this time. What was lost before and is
// still to be looked for is looked for later than it would have been, but not never.
func (g *lostDeliveries) schedule(at time.Time) {
	g.times = g.times[:0]
	for _, after := range lostDeliveryDelays {
		g.times = append(g.times, at.Add(after))
	}
}

// due reports whether it is time to begin to look, from the first run on. A look
// that is going on goes on from where it is, for longer: else one that is feared all
// the time would never come to the last run.
func (g *lostDeliveries) due(now time.Time) bool {
	wasActive := g.active()
	for len(g.times) > 0 && !now.Before(g.times[0]) {
		g.times, g.passes = g.times[1:], lostDeliveryPasses
	}
	return g.active() && !wasActive
}

// active reports whether an active task may be a ghost now.
func (g *lostDeliveries) active() bool { return g.passes > 0 }

// passDone tells that all runs have been looked at once more.
func (g *lostDeliveries) passDone() { g.passes = max(0, g.passes-1) }
