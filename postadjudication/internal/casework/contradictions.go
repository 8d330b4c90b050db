package casework

import (
	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/internal/binding"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
	"github.com/recourse-dev/recourse/receipts"
)

// recordedBefore returns what is on record under the operation key of a run whose answer comes late, or that a
// finding is about. Only a payment, or an answer about a run that has paid, is compared with it.
func recordedBefore(tr background.Transition, s *journal.Snapshot, runs *caseRuns) (binding.Payment, error) {
	if tr.Result.Class != escrow.Executed && s.Run.Class != escrow.Executed {
		return binding.Payment{}, nil
	}
	return runs.recorded(s, tr.Result.Moved)
}

// addsToRecord reports whether an answer or finding that contradicts nothing adds something to what is on record
// under the operation key: a higher sum, that a call which was outstanding has come back, or a finding about a purged letter.
func addsToRecord(tr *background.Transition, s *journal.Snapshot, recorded binding.Payment) bool {
	if tr.Result.Class == escrow.Executed && tr.Result.Moved > recorded.Paid {
		return true
	}
	if tr.Subtype == receipts.Reconciled {
		return s.Run.Letter == background.LetterPurged // a finding is repeated safely where no list shows the letter any more
	}
	return tr.Subtype == receipts.AnsweredLate && (s.Run.Class != escrow.Executed || s.Run.IsOutstanding(tr.Run.Attempt))
}

// contradictionReceipts returns the receipt of an answer or finding that contradicts what is on record under the
// operation key: a lower sum, another reference, a sum that can't be recorded, or, of an attempt that stated a payment,
// that nothing was executed. A higher sum contradicts nothing: the rest was paid since. The receipt is written once for each such content.
func contradictionReceipts(tr *background.Transition, run *background.Run, recorded binding.Payment) []receipts.Draft {
	said := &tr.Result
	switch {
	case recorded.StatedBy.IsZero():
		return nil
	case reportsUnrecordablePayment(tr):
	case said.Class == escrow.Executed:
		otherReference := said.Reference != "" && recorded.Reference != "" && said.Reference != recorded.Reference
		if said.Moved > recorded.Paid || said.Moved == recorded.Paid && !otherReference {
			return nil
		}
	case said.Class != escrow.NotExecuted || tr.Subtype != receipts.AnsweredLate || !recorded.IsStatedBy(run.ID, tr.Run.Attempt):
		return nil // an answer that pays nothing covers its own call only
	}
	if recorded.IsContradictedBy(string(said.Class), said.Moved, said.Reference) {
		return nil
	}
	return []receipts.Draft{{Run: run.ID, Subtype: receipts.Contradicted, Actor: actorOf(tr), At: tr.At, Payload: receipts.Payload{
		Attempt: tr.Run.Attempt, AttemptClass: string(said.Class), Moved: said.Moved, Reference: said.Reference,
		Recorded: recorded.Paid, RecordedReference: recorded.Reference,
	}}}
}
