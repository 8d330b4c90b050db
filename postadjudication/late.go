package postadjudication

import (
	"context"
	"errors"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/postgres"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/settlement"
)

// siblings are all runs of a case as they were when its head was as given.
type siblings struct {
	head  receipts.Head
	runs  map[background.RunID]background.Run
	older int64 // paid under older keys since the present generation began; read where the case needs it
}

// errSiblings asks for the siblings to be read, or read again.
var errSiblings = errors.New("postadjudication: the runs of the case are not those of its head")

func (f *family) siblingsOf(ctx context.Context, r background.Run) (*siblings, error) {
	now, err := f.journal.Snapshot(ctx, r.ID)
	if err != nil {
		return nil, err
	}
	all, err := f.journal.Siblings(ctx, now.Run.Tenant, now.Case.ID)
	if err != nil {
		return nil, err
	}
	out := &siblings{head: all[0].Case.Head, runs: make(map[background.RunID]background.Run, len(all))}
	for _, s := range all {
		out.runs[s.Run.ID] = s.Run
	}
	if all[0].Case.State.NeedsOlder() {
		out.older, err = f.olderPaid(ctx, all[0].Case)
	}
	return out, err
}

// olderPaid returns what a case has paid under older keys since its present generation began.
// Receipts from which that does not follow leave no room for a payment: then it is told as a
// breach, and an audit says which they are.
func (f *family) olderPaid(ctx context.Context, c postgres.Case) (int64, error) {
	_, trail, err := f.journal.CaseAtOnce(ctx, c.Tenant, c.ID)
	if err != nil {
		return 0, err
	}
	told, err := refold(trail[:min(int64(len(trail)), c.Head.Seq)])
	if err != nil || told.state != c.State {
		return c.State.Asked, nil
	}
	return told.older, nil
}

// paidOlder is what an executed says of payments under older keys.
func (a *siblings) paidOlder(s *postgres.Snapshot) (int64, error) {
	switch {
	case !s.Case.State.NeedsOlder():
		return 0, nil
	case a == nil || a.head != s.Case.Head:
		return 0, errSiblings
	}
	return a.older, nil
}

// paid reports whether the payment under a run's operation key is on record: a
// payment counts once per key, however many runs and answers tell of it.
func (a *siblings) paid(s *postgres.Snapshot) (bool, error) {
	if a == nil || a.head != s.Case.Head {
		return false, errSiblings
	}
	return a.paidUnder(s.Run.Operation), nil
}

func (a *siblings) paidUnder(operation [32]byte) bool {
	for _, r := range a.runs {
		if r.Operation == operation && r.Class == Executed {
			return true
		}
	}
	return false
}

// holder is the run that holds the case.
func (a *siblings) holder(s *postgres.Snapshot) (background.Run, error) {
	if s.Case.Holder == s.Run.ID {
		return s.Run, nil
	}
	if a == nil || a.head != s.Case.Head {
		return background.Run{}, errSiblings
	}
	return a.runs[s.Case.Holder], nil
}

// decideLate decides on the answer of an attempt that had already ended. If the
// call paid, that is a fact whatever has happened since. Under the operation key that
// the case is executed under now, it settles the case, a run of the case that waits
// ends as succeeded, and an open letter closes as reconciled. Under another key it
// ends the run that waits: it must not pay as well. A run that is running ends at its
// own finish.
func decideLate(m background.Move, s *postgres.Snapshot, around *siblings) (postgres.Change, error) {
	run, err := m.Apply(s.Run)
	if err != nil {
		return postgres.Change{}, err
	}
	holder, err := around.holder(s)
	if err != nil {
		return postgres.Change{}, err
	}
	if holder.Operation != s.Run.Operation && m.Reason != background.ReasonUnrecordable {
		run.UnknownOpen = s.Run.UnknownOpen // what is unknown is so under another key
	}
	change := postgres.Change{Move: m.ID, Before: s, After: &postgres.Snapshot{Case: s.Case, Run: run}}
	p := evidence(&m, &s.Run, &run)
	var effect settlement.Effect
	var fact settlement.Event
	if m.Result.Class == Executed {
		if fact, err = paymentOf(m, s, around); err != nil {
			return change, err
		}
		if fact.Repeated && m.Fact == receipts.Reconciled && run.Letter == background.LetterForked {
			return change, background.ErrLostGuard // its fork was paid: there is nothing to find any more
		}
		var state settlement.State
		if state, effect, err = settlement.Apply(s.Case.State, fact); err != nil {
			return change, err
		}
		change.After.Case.State = state
		p.UnderOlderKey = fact.Fact == settlement.ExecutedOlder
		p.Outcome = string(state.Adjudication)
		if state != s.Case.State {
			p.Settlement = snapshotOf(state)
		}
	}
	change.Drafts = append(change.Drafts, receipts.Draft{Run: run.ID, Subtype: m.Fact, Actor: actorOf(&m), At: m.At, Payload: p})
	change.Drafts = append(change.Drafts, moneyDrafts(&m, run.ID, run.Attempt, effect)...)
	if m.Result.Class != Executed {
		return change, nil
	}
	if holder.Operation == s.Run.Operation {
		return closePaid(m, change, holder), nil
	}
	if fact.Repeated {
		return change, nil // it is known: what was begun since was begun in its knowledge
	}
	return endUnpaid(m, change, holder)
}

// paymentOf is the fact of a payment that was learned late. It was made for an older
// generation when the request says so: then it is none of the present decision's.
func paymentOf(m background.Move, s *postgres.Snapshot, around *siblings) (settlement.Event, error) {
	repeated, err := around.paid(s)
	if err != nil {
		return settlement.Event{}, err
	}
	t := s.Run.Terms
	if t == nil {
		return settlement.Event{}, altered("no receipt submits the run")
	}
	e := settlement.Event{Fact: settlement.Executed, Paid: m.Result.Moved, Outcome: settlement.Outcome(t.Outcome), Repeated: repeated}
	if t.Generation < s.Case.State.Generation {
		e.Fact = settlement.ExecutedOlder
	}
	e.Older, err = around.paidOlder(s)
	return e, err
}

// beside is what a late payment tells of the run that holds the case.
func beside(m background.Move, holder background.Run) receipts.Draft {
	return receipts.Draft{Run: holder.ID, Actor: actorOf(&m), At: m.At, Payload: receipts.Payload{
		BudgetSpent: holder.BudgetSpent, Recoveries: holder.Recoveries, Attempt: holder.Attempt,
	}}
}

// closePaid ends the run that holds the case, since what it was to do is done: one
// that waits has succeeded, and an open letter closes as reconciled.
func closePaid(m background.Move, ch postgres.Change, holder background.Run) postgres.Change {
	if ch.After.Run.ID == holder.ID {
		holder = ch.After.Run
	}
	if !holder.State.Waiting() && holder.Letter != background.LetterOpen {
		return ch
	}
	after, draft := holder, beside(m, holder)
	after.LastMove, after.Class, after.UnknownOpen = m.ID, Executed, 0
	p := &draft.Payload
	draft.Subtype, p.Finding, p.Moved, p.Reference = receipts.Reconciled, string(Executed), m.Result.Moved, m.Result.Reference
	p.OutcomeClass, p.Ended = string(Executed), holder.State.Waiting()
	p.CaseUnmoved = p.Ended && ch.Before.Case.State.Progression.Ended()
	if p.Ended {
		after.State = background.Succeeded
	} else {
		after.Letter = background.LetterReconciled
	}
	if ch.After.Run.ID == holder.ID {
		ch.After.Run = after
	} else {
		ch.Others = append(ch.Others, postgres.RunChange{Before: holder, After: after})
	}
	ch.Drafts = append(ch.Drafts, draft)
	return ch
}

// endUnpaid ends the run that holds the case, if it waits, after a payment under
// another key than its own: its own would come on top. Where the case ended by that
// payment there is nothing left to do, and it is cancelled. Elsewhere it is a dead
// letter, because a person has to say what the payment means for the present decision.
func endUnpaid(m background.Move, ch postgres.Change, holder background.Run) (postgres.Change, error) {
	if !holder.State.Waiting() {
		return ch, nil
	}
	after, draft := holder, beside(m, holder)
	after.LastMove = m.ID
	p := &draft.Payload
	p.OutcomeClass, p.UnknownOpen = string(after.Class), holder.UnknownOpen
	if ch.After.Case.State.Progression.Ended() {
		draft.Subtype, p.Reason, p.CaseUnmoved, after.State = receipts.Cancelled, reasonCaseEnded, true, background.Cancelled
	} else {
		state, _, err := settlement.Apply(ch.After.Case.State, settlement.Event{Fact: settlement.DeadLettered})
		if err != nil {
			return ch, err
		}
		ch.After.Case.State = state
		after.State, after.Letter, after.DeadAt, after.Reason = background.DeadLettered, background.LetterOpen, m.At, reasonPaidOlder
		draft.Subtype, p.Attempts, p.DeadLetteredAt, p.ReasonCode, p.Reason = receipts.DeadLettered, after.Attempt, m.At, reasonPaidOlder, GatePaidOlder.Meaning()
		p.Outcome, p.DispatchReference, p.Settlement = string(state.Adjudication), dispatchReference(after), snapshotOf(state)
	}
	ch.Others = append(ch.Others, postgres.RunChange{Before: holder, After: after})
	ch.Drafts = append(ch.Drafts, draft)
	return ch, nil
}
