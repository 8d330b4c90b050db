package casework

import (
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication/internal/binding"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/settlement"
)

// Freeing frees the reservation of a case and closes its open letter, which has nothing left to
// wait for. reference is to the evidence that nothing will be paid for it.
func Freeing(actor, reason, reference string, at time.Time) LetterDecision {
	return func(f journal.LetterRow) (journal.Change, error) {
		if gate := reservationGate(f); gate != "" {
			return journal.Change{}, RefusedBy(gate, f.Snapshot)
		}
		state, _, err := settlement.Apply(f.Case.State, settlement.Event{Fact: settlement.Freed})
		if err != nil {
			return journal.Change{}, err
		}
		after := f.Snapshot
		after.Case.State = state
		if after.Run.Letter == background.LetterOpen {
			after.Run.Letter = background.LetterReconciled
		}
		return journal.Change{Before: &f.Snapshot, After: &after, Drafts: []receipts.Draft{{
			Run: f.Run.ID, Subtype: receipts.ReservationFreed, Actor: actor, At: at, Payload: receipts.Payload{
				Reason: reason, FindingReference: reference, Freed: f.Case.State.Reserved, Outcome: string(state.Outcome), Settlement: binding.SettlementSnapshot(state)},
		}}}, nil
	}
}

// reservationGate returns the gate that refuses freeing a case's reservation, by its active
// run.
func reservationGate(f journal.LetterRow) refusal.Gate {
	switch {
	case f.Case.Kind != journal.KindSettlement:
		return refusal.GateNotSettlement
	case f.Run.State.Live():
		return refusal.GateLive
	case moneyUnknown(f.Snapshot):
		return refusal.GateReconcileFirst
	case f.Case.State.Reserved == 0:
		return refusal.GateNothingReserved
	case f.Run.State != background.DeadLettered && f.Run.State != background.Cancelled:
		return refusal.GateNotALetter
	case f.Annotations.Held:
		return refusal.GateHeld
	}
	return ""
}

func freeGateOf(all []journal.Snapshot, mayStillPay func(background.Run) (string, error)) (refusal.Gate, error) {
	for _, r := range all {
		switch why, err := mayStillPay(r.Run); {
		case err != nil:
			return "", err
		case r.Run.State.Live():
			return refusal.GateLive, nil
		case why != "":
			return refusal.GateCallOutstanding, nil
		}
	}
	return "", nil
}
