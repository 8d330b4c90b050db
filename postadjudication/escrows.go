package postadjudication

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/every"
	"github.com/recourse-dev/recourse/postadjudication/internal/casework"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
)

const (
	foldEvery = time.Second
	// foldCostFactor limits the share of time spent on folding and on the check for breaches:
	// while a transaction holds an escrow, its deltas accumulate.
	foldCostFactor = 20
	foldMaxPause   = 10 * time.Second // at most
	// maxLoggedBreaches is how many breached escrows are logged by name; the others are only
	// counted.
	maxLoggedBreaches = 100
)

// Breaches counts breaches of conservation.
type Breaches = journal.Breaches

// escrowMaintainer folds open deltas of escrows that no reservation folds, and raises an alarm if
// an escrow has committed more than it holds. Every working process has one; it skips escrows
// that another has locked.
//
//	transition ─same commit─▶ escrow_deltas ─▶ folded by a reservation, or here within a second, ten where folds take long
//	                                                └▶ breached ─▶ log, metric, readiness
type escrowMaintainer struct {
	journal *journal.Journal
	log     *zap.Logger
	last    atomic.Pointer[Breaches] // nil before the first check
	logged  map[escrowID]int64       // last logged breach by escrow
}

type escrowID struct{ tenant, reference string }

func newEscrowMaintainer(j *journal.Journal, log *zap.Logger) *escrowMaintainer {
	return &escrowMaintainer{journal: j, log: log, logged: map[escrowID]int64{}}
}

// run folds every second, or less often if folds take long, until ctx is done.
func (k *escrowMaintainer) run(ctx context.Context) {
	var nextCheck time.Time // for breaches
	failures := every.Failures{Log: k.log, Failed: "could not fold the deltas of escrows, retrying", Again: "the deltas of escrows are folded again"}
	for {
		began := time.Now()
		_, err := k.journal.Escrows.FoldDeltas(ctx)
		took := time.Since(began)
		if began = time.Now(); began.After(nextCheck) { // also after an error: it may be of one escrow
			err = errors.Join(err, k.logBreaches(ctx))
			nextCheck = time.Now().Add(min(foldMaxPause, foldCostFactor*time.Since(began)))
		}
		if !failures.Note(ctx, err) || !casework.Sleep(ctx, min(foldMaxPause, max(foldEvery, foldCostFactor*took)), nil) {
			return
		}
	}
}

// logBreaches logs breaches since the last check; the first check logs all.
func (k *escrowMaintainer) logBreaches(ctx context.Context) error {
	now, err := k.journal.Escrows.Breaches(ctx)
	if err != nil {
		return err
	}
	before := k.last.Swap(&now)
	if now.Contradictions > 0 && (before == nil || before.Contradictions < now.Contradictions) {
		k.log.Error("answers or findings contradict payments on record; the receipts are named contradicted", zap.Int64("contradictions", now.Contradictions))
	}
	if now.Overdrawn.Sign() == 0 || before != nil && before.Overdrawn == now.Overdrawn && before.Escrows == now.Escrows {
		return nil
	}
	escrows, err := k.journal.Escrows.Breached(ctx, maxLoggedBreaches)
	if err != nil {
		k.last.Store(before) // the next check reports them
		return err
	}
	k.log.Error("escrows have committed more than they hold", zap.Int64("escrows", now.Escrows), zap.Int64("payments_beyond_adjudication", now.Excesses))
	for _, e := range escrows {
		id := escrowID{e.Tenant, e.Reference}
		if k.logged[id] == e.Breached {
			continue
		}
		k.logged[id] = e.Breached
		k.log.Error("an escrow has committed more than it holds", zap.String("tenant", e.Tenant), zap.String("escrow", e.Reference),
			zap.String("currency", e.Currency), zap.Int64("held", e.Held), zap.Int64("committed", e.Committed), zap.Int64("breached", e.Breached))
	}
	return nil
}

// Breaches returns the breaches of conservation as this process last saw them; zero unless it
// runs. Each needs a person, and none stops the process.
func (h *Health) Breaches() Breaches {
	if seen := h.s.escrows.last.Load(); seen != nil {
		return *seen
	}
	return Breaches{}
}

// logExcess raises the alarm for a recorded payment beyond its adjudicated amount.
func (k *escrowMaintainer) logExcess(c *journal.Case, run background.RunID, excess int64) {
	k.log.Error("more was paid than was adjudicated", zap.String("tenant", c.Tenant), zap.String("transaction", c.Subject), zap.String("escrow", c.Reference),
		zap.Stringer("run", run), zap.Int64("excess", excess), zap.String("currency", c.Currency))
}
