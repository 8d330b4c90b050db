package postadjudication

import (
	"context"
	"errors"
	"slices"
	"sync"

	"go.uber.org/zap"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/postgres"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/retrypolicy"
)

const (
	// batchTries is how often letters are tried together; then each goes alone, so
	// that none keeps the others from it.
	batchTries = 3

	// parallelBatches are how many commits are made at once: while one waits for the disk or
	// rings, the other is prepared.
	parallelBatches = 2
)

// batchFunc acts on letters that share a commit, and gives outcomes to those that it
// can.
type batchFunc func(ctx context.Context, wanted []*postgres.BulkItem) error

// batchAction is how the plan's action takes letters together; nil when it takes each
// alone.
func (w *planWork) batchAction() batchFunc {
	switch BulkAction(w.plan.Action) {
	case BulkFork:
		return w.forkBatch
	case BulkPurge:
		return w.purgeItems
	}
	return nil
}

// errContended means that a letter was locked, or moved while it was looked at.
var errContended = errors.New("postadjudication: the letter is being moved by somebody")

// applyInBatches acts on the items together. Those that it leaves without an outcome are
// to be tried alone.
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
					w.log.Warn("letters of a bulk plan were not moved together, trying on", zap.Stringer("bulk", w.plan.ID), zap.Error(err))
				}
			})
		}
		wg.Wait()
	}
}

// unchangedItems reads letters, and gives those that are as the plan has them; the others get
// their outcome.
func (w *planWork) unchangedItems(ctx context.Context, wanted []*postgres.BulkItem) ([]postgres.LetterRow, map[background.RunID]*postgres.BulkItem, error) {
	items := make(map[background.RunID]*postgres.BulkItem, len(wanted))
	ids := make([]background.RunID, len(wanted))
	for n, i := range wanted {
		items[i.Run], ids[n] = i, i.Run
	}
	found, err := w.journal.LetterRowsByID(ctx, ids...)
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

// forkBatch forks letters as Fork does, in one commit, and rings for the new runs.
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
			if setOutcome(i, err); i.Outcome == "" { // it would be decided so again
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

// forkChange gives the change that forks a letter, and the receipt that the plan asked
// for it.
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

// purgeItems purges letters as Purge does: they share a file of the archive, and a
// commit.
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
