package postadjudication

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/postgres"
)

// bulkChunk is how many items are begun before the outcomes of all of them are
// written: what may be in doubt when a process dies.
const bulkChunk = 250

// planWork is the work on one plan by the process that holds its lock. Nobody is kept
// from an item by the lock alone. What an action does to a letter is guarded by the
// head of its case as the plan has it, so that it is done at most once, and its first
// receipt, the first one after that head that decides anything, names the plan. An item whose guard does not hold
// was done by this plan if that receipt says so, and else moved by somebody else.
type planWork struct {
	*Service
	plan postgres.BulkPlan
	spec BulkSpec
}

// guardFor guards what is done with an item.
func (w *planWork) guardFor(i *postgres.BulkItem) *planGuard {
	return &planGuard{bulk: w.plan.ID, head: &i.Head, provenance: provenanceOf(w.plan)}
}

// workBulk works on a plan until it is done or ctx ends. Only then may items that were
// begun be left without an outcome, and they are the first ones without. It is errAttemptRunning
// when only items are left whose runs are being called.
func (s *Service) workBulk(ctx context.Context, b postgres.BulkPlan) error {
	spec, err := specOf(b)
	if err != nil {
		return err
	}
	w := planWork{s, b, spec}
	if b.State == BulkCancelled {
		return w.settleCancelled(context.WithoutCancel(ctx))
	}
	size, last, called := chunkSize(b.Throttle), int64(0), false
	for ctx.Err() == nil {
		begun := time.Now()
		items, err := s.journal.PendingBulkItems(ctx, b.ID, last, size)
		switch {
		case err != nil:
			return err
		case len(items) == 0 && called:
			return errAttemptRunning
		case len(items) == 0:
			return w.finishPlan(ctx)
		}
		last = items[len(items)-1].Position
		done := w.applyItems(ctx, items)
		called = called || len(done) < len(items) && ctx.Err() == nil
		if err := w.recordOutcomes(ctx, done); err != nil {
			return err
		}
		if wait := minBatchTime(len(done), b.Throttle) - time.Since(begun); wait > 0 && !sleepOr(ctx, wait, nil) {
			break
		}
	}
	return ctx.Err()
}

// chunkSize is how many items are begun at once: few when they must go slowly, so that
// they go evenly.
func chunkSize(throttle int) int {
	if throttle == 0 {
		return bulkChunk
	}
	return min(bulkChunk, max(1, throttle/4))
}

// minBatchTime is how long so many items must take.
func minBatchTime(items, throttle int) time.Duration {
	if throttle == 0 {
		return 0
	}
	return time.Duration(items) * time.Second / time.Duration(throttle)
}

// applyItems acts on items, so many at once as the plan says, and gives those that have an
// outcome. When ctx ends nothing more is begun.
func (w *planWork) applyItems(ctx context.Context, items []postgres.BulkItem) []postgres.BulkItem {
	w.applyInBatches(ctx, items)
	var wg sync.WaitGroup
	next := make(chan *postgres.BulkItem)
	for range min(w.plan.Parallel, len(items)) {
		wg.Go(func() {
			for i := range next {
				if ctx.Err() == nil {
					w.applyUntilOutcome(ctx, i)
				}
			}
		})
	}
	for n := range items {
		if items[n].Outcome == "" && ctx.Err() == nil {
			next <- &items[n]
		}
	}
	close(next)
	wg.Wait()
	return withOutcome(items)
}

func withOutcome(items []postgres.BulkItem) (out []postgres.BulkItem) {
	for _, i := range items {
		if i.Outcome != "" {
			out = append(out, i)
		}
	}
	return out
}

// How long an item is tried whose outcome can't be known, because the database is
// busy or can't be reached.
const (
	bulkTries    = 60
	bulkPauseMin = 20 * time.Millisecond
	bulkPauseMax = time.Second
)

// applyUntilOutcome acts on an item until it has an outcome, its run turns out to be called, or ctx ends.
// What was begun is not broken off when ctx ends, which would leave it in doubt.
func (w *planWork) applyUntilOutcome(ctx context.Context, i *postgres.BulkItem) {
	workCtx := context.WithoutCancel(ctx)
	for try, pause := 1, bulkPauseMin; ; try, pause = try+1, min(2*pause, bulkPauseMax) {
		err := recoverPanic(func() error { return w.applyItem(workCtx, i) })
		if err != nil && i.Outcome == "" {
			i.NewRun, err = w.diagnose(workCtx, i, err)
		}
		if errors.Is(err, errAttemptRunning) {
			return
		}
		if i.Outcome == "" {
			setOutcome(i, err)
		}
		if i.Outcome == "" && try == bulkTries {
			i.Outcome, i.Error = string(OutcomeFailed), cleanText(err.Error(), 1024)
		}
		if i.Outcome != "" || !sleepOr(ctx, pause, nil) {
			return
		}
	}
}

// recoverPanic does something whose panic, such as of an executor that is asked what
// became of a payment, is an error like another.
func recoverPanic(do func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &FieldError{Field: "executor", Problem: fmt.Sprint("panicked: ", p)}
		}
	}()
	return do()
}

// diagnose looks closer at an item that could not be done: whatever stopped it, when its
// case is not as planned, then either this plan has done it before, or it is stale.
func (w *planWork) diagnose(ctx context.Context, i *postgres.BulkItem, err error) (background.RunID, error) {
	if outcomeOf(err) == "" {
		return background.RunID{}, err
	}
	if !errors.Is(err, errPlanStale) {
		now, failed := w.journal.Snapshot(ctx, i.Run)
		if failed != nil || now.Case.Head == i.Head {
			return background.RunID{}, errors.Join(err, failed)
		}
	}
	return w.doneByPlan(ctx, i)
}

// recordOutcomes writes outcomes, however often that must be tried: until then they are in
// doubt.
func (w *planWork) recordOutcomes(ctx context.Context, items []postgres.BulkItem) error {
	if len(items) == 0 {
		return nil
	}
	for try, pause := 1, bulkPauseMin; ; try, pause = try+1, min(2*pause, bulkPauseMax) {
		err := w.journal.RecordBulkItems(ctx, w.plan.ID, items)
		if err == nil || try == bulkTries || !sleepOr(ctx, pause, nil) {
			return err
		}
	}
}

// finishPlan closes a plan of which nothing is left.
func (w *planWork) finishPlan(ctx context.Context) error {
	_, err := w.changeBulk(ctx, w.plan.Tenant, w.plan.ID, bulkActor, "every item has an outcome", func(b *postgres.BulkPlan, left bool) error {
		if b.State != BulkRunning || left {
			return postgres.ErrNoChange
		}
		b.State, b.EndedAt = BulkDone, w.now()
		return nil
	})
	return err
}

// settleCancelled finds what a process did for a plan and could not record before it died,
// when the plan was cancelled meanwhile.
func (w *planWork) settleCancelled(ctx context.Context) error {
	items, err := w.journal.PendingBulkItems(ctx, w.plan.ID, 0, bulkChunk)
	if err != nil {
		return err
	}
	for n := range items {
		made, err := w.doneByPlan(ctx, &items[n])
		switch {
		case err == nil:
			items[n].Outcome, items[n].NewRun = string(OutcomeDone), made
		case !errors.Is(err, errPlanStale) && !errors.Is(err, errContended):
			return err
		}
	}
	if err := w.recordOutcomes(ctx, withOutcome(items)); err != nil {
		return err
	}
	return w.journal.MarkBulkOutcomesKnown(ctx, w.plan.ID)
}
