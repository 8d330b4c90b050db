package bulk

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"go.uber.org/zap"

	"github.com/recourse-dev/recourse/internal/every"
	"github.com/recourse-dev/recourse/postadjudication/internal/casework"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/plans"
)

// Times of the runner of bulk plans.
const (
	pollEvery  = time.Second            // interval of the search for plans to run
	watchEvery = 250 * time.Millisecond // interval of the check whether a plan still runs
)

// maxRunning is how many plans a process runs at once. Each takes a connection from the
// pool of the sequencer, which must keep one.
const maxRunning = 2

// systemActor is the actor in the receipt of a plan's end.
const systemActor = "system:bulk"

// runner runs plans that no other process runs. Plans run in the order of their numbers.
//
//	look ─▶ lock ─▶ items left ─▶ act on each ─▶ record ─▶ items left ... ─▶ done
//
// A plan is deferred behind the others while all its remaining items have runs that are being
// called.
//
// The lock ends with the process. The receipts show which items a process that died had acted
// on without recording their outcomes: see planWork.
type runner struct {
	plans *Planner

	mu       sync.Mutex
	running  map[uuid.UUID]bool
	deferred map[uuid.UUID]time.Time // when each plan was deferred for runs that are being called
	changed  chan struct{}           // closed when this process changes a plan
}

func newRunner(p *Planner) *runner {
	return &runner{plans: p, running: map[uuid.UUID]bool{}, deferred: map[uuid.UUID]time.Time{}, changed: make(chan struct{})}
}

// notifyChanged wakes the runner and its watchers: this process changed a plan.
func (r *runner) notifyChanged() {
	r.mu.Lock()
	defer r.mu.Unlock()
	close(r.changed)
	r.changed = make(chan struct{})
}

// changes returns a channel that is closed at the next notifyChanged.
func (r *runner) changes() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.changed
}

// run runs plans until ctx is done, then waits for the work in progress.
func (r *runner) run(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	failures := every.Failures{Log: r.plans.log, Failed: "could not search for bulk plans, retrying", Again: "bulk plans are searched for again"}
	for {
		changed := r.changes()
		due, err := r.plans.stored.Unfinished(ctx)
		if !failures.Note(ctx, err) {
			return
		}
		for _, b := range r.ordered(due) {
			if r.acquire(b.ID) {
				wg.Go(func() {
					defer r.release(b.ID)
					r.runPlan(ctx, b)
				})
			}
		}
		if !casework.Sleep(ctx, pollEvery, changed) {
			return
		}
	}
}

// ordered sorts due plans: deferred ones last, of these the one deferred longest ago first. It
// forgets deferred plans that are not due.
func (r *runner) ordered(due []plans.Plan) []plans.Plan {
	r.mu.Lock()
	defer r.mu.Unlock()
	deferred := make(map[uuid.UUID]time.Time, len(r.deferred))
	for _, b := range due {
		if at, ok := r.deferred[b.ID]; ok {
			deferred[b.ID] = at
		}
	}
	r.deferred = deferred
	slices.SortStableFunc(due, func(a, b plans.Plan) int { return deferred[a.ID].Compare(deferred[b.ID]) })
	return due
}

// isDeferred reports whether the plan was deferred for runs that are being called.
func (r *runner) isDeferred(id uuid.UUID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, ok := r.deferred[id]
	return ok
}

// deferPlan records that the plan is deferred for runs that are being called.
func (r *runner) deferPlan(id uuid.UUID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.deferred[id] = time.Now()
}

func (r *runner) acquire(id uuid.UUID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.running[id] || len(r.running) == maxRunning {
		return false
	}
	r.running[id] = true
	return true
}

func (r *runner) release(id uuid.UUID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.running, id)
}

// runPlan runs a plan unless another process holds its lock, or it changed since it was read.
func (r *runner) runPlan(ctx context.Context, b plans.Plan) {
	log := r.plans.log.With(zap.Stringer("bulk", b.ID))
	lock, err := r.plans.stored.Lock(ctx, b)
	if err != nil && ctx.Err() == nil {
		log.Warn("could not lock a bulk plan, retrying", zap.Error(err))
	}
	if err != nil || lock == nil {
		return
	}
	defer r.unlock(ctx, b, lock)
	if state, err := lock.State(ctx); err != nil || state != b.State {
		return // the next round reads it again
	}
	err = r.workLocked(ctx, b, lock)
	switch {
	case err == nil, errors.Is(err, context.Canceled):
	case errors.Is(err, errAttemptRunning):
		r.deferPlan(b.ID)
	default:
		log.Warn("stopped work on a bulk plan; a process will resume it", zap.Error(err))
	}
}

// workLocked works on a plan whose lock this process holds, until it is done, ctx is done, the plan
// is paused or cancelled, or the lock is lost.
func (r *runner) workLocked(ctx context.Context, b plans.Plan, lock *plans.Lock) error {
	if b.Incident != "" && !r.isDeferred(b.ID) { // a deferred plan raised its alarm before
		r.plans.alarmBreakGlass(b)
	}
	workCtx, stop := context.WithCancel(ctx)
	var watcher sync.WaitGroup
	watcher.Go(func() { defer stop(); r.watch(workCtx, lock) })
	err := r.plans.work(workCtx, b)
	stop()
	watcher.Wait()
	return err
}

func (r *runner) unlock(ctx context.Context, b plans.Plan, lock *plans.Lock) {
	if err := lock.Release(ctx); err != nil {
		r.plans.log.Warn("could not release the lock of a bulk plan; the database ends it when its connection is idle", zap.Stringer("bulk", b.ID), zap.Error(err))
	}
}

// runHere runs a plan in this process: it takes the lock, calls start, works on the plan if it is
// running then, and releases the lock. It repeats that while the plan is running and nobody works on
// it: the lock was lost, runs are being called, or the work failed. It returns what start returned if
// another process works on the plan, and waits while another process has the lock and has not started
// the plan. start may resume a paused plan until this process worked on it: whoever pauses it then ends
// the work. pause is called if ctx ends after this process started the plan: before the lock is
// released if the plan is being worked on.
func (r *runner) runHere(ctx context.Context, b plans.Plan, start func(ctx context.Context, resume bool) (Plan, error), pause func(context.Context) (Plan, error)) (out Plan, err error) {
	for started := false; ; {
		changed := r.changes()
		now, locked, err := r.tryHere(ctx, b, func(ctx context.Context) (Plan, error) { return start(ctx, !started) }, pause)
		switch {
		case err != nil && (!started || !journal.IsUnavailable(err)):
			return now, err
		case err == nil && locked && now.State == Paused:
			return now, ctx.Err()
		case err == nil && locked && now.State != Running:
			return now, nil
		case err == nil && locked:
			out, started = now, true
		case err == nil:
			if b, err = r.plans.stored.Find(ctx, b.Tenant, b.ID); err == nil && b.State != Planned {
				return start(ctx, false)
			}
			if err != nil && !started {
				return Plan{}, err
			}
		}
		if casework.Sleep(ctx, pollEvery, changed) {
			continue
		}
		if !started {
			return out, ctx.Err()
		}
		paused, err := pause(context.WithoutCancel(ctx))
		if err != nil {
			return out, errors.Join(ctx.Err(), err)
		}
		return paused, ctx.Err()
	}
}

// tryHere is one round of runHere. locked reports whether this process had the lock. A plan on which
// the work failed is returned as running.
func (r *runner) tryHere(ctx context.Context, b plans.Plan, start, pause func(context.Context) (Plan, error)) (out Plan, locked bool, err error) {
	if !r.acquire(b.ID) {
		return out, false, nil
	}
	defer r.release(b.ID)
	lock, err := r.plans.stored.Lock(ctx, b)
	if err != nil || lock == nil {
		return out, false, err
	}
	defer r.unlock(ctx, b, lock)
	uninterrupted := context.WithoutCancel(ctx) // no other process may take the plan that is being started or paused
	stop := r.keep(uninterrupted, lock)
	out, err = start(uninterrupted)
	stop()
	if err != nil || out.State != Running {
		return out, true, err
	}
	if b, err = r.plans.stored.Find(uninterrupted, b.Tenant, b.ID); err != nil {
		return out, true, err
	}
	switch err = r.workLocked(ctx, b, lock); {
	case err == nil, errors.Is(err, errAttemptRunning):
	case ctx.Err() != nil:
		if out, err := pause(uninterrupted); err == nil {
			return out, true, nil
		}
	case !errors.Is(err, context.Canceled):
		r.plans.log.Warn("stopped work on a bulk plan, retrying", zap.Stringer("bulk", b.ID), zap.Error(err))
	}
	if b, err = r.plans.stored.Find(uninterrupted, b.Tenant, b.ID); err != nil {
		return out, true, err
	}
	out, err = r.plans.withCounts(uninterrupted, b)
	return out, true, err
}

// keep uses the connection of a lock until stop is called: the database ends one that is idle for
// SequencerIdle, and to start a plan may take longer.
func (r *runner) keep(ctx context.Context, lock *plans.Lock) (stop func()) {
	done := make(chan struct{})
	var keeper sync.WaitGroup
	keeper.Go(func() {
		for casework.Sleep(ctx, watchEvery, done) {
			select {
			case <-done:
				return
			default:
			}
			if _, err := lock.State(ctx); err != nil {
				return // the lock is lost: the watcher of the work finds that
			}
		}
	})
	return func() { close(done); keeper.Wait() }
}

// watch returns when the plan no longer runs or this process lost its lock. It also returns at
// once for a cancelled plan, whose outcomes work settles without it.
func (r *runner) watch(ctx context.Context, lock *plans.Lock) {
	for {
		changed := r.changes()
		state, err := lock.State(ctx)
		if err != nil || state != Running {
			return
		}
		if !casework.Sleep(ctx, watchEvery, changed) {
			return
		}
	}
}
