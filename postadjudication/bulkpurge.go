package postadjudication

import (
	"context"
	"errors"

	"go.uber.org/zap"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/postgres"
	"github.com/recourse-dev/recourse/receipts"
)

// purge removes letters together: they share a file of the archive, and a commit.
// Those that were locked are tried again, until ctx ends.
func (w *bulkWork) purge(ctx context.Context, items []postgres.BulkItem) []postgres.BulkItem {
	for try, pause := 1, bulkPauseMin; ; try, pause = try+1, min(2*pause, bulkPauseMax) {
		left, err := w.purgeOnce(context.WithoutCancel(ctx), items)
		if err != nil {
			w.log.Warn("letters of a bulk plan can't be purged, trying on", zap.Stringer("bulk", w.plan.ID), zap.Error(err))
		}
		if left == 0 {
			return items
		}
		if try == bulkTries {
			allFailed(items, errors.Join(errors.New("the letters could not be purged"), err))
		}
		if try == bulkTries || !pass(ctx, pause, nil) {
			return withOutcome(items)
		}
	}
}

func allFailed(items []postgres.BulkItem, err error) {
	for n := range items {
		if items[n].Outcome == "" {
			items[n].Outcome, items[n].Error = string(OutcomeFailed), clean(err.Error(), 1024)
		}
	}
}

// purgeOnce purges those that have no outcome yet, and tells how many still have none.
func (w *bulkWork) purgeOnce(ctx context.Context, items []postgres.BulkItem) (left int, err error) {
	todo := map[background.RunID]*postgres.BulkItem{}
	var ids []background.RunID
	for n := range items {
		if items[n].Outcome == "" {
			todo[items[n].Run] = &items[n]
			ids = append(ids, items[n].Run)
		}
	}
	found, err := w.journal.Filed(ctx, ids...)
	if err != nil {
		return len(todo), err
	}
	var due []postgres.Filed
	for _, f := range found {
		i := todo[f.Run.ID]
		switch gate := keeps(f); {
		case f.Case.Head != i.Head:
			_, err := w.whose(ctx, i)
			i.Outcome = outcomeOf(err)
		case gate != "":
			i.Outcome = outcomeOf(refusedBy(gate, f.Snapshot))
		default:
			due = append(due, f)
		}
	}
	at := w.now()
	done, err := w.retire(ctx, due, at, func(f postgres.Filed, archive string) receipts.Draft {
		return receipts.Draft{Run: f.Run.ID, Subtype: receipts.Purged, Actor: w.plan.StartedBy, At: at, Payload: receipts.Payload{
			Bulk: w.plan.ID.String(), Reason: w.plan.Reason, Archive: archive, DeadLetteredAt: f.Run.DeadAt}}
	})
	for _, r := range done {
		todo[r.ID].Outcome = string(OutcomeDone)
	}
	for _, i := range todo {
		if i.Outcome == "" {
			left++
		}
	}
	return left, err
}
