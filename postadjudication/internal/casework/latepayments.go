package casework

import (
	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/internal/binding"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/settlement"
)

// lateChangeOf returns the change that the answer of an attempt makes that had already ended. A payment is a fact
// whatever has happened since. Under the case's current operation key it settles the case,
// ends a waiting run as succeeded, and closes an open letter as reconciled. Under another
// key it ends the waiting run, which must not pay as well. A running run ends when its
// attempt finishes, by onPaidUnderOlderKey.
func lateChangeOf(tr *background.Transition, s *journal.Snapshot, runs *caseRuns) (journal.Change, error) {
	run := s.Run
	if err := tr.Apply(&run); err != nil {
		return journal.Change{}, err
	}
	active, err := runs.activeRun(s)
	if err != nil {
		return journal.Change{}, err
	}
	beside, err := runs.unknownBeside(s)
	if err != nil {
		return journal.Change{}, err
	}
	if beside && tr.Reason != background.ReasonUnrecordable {
		run.UnknownOpen = s.Run.UnknownOpen // money may have moved under another key
	}
	change := journal.Change{Transition: tr.ID, Before: s, After: &journal.Snapshot{Case: s.Case, Run: run}}
	var p receipts.Payload
	fillPayload(&p, tr, &s.Run, &run)
	var effect settlement.Effect
	var fact settlement.Event
	recorded, err := recordedBefore(tr, s, runs)
	if err != nil {
		return change, err
	}
	contradictions := contradictionReceipts(tr, &s.Run, recorded)
	if len(contradictions) == 0 && !addsToRecord(tr, s, recorded) {
		return change, background.ErrConflict
	}
	if tr.Result.Class == escrow.Executed {
		if fact, err = paymentOf(tr, s, runs); err != nil {
			return change, err
		}
		fact.Recorded, p.Recorded = recorded.Paid, recorded.Paid
		var state settlement.State
		if state, effect, err = settlement.Apply(s.Case.State, fact); err != nil {
			return change, err
		}
		change.After.Case.State = state
		p.UnderOlderKey = fact.Fact == settlement.ExecutedOlder
		p.Outcome = string(state.Outcome)
		if state != s.Case.State {
			p.Settlement = binding.SettlementSnapshot(state)
		}
	}
	change.Drafts = append(change.Drafts, receipts.Draft{Run: run.ID, Subtype: tr.Subtype, Actor: actorOf(tr), At: tr.At, Payload: p})
	change.Drafts = append(change.Drafts, excessReceipts(tr, run.ID, run.Attempt, effect)...)
	change.Drafts = append(change.Drafts, contradictions...)
	if tr.Result.Class != escrow.Executed && !reportsUnrecordablePayment(tr) {
		return change, nil
	}
	if active.Operation == s.Run.Operation {
		if tr.Result.Class != escrow.Executed {
			return change, nil // the unknown outcome is under the key of the active run, which looks it up
		}
		return closePaidRun(tr, change, active), nil
	}
	if fact.Recorded > 0 && fact.Paid <= fact.Recorded {
		return change, nil // already recorded: later runs were started knowing of it
	}
	return endUnpaidRun(tr, change, active)
}

// reportsUnrecordablePayment reports whether a late answer is the reduced form of one that reports a payment.
func reportsUnrecordablePayment(tr *background.Transition) bool {
	return tr.Reason == background.ReasonUnrecordable && tr.Result.Failure != nil && tr.Result.Failure.Code == string(escrow.Executed)
}

// paymentOf returns the settlement event of a late payment. A payment for an older
// generation, as the request's terms state, is not one of the current decision's.
func paymentOf(tr *background.Transition, s *journal.Snapshot, runs *caseRuns) (settlement.Event, error) {
	t := s.Run.Terms
	if t == nil {
		return settlement.Event{}, alteredRequest{binding.NotSubmitted}
	}
	e := settlement.Event{Fact: settlement.Executed, Paid: tr.Result.Moved, Outcome: settlement.Outcome(t.Outcome)}
	if t.Generation < s.Case.State.Generation {
		e.Fact = settlement.ExecutedOlder
	}
	older, err := runs.olderPaidAt(s)
	e.OlderPaid = older
	return e, err
}

// activeRunReceipt begins the receipt of a late payment's effect on the active run.
func activeRunReceipt(tr *background.Transition, active background.Run) receipts.Draft {
	return receipts.Draft{Run: active.ID, Actor: actorOf(tr), At: tr.At, Payload: receipts.Payload{
		BudgetSpent: active.BudgetSpent, Recoveries: active.Recoveries, Attempt: active.Attempt,
	}}
}

// closePaidRun ends the case's active run, since its payment is made: a waiting run has
// succeeded, and an open letter closes as reconciled.
func closePaidRun(tr *background.Transition, ch journal.Change, active background.Run) journal.Change {
	if ch.After.Run.ID == active.ID {
		active = ch.After.Run
	}
	if !active.State.Waiting() && active.Letter != background.LetterOpen {
		return ch
	}
	after, draft := active, activeRunReceipt(tr, active)
	after.LastTransition, after.Class = tr.ID, escrow.Executed
	p := &draft.Payload
	draft.Subtype, p.Finding, p.Moved, p.Reference = receipts.Reconciled, string(escrow.Executed), tr.Result.Moved, tr.Result.Reference
	p.OutcomeClass, p.UnknownOpen, p.Ended = string(escrow.Executed), ch.After.Run.UnknownOpen, active.State.Waiting()
	p.CaseUnmoved = p.Ended && ch.Before.Case.State.Progression.Ended()
	if p.Ended {
		after.State = background.Succeeded
	} else {
		after.Letter = background.LetterReconciled
	}
	if ch.After.Run.ID == active.ID {
		ch.After.Run = after
	} else {
		ch.Others = append(ch.Others, journal.RunChange{Before: active, After: after})
	}
	ch.Drafts = append(ch.Drafts, draft)
	return ch
}

// endUnpaidRun ends the case's active run, if it waits, after a payment under another key:
// its own payment would come on top. If that payment ended the case, and no attempt of the
// run may have paid as well, the run is cancelled. Otherwise it becomes a dead letter: a
// person must judge what the payment means for the current decision. So does a payment that
// can't be recorded.
func endUnpaidRun(tr *background.Transition, ch journal.Change, active background.Run) (journal.Change, error) {
	if !active.State.Waiting() {
		return ch, nil
	}
	after, draft := active, activeRunReceipt(tr, active)
	after.LastTransition, after.UnknownOpen = tr.ID, ch.After.Run.UnknownOpen
	if after.UnknownOpen > 0 {
		after.Class = escrow.Unknown // its own, or that of a payment that can't be recorded
	}
	p := &draft.Payload
	p.OutcomeClass, p.UnknownOpen = string(after.Class), after.UnknownOpen
	p.CaseUnmoved = ch.After.Case.State.Progression.Ended()
	if p.CaseUnmoved && after.Class != escrow.Unknown {
		draft.Subtype, p.Reason, after.State = receipts.Cancelled, ReasonCaseEnded, background.Cancelled
	} else {
		state, _, err := settlement.Apply(ch.After.Case.State, settlement.Event{Fact: settlement.DeadLettered})
		if err != nil {
			return ch, err
		}
		after.State, after.Letter, after.DeadAt, after.Reason = background.DeadLettered, background.LetterOpen, tr.At, ReasonPaidUnderOlderKey
		p.Reason, p.Settlement = refusal.GatePaidUnderOlderKey.Meaning(), binding.SettlementSnapshot(state)
		if p.CaseUnmoved {
			after.Reason = ReasonCaseEnded
			p.Reason, p.Settlement = deathReason(&after), nil
		}
		ch.After.Case.State = state
		draft.Subtype, p.Attempts, p.DeadLetteredAt, p.ReasonCode = receipts.DeadLettered, after.Attempt, tr.At, after.Reason
		p.Outcome, p.DispatchReference = string(state.Outcome), DispatchReference(&after)
	}
	ch.Others = append(ch.Others, journal.RunChange{Before: active, After: after})
	ch.Drafts = append(ch.Drafts, draft)
	return ch, nil
}
