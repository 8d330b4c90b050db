package postadjudication

import (
	"context"
	"errors"
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
// The lock goes with the process. What was acted on and not recorded when it dies is
// found by the receipts: see bulkWork.
type bulkRunner struct {
	service *Service

	mu      sync.Mutex
	working map[uuid.UUID]bool
	next    chan struct{} // closed when this process moves a plan
}

func newBulkRunner(s *Service) *bulkRunner {
	return &bulkRunner{service: s, working: map[uuid.UUID]bool{}, next: make(chan struct{})}
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
		for _, b := range due {
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
	if b.Incident != "" {
		r.service.brokeGlass(b)
	}
	working, stop := context.WithCancel(ctx)
	var watching sync.WaitGroup
	watching.Go(func() { defer stop(); r.watch(working, lock) })
	err = r.service.workBulk(working, b)
	stop()
	watching.Wait()
	if err != nil && !errors.Is(err, context.Canceled) {
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
