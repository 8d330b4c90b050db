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
	calmPages     = 2
	thoroughPages = 40
	// stuckAfter is more than asynq needs to give a dead worker's task to another.
	stuckAfter = 3 * time.Minute
	ringers    = 32
)

// sweeper rings again for live runs that are due and have no bell in Redis,
// whatever became of it: never rung, flushed, evicted, deleted or archived.
type sweeper struct {
	m       *Manager
	rung    atomic.Uint64
	hurried atomic.Bool // asked to be thorough, from the start
	bereft  atomic.Bool // tasks were lost from sight since the last look

	// Of the sweeping goroutine alone:
	memory   string // of Redis as last seen
	place    Cursor // where the last sweep stopped
	thorough bool   // until the end of the list is reached
	ghosts   ghosts
	strands  bool      // until then too, stranded tasks are looked for
	searched time.Time // when that was begun last
	ailing   bool      // the last sweep failed
	sights   sightings

	mislaidAt atomic.Pointer[time.Time] // when this process lost tasks from sight last
}

func newSweeper(m *Manager) *sweeper { return &sweeper{m: m} }

// hurry makes the next sweep a thorough one.
func (s *sweeper) hurry() { s.hurried.Store(true) }

// bereave tells that there may be ghosts now, and some more before long.
func (s *sweeper) bereave() { s.bereft.Store(true) }

// mislaid is bereave for tasks that this process itself lost from sight.
func (s *sweeper) mislaid() {
	now := time.Now()
	s.mislaidAt.Store(&now)
	s.bereave()
}

// misses reports whether ghosts that this process left may still have to be looked for.
func (s *sweeper) misses() bool {
	at := s.mislaidAt.Load()
	return at != nil && time.Since(*at) < ghostLooks[len(ghostLooks)-1]+ghostRounds*s.m.cfg.SweepEvery
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
		case err != nil && !s.ailing:
			s.m.log.Error("bells cannot be checked", zap.Error(err))
		case err == nil && s.ailing:
			s.m.log.Info("bells can be checked again")
		}
		s.m.moving.swept(err)
		if s.ailing = err != nil; s.ailing {
			s.hurry()
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
	emptied, err := s.lookAtMarker(ctx)
	if err != nil {
		return err
	}
	if s.m.redisOwner.err() != nil { // what it has not is no reason to notify again
		s.hurry()
		return nil
	}
	if s.bereft.Swap(false) {
		s.ghosts.fear(time.Now())
	}
	risen := s.ghosts.rise(time.Now())
	if s.hurried.Swap(false) || emptied || risen {
		s.place, s.thorough = Cursor{}, true
	}
	s.thorough = s.thorough || s.ghosts.walk()
	if s.place == (Cursor{}) {
		if s.strands = time.Since(s.searched) >= strandedAfter; s.strands {
			s.searched = time.Now()
		}
	}
	s.sights.turn(emptied)
	now := s.m.now()
	for page := 0; page < calmPages || s.thorough && page < thoroughPages; page++ {
		due, err := s.m.cfg.Ledger.Waiting(ctx, s.place, now.Add(-s.m.cfg.SweepEvery), sweepPage)
		if err != nil {
			return fmt.Errorf("background: list waiting runs: %w", err)
		}
		missing, err := s.silent(ctx, due, now)
		if err != nil {
			return err
		}
		if err := s.ring(ctx, missing); err != nil {
			return err
		}
		s.thorough = s.thorough || len(missing) > 0
		if len(due) < sweepPage {
			s.place, s.thorough = Cursor{}, false
			s.ghosts.round()
			return nil
		}
		last := due[len(due)-1]
		s.place = Cursor{DueAt: last.DueAt, ID: last.ID}
	}
	return nil
}

// silent returns the runs that no bell rings for.
func (s *sweeper) silent(ctx context.Context, due []Run, now time.Time) ([]Run, error) {
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
	var stranded map[int]bool
	if s.strands {
		var err error
		if stranded, err = s.stranded(ctx, due, states, now); err != nil {
			return nil, err
		}
	}
	var silent []Run
	var touched []touch
	for i, r := range due {
		s.m.former.meet(r)
		state, err := states[i].Result()
		if err != nil && !errors.Is(err, redis.Nil) {
			return nil, fmt.Errorf("background: look for the bell of run %s: %w", r.ID, err)
		}
		if what := s.sights.saw(r, state, now.Sub(r.DueAt)); what != "" && r.State.Waiting() {
			touched = append(touched, touch{r, what})
		}
		if r.State.Waiting() && (stranded[i] || !rings(state, now.Sub(r.DueAt), s.ghosts.walk())) && !s.m.engaged.has(r.ID) {
			silent = append(silent, r)
		}
	}
	return silent, s.tell(ctx, touched)
}

// touch is what somebody may have done to the task of a run.
type touch struct {
	run  Run
	what string
}

// tell notices what was done to tasks, unless Redis has lost its memory meanwhile. It
// returns before their bells are raised.
func (s *sweeper) tell(ctx context.Context, touched []touch) error {
	if len(touched) == 0 {
		return nil
	}
	if same, err := s.remembers(ctx); err != nil || !same {
		return err
	}
	var all sync.WaitGroup
	var next atomic.Int64
	for range min(ringers, len(touched)) {
		all.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(touched)); i = next.Add(1) - 1 {
				s.m.confirm(ctx, touched[i].run, touched[i].what)
			}
		})
	}
	all.Wait()
	return nil
}

// rings reports whether a task in this state of asynq will still be delivered. An
// active task whose run stays due for long belongs to a worker that is gone, and any
// may when there are ghosts.
func rings(state string, overdue time.Duration, ghosts bool) bool {
	switch state {
	case "pending", "scheduled", "retry":
		return true
	case "active":
		return overdue < stuckAfter && !ghosts
	}
	return false // absent, archived or completed
}

// ring gives runs a new bell, so that nothing that is left of the old one is in
// the way.
func (s *sweeper) ring(ctx context.Context, runs []Run) error {
	if len(runs) == 0 {
		return nil
	}
	raised, err := s.m.cfg.Ledger.Ring(ctx, runs)
	if err != nil {
		return fmt.Errorf("background: raise bells: %w", err)
	}
	var (
		all    sync.WaitGroup
		failed atomic.Pointer[error]
		next   atomic.Int64
	)
	for range min(ringers, len(raised)) {
		all.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(raised)); i = next.Add(1) - 1 {
				if err := s.m.Bell(ctx, raised[i]); err != nil {
					failed.Store(&err)
					return
				}
				s.rung.Add(1)
			}
		})
	}
	all.Wait()
	if err := failed.Load(); err != nil {
		return *err
	}
	return nil
}
