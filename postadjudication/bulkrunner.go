package postadjudication

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"go.uber.org/zap"

	"github.com/recourse-dev/recourse/internal/postgres"
)

// Times of the runner of bulk plans.
const (
	bulkPollEvery  = time.Second            // how often it looks for plans to work on
	bulkWatchEvery = 250 * time.Millisecond // how often it asks whether a plan still runs
)

// maxRunningBulks is how many plans a process works on at once. Each takes a connection
// from those of the sequencer, which must keep one.
const maxRunningBulks = 2

// bulkActor is whom the receipt of a plan's end names.
const bulkActor = "system:bulk"

// bulkRunner works on plans that run, as long as no other process does. Many plans
// wait in the order of their numbers.
//
//	look ─▶ lock ─▶ items left ─▶ act on each ─▶ record ─▶ items left ... ─▶ done
//
// A plan of which only items are left whose runs are being called is left, and taken up again
// after the others.
//
// The lock goes with the process. What was acted on and not recorded when it dies is
// found by the receipts: see planWork.
type bulkRunner struct {
	service *Service

	mu       sync.Mutex
	running  map[uuid.UUID]bool
	deferred map[uuid.UUID]time.Time // plans that were left for runs that are being called: when
	changed  chan struct{}           // closed when this process moves a plan
}

func newBulkRunner(s *Service) *bulkRunner {
	return &bulkRunner{service: s, running: map[uuid.UUID]bool{}, deferred: map[uuid.UUID]time.Time{}, changed: make(chan struct{})}
}

// notifyChanged tells that this process has moved a plan.
func (r *bulkRunner) notifyChanged() {
	r.mu.Lock()
	defer r.mu.Unlock()
	close(r.changed)
	r.changed = make(chan struct{})
}

// changes is closed when this process moves a plan, from now on.
func (r *bulkRunner) changes() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.changed
}

// run works until ctx ends, and what was begun has ended.
func (r *bulkRunner) run(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	failing := false
	for {
		changed := r.changes()
		due, err := r.service.journal.UnfinishedBulkPlans(ctx)
		if err != nil && !failing && ctx.Err() == nil {
			r.service.log.Error("bulk plans can't be looked for, trying on", zap.Error(err))
		}
		failing = err != nil
		for _, b := range r.ordered(due) {
			if r.acquire(b.ID) {
				wg.Go(func() {
					defer r.release(b.ID)
					r.runPlan(ctx, b)
				})
			}
		}
		if !sleepOr(ctx, bulkPollEvery, changed) {
			return
		}
	}
}

// ordered sorts the plans that are due: those that wait for calls behind the others, the one
// that was left longest ago first. It forgets plans that are not due.
func (r *bulkRunner) ordered(due []postgres.BulkPlan) []postgres.BulkPlan {
	r.mu.Lock()
	defer r.mu.Unlock()
	deferred := make(map[uuid.UUID]time.Time, len(r.deferred))
	for _, b := range due {
		if at, ok := r.deferred[b.ID]; ok {
			deferred[b.ID] = at
		}
	}
	r.deferred = deferred
	slices.SortStableFunc(due, func(a, b postgres.BulkPlan) int { return deferred[a.ID].Compare(deferred[b.ID]) })
	return due
}

// isDeferred reports whether the plan was left for runs that are being called.
func (r *bulkRunner) isDeferred(id uuid.UUID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, ok := r.deferred[id]
	return ok
}

// deferPlan notes that the plan is left for runs that are being called.
func (r *bulkRunner) deferPlan(id uuid.UUID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.deferred[id] = time.Now()
}

func (r *bulkRunner) acquire(id uuid.UUID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.running[id] || len(r.running) == maxRunningBulks {
		return false
	}
	r.running[id] = true
	return true
}

func (r *bulkRunner) release(id uuid.UUID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.running, id)
}

// runPlan works on a plan, if no other process does.
func (r *bulkRunner) runPlan(ctx context.Context, b postgres.BulkPlan) {
	log := r.service.log.With(zap.Stringer("bulk", b.ID))
	lock, err := r.service.journal.LockBulkPlan(ctx, b)
	if err != nil && ctx.Err() == nil {
		log.Warn("a bulk plan can't be taken up, trying on", zap.Error(err))
	}
	if err != nil || lock == nil {
		return
	}
	if b.Incident != "" && !r.isDeferred(b.ID) { // then the alarm was raised
		r.service.alarmBreakGlass(b)
	}
	workCtx, stop := context.WithCancel(ctx)
	var watcher sync.WaitGroup
	watcher.Go(func() { defer stop(); r.watch(workCtx, lock) })
	err = r.service.workBulk(workCtx, b)
	stop()
	watcher.Wait()
	switch {
	case err == nil, errors.Is(err, context.Canceled):
	case errors.Is(err, errAttemptRunning):
		r.deferPlan(b.ID)
	default:
		log.Warn("a bulk plan was left, somebody takes it up again", zap.Error(err))
	}
	if err := lock.Release(ctx); err != nil {
		log.Warn("the lock of a bulk plan did not end well; the server ends it when it stands still", zap.Error(err))
	}
}

// watch returns when the plan does not run any more, or is not this process' to work
// on. A cancelled plan is looked at until that is settled.
func (r *bulkRunner) watch(ctx context.Context, lock *postgres.BulkLock) {
	for {
		changed := r.changes()
		state, err := lock.State(ctx)
		if err != nil || state != BulkRunning {
			return
		}
		if !sleepOr(ctx, bulkWatchEvery, changed) {
			return
		}
	}
}
