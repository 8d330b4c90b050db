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
	olderPaid int64              // paid under older keys since the current generation began; read only if the case needs it
	money     binding.Settlement // what the receipts say of the money; read only if a payment is on record, or an outcome is unknown
	unclear   bool               // the receipts are inconsistent
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
	if !out.anyPaid() && !all[0].Case.State.NeedsOlderPaid() && now.Run.UnknownOpen == 0 {
		return out, nil
	}
	return out, f.readMoney(ctx, out, &all[0].Case)
}

// readMoney reads what the receipts of a case say of its money. If they are inconsistent, what was paid under
// older keys is all that was asked for: a further payment is then reported as a breach, and an audit finds the
// inconsistent receipts.
func (f *SettlementFamily) readMoney(ctx context.Context, out *caseRuns, c *journal.Case) error {
	money, err := foldPayments(ctx, f.Journal, c)
	if out.unclear = errors.Is(err, ErrReceiptsDiffer); err != nil && !out.unclear {
		return err
	}
	if out.money, out.olderPaid = money, money.PaidUnderOlderKeys; out.unclear {
		out.olderPaid = c.State.Asked
	}
	return nil
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

// recorded returns what is on record as paid under a run's operation key. A payment counts once per key, however
// many runs and answers report it.
func (a *caseRuns) recorded(s *journal.Snapshot, stated int64) (binding.Payment, error) {
	if a == nil || a.head != s.Case.Head {
		return binding.Payment{}, errCaseRunsStale
	}
	return a.recordedUnder(s.Run.Operation, stated), nil
}

// recordedUnder returns what is on record as paid under an operation key, to be compared with what is stated now. If a
// run of the key is executed and the receipts do not say so, they are inconsistent, and what is stated counts as recorded.
func (a *caseRuns) recordedUnder(operation [32]byte, stated int64) binding.Payment {
	for _, r := range a.byID {
		if r.Operation == operation && r.Class == escrow.Executed {
			if paid := a.money.PaymentOf(r.ID); paid != nil {
				return *paid
			}
			return binding.Payment{Paid: max(stated, 1)}
		}
	}
	return binding.Payment{}
}

// unknownBeside reports whether money may have moved under another operation key than the run's, which no answer about
// the run's own key tells. An unknown outcome that the receipts do not explain counts as one.
func (a *caseRuns) unknownBeside(s *journal.Snapshot) (bool, error) {
	switch {
	case s.Run.UnknownOpen == 0 || s.Case.Epoch == 0 && s.Case.State.Generation <= 1: // no money is unknown, or there is one key
		return false, nil
	case a == nil || a.head != s.Case.Head:
		return false, errCaseRunsStale
	}
	return a.unclear || a.money.UnknownBeside(s.Run.ID), nil
}

// anyPaid reports whether a run of the case is executed.
func (a *caseRuns) anyPaid() bool {
	for _, r := range a.byID {
		if r.Class == escrow.Executed {
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
