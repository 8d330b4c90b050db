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
	bulkLook = time.Second            // how often it looks for plans to work on
	bulkBeat = 250 * time.Millisecond // how often it asks whether a plan still runs
)

// bulksAtOnce is how many plans a process works on at once. Each takes a connection
// from those of the sequencer, which must keep one.
const bulksAtOnce = 2

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
// found by the receipts: see bulkWork.
type bulkRunner struct {
	service *Service

	mu      sync.Mutex
	working map[uuid.UUID]bool
	waiting map[uuid.UUID]time.Time // plans that were left for runs that are being called: when
	next    chan struct{}           // closed when this process moves a plan
}

func newBulkRunner(s *Service) *bulkRunner {
	return &bulkRunner{service: s, working: map[uuid.UUID]bool{}, waiting: map[uuid.UUID]time.Time{}, next: make(chan struct{})}
}

// nudge tells that this process has moved a plan.
func (r *bulkRunner) nudge() {
	r.mu.Lock()
	defer r.mu.Unlock()
	close(r.next)
	r.next = make(chan struct{})
}

// moved is closed when this process moves a plan, from now on.
func (r *bulkRunner) moved() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.next
}

// run works until ctx ends, and what was begun has ended.
func (r *bulkRunner) run(ctx context.Context) {
	var all sync.WaitGroup
	defer all.Wait()
	failing := false
	for {
		moved := r.moved()
		due, err := r.service.journal.BulksToWork(ctx)
		if err != nil && !failing && ctx.Err() == nil {
			r.service.log.Error("bulk plans can't be looked for, trying on", zap.Error(err))
		}
		failing = err != nil
		for _, b := range r.inTurn(due) {
			if r.enter(b.ID) {
				all.Go(func() {
					defer r.leave(b.ID)
					r.take(ctx, b)
				})
			}
		}
		if !pass(ctx, bulkLook, moved) {
			return
		}
	}
}

// inTurn sorts the plans that are due: those that wait for calls behind the others, the one
// that was left longest ago first. It forgets plans that are not due.
func (r *bulkRunner) inTurn(due []postgres.Bulk) []postgres.Bulk {
	r.mu.Lock()
	defer r.mu.Unlock()
	left := make(map[uuid.UUID]time.Time, len(r.waiting))
	for _, b := range due {
		if at, waits := r.waiting[b.ID]; waits {
			left[b.ID] = at
		}
	}
	r.waiting = left
	slices.SortStableFunc(due, func(a, b postgres.Bulk) int { return left[a.ID].Compare(left[b.ID]) })
	return due
}

// waits reports whether the plan was left for runs that are being called.
func (r *bulkRunner) waits(id uuid.UUID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, waits := r.waiting[id]
	return waits
}

// wait notes that the plan is left for runs that are being called.
func (r *bulkRunner) wait(id uuid.UUID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.waiting[id] = time.Now()
}

func (r *bulkRunner) enter(id uuid.UUID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.working[id] || len(r.working) == bulksAtOnce {
		return false
	}
	r.working[id] = true
	return true
}

func (r *bulkRunner) leave(id uuid.UUID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.working, id)
}

// take works on a plan, if no other process does.
func (r *bulkRunner) take(ctx context.Context, b postgres.Bulk) {
	log := r.service.log.With(zap.Stringer("bulk", b.ID))
	lock, err := r.service.journal.LockBulk(ctx, b)
	if err != nil && ctx.Err() == nil {
		log.Warn("a bulk plan can't be taken up, trying on", zap.Error(err))
	}
	if err != nil || lock == nil {
		return
	}
	if b.Incident != "" && !r.waits(b.ID) { // then the alarm was raised
		r.service.brokeGlass(b)
	}
	working, stop := context.WithCancel(ctx)
	var watching sync.WaitGroup
	watching.Go(func() { defer stop(); r.watch(working, lock) })
	err = r.service.workBulk(working, b)
	stop()
	watching.Wait()
	switch {
	case err == nil, errors.Is(err, context.Canceled):
	case errors.Is(err, errBeingCalled):
		r.wait(b.ID)
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
		moved := r.moved()
		state, err := lock.State(ctx)
		if err != nil || state != BulkRunning {
			return
		}
		if !pass(ctx, bulkBeat, moved) {
			return
		}
	}
}
