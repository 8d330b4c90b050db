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

// bulkWork is the work on one plan by the process that holds its lock. Nobody is kept
// from an item by the lock alone. What an action does to a letter is guarded by the
// head of its case as the plan has it, so that it is done at most once, and its first
// receipt, the first one after that head that decides anything, names the plan. An item whose guard does not hold
// was done by this plan if that receipt says so, and else moved by somebody else.
type bulkWork struct {
	*Service
	plan  postgres.Bulk
	asked BulkAsked
}

// as guards what is done with an item.
func (w *bulkWork) as(i *postgres.BulkItem) *asPlanned {
	return &asPlanned{bulk: w.plan.ID, head: &i.Head, marks: marksOf(w.plan)}
}

// workBulk works on a plan until it is done or ctx ends. Only then may items that were
// begun be left without an outcome, and they are the first ones without. It is errBeingCalled
// when only items are left whose runs are being called.
func (s *Service) workBulk(ctx context.Context, b postgres.Bulk) error {
	asked, err := askedOf(b)
	if err != nil {
		return err
	}
	w := bulkWork{s, b, asked}
	if b.State == BulkCancelled {
		return w.settle(context.WithoutCancel(ctx))
	}
	size, last, called := chunkSize(b.Throttle), int64(0), false
	for ctx.Err() == nil {
		begun := time.Now()
		items, err := s.journal.BulkItemsLeft(ctx, b.ID, last, size)
		switch {
		case err != nil:
			return err
		case len(items) == 0 && called:
			return errBeingCalled
		case len(items) == 0:
			return w.end(ctx)
		}
		last = items[len(items)-1].Position
		done := w.act(ctx, items)
		called = called || len(done) < len(items) && ctx.Err() == nil
		if err := w.record(ctx, done); err != nil {
			return err
		}
		if wait := pace(len(done), b.Throttle) - time.Since(begun); wait > 0 && !pass(ctx, wait, nil) {
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

// pace is how long so many items must take.
func pace(items, throttle int) time.Duration {
	if throttle == 0 {
		return 0
	}
	return time.Duration(items) * time.Second / time.Duration(throttle)
}

// act acts on items, so many at once as the plan says, and gives those that have an
// outcome. When ctx ends nothing more is begun.
func (w *bulkWork) act(ctx context.Context, items []postgres.BulkItem) []postgres.BulkItem {
	w.inCompany(ctx, items)
	var all sync.WaitGroup
	next := make(chan *postgres.BulkItem)
	for range min(w.plan.Parallel, len(items)) {
		all.Go(func() {
			for i := range next {
				if ctx.Err() == nil {
					w.one(ctx, i)
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
	all.Wait()
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

// one acts on an item until it has an outcome, its run turns out to be called, or ctx ends.
// What was begun is not broken off when ctx ends, which would leave it in doubt.
func (w *bulkWork) one(ctx context.Context, i *postgres.BulkItem) {
	begun := context.WithoutCancel(ctx)
	for try, pause := 1, bulkPauseMin; ; try, pause = try+1, min(2*pause, bulkPauseMax) {
		err := survived(func() error { return w.do(begun, i) })
		if err != nil && i.Outcome == "" {
			i.NewRun, err = w.why(begun, i, err)
		}
		if errors.Is(err, errBeingCalled) {
			return
		}
		if i.Outcome == "" {
			ended(i, err)
		}
		if i.Outcome == "" && try == bulkTries {
			i.Outcome, i.Error = string(OutcomeFailed), clean(err.Error(), 1024)
		}
		if i.Outcome != "" || !pass(ctx, pause, nil) {
			return
		}
	}
}

// survived does something whose panic, such as of an executor that is asked what
// became of a payment, is an error like another.
func survived(do func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &FieldError{Field: "executor", Problem: fmt.Sprint("panicked: ", p)}
		}
	}()
	return do()
}

// why looks closer at an item that could not be done: whatever stopped it, when its
// case is not as planned, then either this plan has done it before, or it is stale.
func (w *bulkWork) why(ctx context.Context, i *postgres.BulkItem, err error) (background.RunID, error) {
	if outcomeOf(err) == "" {
		return background.RunID{}, err
	}
	if !errors.Is(err, errPlanStale) {
		now, failed := w.journal.Snapshot(ctx, i.Run)
		if failed != nil || now.Case.Head == i.Head {
			return background.RunID{}, errors.Join(err, failed)
		}
	}
	return w.whose(ctx, i)
}

// record writes outcomes, however often that must be tried: until then they are in
// doubt.
func (w *bulkWork) record(ctx context.Context, items []postgres.BulkItem) error {
	if len(items) == 0 {
		return nil
	}
	for try, pause := 1, bulkPauseMin; ; try, pause = try+1, min(2*pause, bulkPauseMax) {
		err := w.journal.RecordBulkItems(ctx, w.plan.ID, items)
		if err == nil || try == bulkTries || !pass(ctx, pause, nil) {
			return err
		}
	}
}

// end closes a plan of which nothing is left.
func (w *bulkWork) end(ctx context.Context) error {
	_, err := w.moveBulk(ctx, w.plan.Tenant, w.plan.ID, bulkActor, "every item has an outcome", func(b *postgres.Bulk, left bool) error {
		if b.State != BulkRunning || left {
			return postgres.ErrNoChange
		}
		b.State, b.EndedAt = BulkDone, w.now()
		return nil
	})
	return err
}

// settle finds what a process did for a plan and could not record before it died,
// when the plan was cancelled meanwhile.
func (w *bulkWork) settle(ctx context.Context) error {
	items, err := w.journal.BulkItemsLeft(ctx, w.plan.ID, 0, bulkChunk)
	if err != nil {
		return err
	}
	for n := range items {
		made, err := w.whose(ctx, &items[n])
		switch {
		case err == nil:
			items[n].Outcome, items[n].NewRun = string(OutcomeDone), made
		case !errors.Is(err, errPlanStale) && !errors.Is(err, errLeft):
			return err
		}
	}
	if err := w.record(ctx, withOutcome(items)); err != nil {
		return err
	}
	return w.journal.SettleBulk(ctx, w.plan.ID)
}
