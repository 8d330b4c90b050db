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
	// togetherTries is how often letters are tried together; then each goes alone, so
	// that none keeps the others from it.
	togetherTries = 3

	// companies are how many commits are made at once: while one waits for the disk or
	// rings, the other is prepared.
	companies = 2
)

// together acts on letters that share a commit, and gives outcomes to those that it
// can.
type together func(ctx context.Context, wanted []*postgres.BulkItem) error

// together is how the plan's action takes letters together; nil when it takes each
// alone.
func (w *bulkWork) together() together {
	switch BulkAction(w.plan.Action) {
	case BulkFork:
		return w.forkAll
	case BulkPurge:
		return w.purgeAllOf
	}
	return nil
}

// errLeft means that a letter was locked, or moved while it was looked at.
var errLeft = errors.New("postadjudication: the letter is being moved by somebody")

// inCompany acts on the items together. Those that it leaves without an outcome are
// to be tried alone.
func (w *bulkWork) inCompany(ctx context.Context, items []postgres.BulkItem) {
	all := w.together()
	if all == nil {
		return
	}
	for try, pause := 0, bulkPauseMin; try < togetherTries; try, pause = try+1, 2*pause {
		var wanted []*postgres.BulkItem
		for n := range items {
			if items[n].Outcome == "" {
				wanted = append(wanted, &items[n])
			}
		}
		if len(wanted) == 0 || try > 0 && !pass(ctx, pause, nil) {
			return
		}
		var both sync.WaitGroup
		for part := range slices.Chunk(wanted, (len(wanted)+companies-1)/companies) {
			both.Go(func() {
				if err := survived(func() error { return all(context.WithoutCancel(ctx), part) }); err != nil {
					w.log.Warn("letters of a bulk plan were not moved together, trying on", zap.Stringer("bulk", w.plan.ID), zap.Error(err))
				}
			})
		}
		both.Wait()
	}
}

// asItWas reads letters, and gives those that are as the plan has them; the others get
// their outcome.
func (w *bulkWork) asItWas(ctx context.Context, wanted []*postgres.BulkItem) ([]postgres.Filed, map[background.RunID]*postgres.BulkItem, error) {
	items := make(map[background.RunID]*postgres.BulkItem, len(wanted))
	ids := make([]background.RunID, len(wanted))
	for n, i := range wanted {
		items[i.Run], ids[n] = i, i.Run
	}
	found, err := w.journal.Filed(ctx, ids...)
	if err != nil {
		return nil, items, err
	}
	var same []postgres.Filed
	for _, f := range found {
		i := items[f.Run.ID]
		if f.Case.Head == i.Head && f.Run.Tenant == w.plan.Tenant {
			same = append(same, f)
			continue
		}
		made, err := w.whose(ctx, i)
		if i.NewRun, i.Outcome = made, outcomeOf(err); errors.Is(err, errLeft) && f.Case.Head == i.Head && f.Run.Tenant == w.plan.Tenant {
			same = append(same, f)
		}
	}
	return same, items, nil
}

// forkAll forks letters as Fork does, in one commit, and rings for the new runs.
func (w *bulkWork) forkAll(ctx context.Context, wanted []*postgres.BulkItem) error {
	found, items, err := w.asItWas(ctx, wanted)
	if err != nil {
		return err
	}
	policy, err := w.policyOfForks()
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
		f := fork{
			ForkRequest: ForkRequest{Actor: w.plan.StartedBy, Reason: w.plan.Reason, Queue: w.asked.Queue, Policy: policy},
			run:         forkOf(w.plan, i.Run), move: newID(), at: at, family: w.settlements,
		}
		ch, err := w.forkOne(s, f, i)
		if err == nil {
			err = w.attemptsWithinReach(ctx, s.Run.Family, policy, setsPolicies)
		}
		if err != nil {
			if ended(i, err); i.Outcome == "" { // it would be decided so again
				i.Outcome, i.Error = string(OutcomeFailed), clean(err.Error(), 1024)
			}
			continue
		}
		changes = append(changes, ch)
	}
	if len(changes) == 0 {
		return nil
	}
	written, err := w.journal.MoveFiled(ctx, changes)
	var begun []*background.Run
	for n, ok := range written {
		if ok {
			i := items[changes[n].Before.Run.ID]
			i.Outcome, i.NewRun = string(OutcomeDone), changes[n].New.ID
			begun = append(begun, changes[n].New)
		}
	}
	w.ringFor(ctx, begun...)
	return err
}

// forkOne gives the change that forks a letter, and the receipt that the plan asked
// for it.
func (w *bulkWork) forkOne(s postgres.Filed, f fork, i *postgres.BulkItem) (postgres.Change, error) {
	if err := w.ownQueue(s.Run.Family, f.Queue); err != nil {
		return postgres.Change{}, err
	}
	if gate := w.forkInBulk(s, f.at); gate == GateHeld {
		return postgres.Change{}, refusedBy(gate, s.Snapshot)
	}
	return w.as(i).bind(func(now *postgres.Snapshot) (postgres.Change, error) {
		ch, err := f.decide(now)
		if err != nil {
			return ch, err
		}
		asked := receipts.Draft{Run: i.Run, Subtype: receipts.Replayed, Actor: f.Actor, At: f.at, Payload: receipts.Payload{NewRun: f.run, Reason: f.Reason}}
		ch.Drafts = append([]receipts.Draft{asked}, ch.Drafts...)
		return ch, nil
	})(&s.Snapshot)
}

func (w *bulkWork) policyOfForks() (*retrypolicy.Policy, error) {
	if w.asked.Policy == "" {
		return nil, nil
	}
	p, err := retrypolicy.Parse(w.asked.Policy)
	return &p, err
}

// purgeAllOf purges letters as Purge does: they share a file of the archive, and a
// commit.
func (w *bulkWork) purgeAllOf(ctx context.Context, wanted []*postgres.BulkItem) error {
	found, items, err := w.asItWas(ctx, wanted)
	if err != nil {
		return err
	}
	var due []postgres.Filed
	for _, f := range found {
		if gate := keeps(f); gate != "" {
			items[f.Run.ID].Outcome = outcomeOf(refusedBy(gate, f.Snapshot))
			continue
		}
		due = append(due, f)
	}
	at := w.now()
	done, err := w.retire(ctx, due, at, func(f postgres.Filed, archive string) receipts.Draft {
		p := receipts.Payload{Reason: w.plan.Reason, Archive: archive, DeadLetteredAt: f.Run.DeadAt}
		w.as(items[f.Run.ID]).mark(&p)
		return receipts.Draft{Run: f.Run.ID, Subtype: receipts.Purged, Actor: w.plan.StartedBy, At: at, Payload: p}
	})
	for _, r := range done {
		items[r.ID].Outcome = string(OutcomeDone)
	}
	return err
}
