package casework

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/internal/binding"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
	"github.com/recourse-dev/recourse/postadjudication/internal/validate"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/settlement"
)

// recordedBefore returns what is on record under the operation key of a run whose answer comes late, or that a
// finding is about. Only a payment, or an answer about a run that has paid, is compared with it.
func recordedBefore(tr *background.Transition, s *journal.Snapshot, runs *caseRuns) (binding.Payment, error) {
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
		otherReference := said.Reference != "" && recorded.Reference != "" && !isSameReference(said.Reference, recorded.Reference)
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

// isSameReference reports whether two references are equal, or one is what is kept of the other without a policy of
// references: the policy may have been set or removed between two answers.
func isSameReference(a, b string) bool {
	return a == b || validate.Reference(a) == b || a == validate.Reference(b)
}

// RecordAgainst returns what on record says the opposite of a finding about a run, for people; empty if nothing does.
// Executed is contradicted if all that is known of the run is that nothing was executed, or if the last lookup said so.
// NotExecuted is contradicted by every answer, lookup and finding under the operation key that said executed, also if
// its payment could not be recorded.
func RecordAgainst(ctx context.Context, c *Applier, seen journal.Snapshot, found escrow.Class) (string, error) {
	run := &seen.Run
	said, err := c.Journal.Lookups.Find(ctx, run.Tenant, run.ID)
	if err != nil {
		return "", err
	}
	runs, trail, err := c.Journal.Cases.WithTrail(ctx, run.Tenant, run.Case)
	if err != nil {
		return "", err
	}
	sameKey := map[background.RunID]bool{run.ID: true}
	for _, s := range runs {
		sameKey[s.Run.ID] = s.Run.ID == run.ID || s.Run.Operation == run.Operation
		if sameKey[s.Run.ID] && s.Run.Class == escrow.Executed && found == escrow.Executed {
			return "", nil
		}
	}
	opposite := escrow.NotExecuted
	if found == escrow.NotExecuted {
		opposite = escrow.Executed
	}
	if said.Answer == opposite && (opposite == escrow.Executed || said.Attempt == run.Attempt) {
		return lookupOnRecord(&said, seen.Case.Currency), nil
	}
	if opposite == escrow.NotExecuted {
		if run.Class != escrow.NotExecuted {
			return "", nil
		}
		sameKey = map[background.RunID]bool{run.ID: true} // what another run was told covers its own calls
	}
	words, err := lastSaid(trail, sameKey, string(opposite))
	if errors.Is(err, background.ErrUnreadable) || err == nil && words == "" && run.Class == opposite {
		return "the run is recorded as " + string(opposite), nil
	}
	return words, err
}

// lookupOnRecord says for people what the last lookup of a run answered.
func lookupOnRecord(l *journal.LookupRecord, currency string) string {
	said := fmt.Sprintf("the escrow service answered the lookup of %s with %s", onRecordAt(l.LookedUpAt), l.Answer)
	if l.Answer == escrow.Executed {
		said += ": " + settlement.Money{Minor: l.Moved, Currency: currency}.String()
	}
	return said
}

// lastSaid says for people what last stated an outcome of some runs: an answer, a lookup or a finding. It returns "" if
// nothing did.
func lastSaid(trail []receipts.Receipt, runs map[background.RunID]bool, outcome string) (words string, err error) {
	for _, rec := range trail {
		if !runs[rec.Run] {
			continue
		}
		p, err := rec.Payload()
		if err != nil {
			return "", fmt.Errorf("%w: its receipts: %w", background.ErrUnreadable, err)
		}
		at := onRecordAt(rec.At)
		switch {
		case p.Finding == outcome && p.Lookup == "":
			words = fmt.Sprintf("%s found %s at %s", rec.Actor, outcome, at)
		case p.Lookup == outcome || p.Finding == outcome:
			words = fmt.Sprintf("the escrow service answered the lookup of %s with %s", at, outcome)
		case p.Error.Type == background.FailureUnrecordable && p.Error.Code == outcome:
			words = fmt.Sprintf("attempt %d ended as %s at %s, with values that could not be recorded", p.Attempt, outcome, at)
		case p.AttemptClass == outcome:
			words = fmt.Sprintf("attempt %d ended as %s at %s", p.Attempt, outcome, at)
		}
	}
	return words, nil
}

// onRecordAt returns a time of the record as people read it.
func onRecordAt(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05") + " UTC" }
