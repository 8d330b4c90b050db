package casework

import (
	"context"
	"errors"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/internal/binding"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
	"github.com/recourse-dev/recourse/receipts"
)

// caseRuns holds all runs of a case, read when the case had the given head.
type caseRuns struct {
	head      receipts.Head
	byID      map[background.RunID]background.Run
	olderPaid int64 // paid under older keys since the current generation began; read only if the case needs it
}

// errCaseRunsStale means that the runs of the case must be read, or read again.
var errCaseRunsStale = errors.New("postadjudication: the runs of the case are not those of its head")

func (f *SettlementFamily) readCaseRuns(ctx context.Context, r background.Run) (*caseRuns, error) {
	now, err := f.Journal.Cases.Snapshot(ctx, r.ID)
	if err != nil {
		return nil, err
	}
	all, err := f.Journal.Cases.ReadableRuns(ctx, now.Run.Tenant, now.Case.ID)
	if err != nil {
		return nil, err
	}
	out := &caseRuns{head: all[0].Case.Head, byID: make(map[background.RunID]background.Run, len(all))}
	for _, s := range all {
		out.byID[s.Run.ID] = s.Run
	}
	if all[0].Case.State.NeedsOlderPaid() {
		out.olderPaid, err = f.paidUnderOlderKeys(ctx, all[0].Case)
	}
	return out, err
}

// paidUnderOlderKeys returns what a case has paid under older keys since its current generation
// began. If the receipts are inconsistent it returns all that was asked for: a further payment is
// then reported as a breach, and an audit finds the inconsistent receipts.
func (f *SettlementFamily) paidUnderOlderKeys(ctx context.Context, c journal.Case) (int64, error) {
	_, trail, err := f.Journal.Cases.WithTrail(ctx, c.Tenant, c.ID)
	if err != nil {
		return 0, err
	}
	folded, err := binding.FoldSettlement(trail[:min(int64(len(trail)), c.Head.Seq)])
	if err != nil || folded.State != c.State {
		return c.State.Asked, nil
	}
	return folded.PaidUnderOlderKeys, nil
}

// olderPaidAt returns OlderPaid of an executed event that is decided on a snapshot.
func (a *caseRuns) olderPaidAt(s *journal.Snapshot) (int64, error) {
	switch {
	case !s.Case.State.NeedsOlderPaid():
		return 0, nil
	case a == nil || a.head != s.Case.Head:
		return 0, errCaseRunsStale
	}
	return a.olderPaid, nil
}

// paid reports whether the payment under a run's operation key is on record. A payment
// counts once per key, however many runs and answers report it.
func (a *caseRuns) paid(s *journal.Snapshot) (bool, error) {
	if a == nil || a.head != s.Case.Head {
		return false, errCaseRunsStale
	}
	return a.paidUnder(s.Run.Operation), nil
}

func (a *caseRuns) paidUnder(operation [32]byte) bool {
	for _, r := range a.byID {
		if r.Operation == operation && r.Class == escrow.Executed {
			return true
		}
	}
	return false
}

// activeRun returns the active run of the case.
func (a *caseRuns) activeRun(s *journal.Snapshot) (background.Run, error) {
	if s.Case.ActiveRun == s.Run.ID {
		return s.Run, nil
	}
	if a == nil || a.head != s.Case.Head {
		return background.Run{}, errCaseRunsStale
	}
	return a.byID[s.Case.ActiveRun], nil
}
