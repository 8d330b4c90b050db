package postadjudication

import (
	"fmt"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/settlement"
)

// foldedSettlement is a settlement derived only from the receipts of its case, by the rules of
// package settlement.
type foldedSettlement struct {
	state              settlement.State
	keys               map[receipts.RunID]string             // operation key of each run
	outcomes           map[receipts.RunID]settlement.Outcome // what each run was submitted to do
	paid               map[string]bool                       // operation keys whose payment is counted
	paidUnderOlderKeys int64                                 // paid under older keys since the current generation began
}

// foldSettlement derives the settlement of a case. It returns an error if a receipt states a
// settlement that does not follow from the receipts before it.
func foldSettlement(rs []receipts.Receipt) (foldedSettlement, error) {
	f := foldedSettlement{keys: map[receipts.RunID]string{}, outcomes: map[receipts.RunID]settlement.Outcome{}, paid: map[string]bool{}}
	for _, r := range rs {
		p, err := r.Payload()
		if err != nil {
			return f, err
		}
		e, ok := f.event(r, p)
		if !ok {
			continue
		}
		next, effect, err := settlement.Apply(f.state, e)
		if err != nil {
			return f, fmt.Errorf("receipt %s: %w", r.ID(), err)
		}
		f.state = next
		switch {
		case e.Fact == settlement.Adjudicated, e.Fact == settlement.Readjudicated:
			f.paidUnderOlderKeys = 0
		case e.Fact == settlement.ExecutedOlder && !e.Repeated:
			f.paidUnderOlderKeys += e.Paid
		}
		if p.Settlement != nil && *p.Settlement != *settlementSnapshot(next) {
			return f, fmt.Errorf("receipt %s states a settlement that does not follow", r.ID())
		}
		if r.Subtype == receipts.Submitted && p.Freed != 0 && p.Freed != -effect.Committed {
			return f, fmt.Errorf("receipt %s states %d freed, and %d follows", r.ID(), p.Freed, -effect.Committed)
		}
	}
	return f, nil
}

// event returns the settlement event that a receipt records; ok is false if it records none.
func (f *foldedSettlement) event(r receipts.Receipt, p receipts.Payload) (settlement.Event, bool) {
	switch r.Subtype {
	case receipts.Submitted:
		return f.submitted(r, p)
	case receipts.AttemptSucceeded:
		return f.executed(r.Run, p), true
	case receipts.AnsweredLate:
		if p.AttemptClass == string(Executed) {
			return f.executed(r.Run, p), true
		}
	case receipts.Cancelled:
		return settlement.Event{Fact: settlement.Cancelled, KeepReserved: p.ReservationKept}, true
	case receipts.ReservationFreed:
		return settlement.Event{Fact: settlement.Freed}, true
	case receipts.Reconciled:
		switch {
		case p.Finding == string(Executed):
			return f.executed(r.Run, p), true
		case p.LetterClosed:
			return settlement.Event{Fact: settlement.Closed, KeepReserved: p.ReservationKept}, true
		}
	}
	return settlementEvent(&background.Transition{Event: r.Subtype})
}

func (f *foldedSettlement) submitted(r receipts.Receipt, p receipts.Payload) (settlement.Event, bool) {
	f.keys[r.Run], f.outcomes[r.Run] = p.OperationKey, settlement.Outcome(p.Outcome)
	e := settlement.Event{Fact: settlement.Adjudicated, Outcome: settlement.Outcome(p.Outcome), Generation: p.Generation, Amount: p.Amount}
	switch {
	case !p.ParentRun.IsZero():
		e.Fact = settlement.Forked
	case p.Readjudicated:
		e.Fact = settlement.Readjudicated
	}
	return e, true
}

// executed returns the event of a payment. Older receipts do not say whether a payment was made
// under an older generation's key; they count for the current generation, as they did when
// they were written.
func (f *foldedSettlement) executed(run receipts.RunID, p receipts.Payload) settlement.Event {
	key := f.keys[run]
	e := settlement.Event{Fact: settlement.Executed, Paid: p.Moved, Outcome: f.outcomes[run], Repeated: f.paid[key]}
	if p.UnderOlderKey {
		e.Fact = settlement.ExecutedOlder
	}
	f.paid[key] = true
	return e
}
