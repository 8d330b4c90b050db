package postadjudication

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"go.uber.org/zap"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/postgres"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/retrypolicy"
)

// bulkChunk is how many items are started before their outcomes are recorded: at most so many
// outcomes are in doubt when a process dies.
const bulkChunk = 250

// planWork is the work on one plan by the process that holds its lock. The lock alone does not
// exclude others from an item. Each change of a letter is guarded by the head of its case as
// planned, so that it happens at most once, and its receipt, the first after that head that
// decides anything, names the plan. If the guard of an item fails, this plan did the item if
// that receipt names it; otherwise somebody else changed it.
type planWork struct {
	*Service
	plan postgres.BulkPlan
	spec BulkSpec
}

// guardFor returns the guard of an item's changes.
func (w *planWork) guardFor(i *postgres.BulkItem) *planGuard {
	return &planGuard{bulk: w.plan.ID, head: &i.Head, provenance: provenanceOf(w.plan)}
}

// workBulk works on a plan until it is done or ctx is done. Only if ctx is done, items that
// were started may be left without an outcome; they are the first of those without. It returns
// errAttemptRunning if the runs of all remaining items are being called.
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
		items, err := s.journal.Plans.PendingItems(ctx, b.ID, last, size)
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

// chunkSize returns how many items are started at once: few if throttled, so that they are
// spread evenly.
func chunkSize(throttle int) int {
	if throttle == 0 {
		return bulkChunk
	}
	return min(bulkChunk, max(1, throttle/4))
}

// minBatchTime returns the minimum time for a number of items.
func minBatchTime(items, throttle int) time.Duration {
	if throttle == 0 {
		return 0
	}
	return time.Duration(items) * time.Second / time.Duration(throttle)
}

// applyItems acts on items, as many at once as the plan says, and returns those that have an
// outcome. Once ctx is done it starts no further item.
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

// How often and at which pauses an item is retried while its outcome is unknown, because the
// database is busy or unreachable.
const (
	bulkTries    = 60
	bulkPauseMin = 20 * time.Millisecond
	bulkPauseMax = time.Second
)

// applyUntilOutcome acts on an item until it has an outcome, its run is being called, or ctx is
// done. It does not interrupt a started try when ctx is done, since that would leave its
// outcome in doubt.
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

// recoverPanic calls do and returns its panic, such as of an executor's lookup, as an error.
func recoverPanic(do func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &FieldError{Field: "executor", Problem: fmt.Sprint("panicked: ", p)}
		}
	}()
	return do()
}

// diagnose examines a failed item. If its case is not as planned, then either this plan did it
// before, or it is stale, whatever the error was.
func (w *planWork) diagnose(ctx context.Context, i *postgres.BulkItem, err error) (background.RunID, error) {
	if outcomeOf(err) == "" {
		return background.RunID{}, err
	}
	if !errors.Is(err, errPlanStale) {
		now, failed := w.journal.Cases.Snapshot(ctx, i.Run)
		if failed != nil || now.Case.Head == i.Head {
			return background.RunID{}, errors.Join(err, failed)
		}
	}
	return w.doneByPlan(ctx, i)
}

// recordOutcomes writes outcomes and retries on errors: until they are written, they are in
// doubt.
func (w *planWork) recordOutcomes(ctx context.Context, items []postgres.BulkItem) error {
	if len(items) == 0 {
		return nil
	}
	for try, pause := 1, bulkPauseMin; ; try, pause = try+1, min(2*pause, bulkPauseMax) {
		err := w.journal.Plans.RecordItems(ctx, w.plan.ID, items)
		if err == nil || try == bulkTries || !sleepOr(ctx, pause, nil) {
			return err
		}
	}
}

// finishPlan closes a plan that has no items left.
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

// settleCancelled records what a process did for a plan before it died without recording it, if
// the plan was cancelled meanwhile.
func (w *planWork) settleCancelled(ctx context.Context) error {
	items, err := w.journal.Plans.PendingItems(ctx, w.plan.ID, 0, bulkChunk)
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
	return w.journal.Plans.MarkOutcomesKnown(ctx, w.plan.ID)
}

const (
	// batchTries is how often letters are tried together. Then each is tried alone, so that one
	// failing letter does not block the others.
	batchTries = 3

	// parallelBatches is how many commits run concurrently: while one waits for the disk or
	// sends notifications, the other is prepared.
	parallelBatches = 2
)

// batchFunc acts on letters in one commit and sets the outcomes it knows.
type batchFunc func(ctx context.Context, wanted []*postgres.BulkItem) error

// batchAction returns the batch form of the plan's action; nil if the action takes letters one
// by one.
func (w *planWork) batchAction() batchFunc {
	switch BulkAction(w.plan.Action) {
	case BulkFork:
		return w.forkBatch
	case BulkPurge:
		return w.purgeItems
	}
	return nil
}

// errContended means that the letter was locked, or changed while it was read.
var errContended = errors.New("postadjudication: the letter is being changed by another process")

// applyInBatches acts on items in batches. Items that it leaves without an outcome are to be
// tried alone.
func (w *planWork) applyInBatches(ctx context.Context, items []postgres.BulkItem) {
	apply := w.batchAction()
	if apply == nil {
		return
	}
	for try, pause := 0, bulkPauseMin; try < batchTries; try, pause = try+1, 2*pause {
		var wanted []*postgres.BulkItem
		for n := range items {
			if items[n].Outcome == "" {
				wanted = append(wanted, &items[n])
			}
		}
		if len(wanted) == 0 || try > 0 && !sleepOr(ctx, pause, nil) {
			return
		}
		var wg sync.WaitGroup
		for part := range slices.Chunk(wanted, (len(wanted)+parallelBatches-1)/parallelBatches) {
			wg.Go(func() {
				if err := recoverPanic(func() error { return apply(context.WithoutCancel(ctx), part) }); err != nil {
					w.log.Warn("a batch of a bulk plan failed, retrying", zap.Stringer("bulk", w.plan.ID), zap.Error(err))
				}
			})
		}
		wg.Wait()
	}
}

// unchangedItems reads letters and returns those that are as planned. It sets the outcomes of
// the others.
func (w *planWork) unchangedItems(ctx context.Context, wanted []*postgres.BulkItem) ([]postgres.LetterRow, map[background.RunID]*postgres.BulkItem, error) {
	items := make(map[background.RunID]*postgres.BulkItem, len(wanted))
	ids := make([]background.RunID, len(wanted))
	for n, i := range wanted {
		items[i.Run], ids[n] = i, i.Run
	}
	found, err := w.journal.Letters.ByID(ctx, ids...)
	if err != nil {
		return nil, items, err
	}
	var unchanged []postgres.LetterRow
	for _, f := range found {
		i := items[f.Run.ID]
		if f.Case.Head == i.Head && f.Run.Tenant == w.plan.Tenant {
			unchanged = append(unchanged, f)
			continue
		}
		made, err := w.doneByPlan(ctx, i)
		if i.NewRun, i.Outcome = made, outcomeOf(err); errors.Is(err, errContended) && f.Case.Head == i.Head && f.Run.Tenant == w.plan.Tenant {
			unchanged = append(unchanged, f)
		}
	}
	return unchanged, items, nil
}

// forkBatch forks letters as Fork does, in one commit, and sends the notifications of the new
// runs.
func (w *planWork) forkBatch(ctx context.Context, wanted []*postgres.BulkItem) error {
	found, items, err := w.unchangedItems(ctx, wanted)
	if err != nil {
		return err
	}
	policy, err := w.forkPolicy()
	if err != nil {
		return err
	}
	setsPolicies, err := w.setsPolicies(ctx)
	if err != nil {
		return err
	}
	at := w.now()
	var changes []postgres.Change
	for _, s := range found {
		i := items[s.Run.ID]
		f := forkAction{
			ForkRequest: ForkRequest{Actor: w.plan.StartedBy, Reason: w.plan.Reason, Queue: w.spec.Queue, Policy: policy},
			run:         forkID(w.plan, i.Run), transition: newID(), at: at, family: w.settlements,
		}
		ch, err := w.forkChange(s, f, i)
		if err == nil {
			err = w.attemptsWithinReach(ctx, s.Run.Family, policy, setsPolicies)
		}
		if err != nil {
			if setOutcome(i, err); i.Outcome == "" { // a retry would fail the same way
				i.Outcome, i.Error = string(OutcomeFailed), cleanText(err.Error(), 1024)
			}
			continue
		}
		changes = append(changes, ch)
	}
	if len(changes) == 0 {
		return nil
	}
	written, err := w.journal.ApplyLetterBatch(ctx, changes)
	var created []*background.Run
	for n, ok := range written {
		if ok {
			i := items[changes[n].Before.Run.ID]
			i.Outcome, i.NewRun = string(OutcomeDone), changes[n].NewRun.ID
			created = append(created, changes[n].NewRun)
		}
	}
	w.notifyRuns(ctx, created...)
	return err
}

// forkChange returns the change that forks a letter, with the receipt of the plan's request.
func (w *planWork) forkChange(s postgres.LetterRow, f forkAction, i *postgres.BulkItem) (postgres.Change, error) {
	if err := w.ownQueue(s.Run.Family, f.Queue); err != nil {
		return postgres.Change{}, err
	}
	if gate := w.bulkForkGate(s, f.at); gate == GateHeld {
		return postgres.Change{}, refusedBy(gate, s.Snapshot)
	}
	return w.guardFor(i).guard(func(now *postgres.Snapshot) (postgres.Change, error) {
		ch, err := f.decide(now)
		if err != nil {
			return ch, err
		}
		asked := receipts.Draft{Run: i.Run, Subtype: receipts.Replayed, Actor: f.Actor, At: f.at, Payload: receipts.Payload{NewRun: f.run, Reason: f.Reason}}
		ch.Drafts = append([]receipts.Draft{asked}, ch.Drafts...)
		return ch, nil
	})(&s.Snapshot)
}

func (w *planWork) forkPolicy() (*retrypolicy.Policy, error) {
	if w.spec.Policy == "" {
		return nil, nil
	}
	p, err := retrypolicy.Parse(w.spec.Policy)
	return &p, err
}

// purgeItems purges letters as Purge does. They share one archive file and one commit.
func (w *planWork) purgeItems(ctx context.Context, wanted []*postgres.BulkItem) error {
	found, items, err := w.unchangedItems(ctx, wanted)
	if err != nil {
		return err
	}
	var due []postgres.LetterRow
	for _, f := range found {
		if gate := purgeGate(f); gate != "" {
			items[f.Run.ID].Outcome = outcomeOf(refusedBy(gate, f.Snapshot))
			continue
		}
		due = append(due, f)
	}
	at := w.now()
	done, err := w.purgeLetters(ctx, due, at, func(f postgres.LetterRow, archive string) receipts.Draft {
		p := receipts.Payload{Reason: w.plan.Reason, Archive: archive, DeadLetteredAt: f.Run.DeadAt}
		w.guardFor(items[f.Run.ID]).stamp(&p)
		return receipts.Draft{Run: f.Run.ID, Subtype: receipts.Purged, Actor: w.plan.StartedBy, At: at, Payload: p}
	})
	for _, r := range done {
		items[r.ID].Outcome = string(OutcomeDone)
	}
	return err
}

// applyItem applies the plan's action to one letter in the name of who started the plan, with
// the decisions and gates of the Service method.
func (w *planWork) applyItem(ctx context.Context, i *postgres.BulkItem) (err error) {
	guard := w.guardFor(i)
	actor, reason, tenant := w.plan.StartedBy, w.plan.Reason, w.plan.Tenant
	if apply := w.batchAction(); apply != nil {
		if err = apply(ctx, []*postgres.BulkItem{i}); err == nil && i.Outcome == "" {
			err = errContended
		}
		return err
	}
	switch BulkAction(w.plan.Action) {
	case BulkReconcile:
		_, err = w.reconcileByLookup(ctx, tenant, i.Run, actor, guard)
	case BulkMark:
		_, err = w.annotate(ctx, tenant, i.Run, guard.guardAnnotation(MarkRequest{actor, reason, w.spec.Reprocess, w.spec.Review}.setMarks(w.now())))
	case BulkHold:
		_, err = w.annotate(ctx, tenant, i.Run, guard.guardAnnotation(HoldRequest{actor, reason}.placeHold(w.now())))
	case BulkRelease:
		_, err = w.annotate(ctx, tenant, i.Run, guard.guardAnnotation(HoldRequest{actor, reason}.releaseHold(w.now())))
	case BulkFinding:
		err = w.recordFinding(ctx, i, guard)
	case BulkFree:
		err = w.freeReservation(ctx, i, guard)
	default:
		err = &FieldError{Field: "action", Problem: "is not known to this version: " + w.plan.Action}
	}
	return err
}

// forkID returns the id of the run that a plan forks from a letter. It is deterministic, so
// that a second fork of the letter could not be written. It is a UUIDv7 of the plan's start
// time.
func forkID(b postgres.BulkPlan, letter background.RunID) background.RunID {
	sum := sha256.Sum256(append(append([]byte("recourse/fork/1"), b.ID[:]...), letter[:]...))
	var millis [8]byte
	binary.BigEndian.PutUint64(millis[:], uint64(b.StartedAt.UnixMilli()))
	id := uuid.UUID(sum[:16])
	copy(id[:6], millis[2:])
	id[6], id[8] = 0x70|id[6]&0x0f, 0x80|id[8]&0x3f
	return background.RunID(id)
}
