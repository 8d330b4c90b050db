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
	head receipts.Head
	runs map[background.RunID]background.Run
}

// errSiblings asks for the siblings to be read, or read again.
var errSiblings = errors.New("postadjudication: the runs of the case are not those of its head")

func (f *family) siblingsOf(ctx context.Context, r background.Run) (*siblings, error) {
	now, err := f.journal.Snapshot(ctx, r.ID)
	if err != nil {
		return nil, err
	}
	all, err := f.journal.CaseRuns(ctx, now.Run.Tenant, now.Case.ID)
	if err != nil {
		return nil, err
	}
	out := &siblings{head: all[0].Case.Head, runs: make(map[background.RunID]background.Run, len(all))}
	for _, s := range all {
		out.runs[s.Run.ID] = s.Run
	}
	return out, nil
}

// paid reports whether the payment under a run's operation key is on record: a
// payment counts once per key, however many runs and answers tell of it.
func (a *siblings) paid(s *postgres.Snapshot) (bool, error) {
	if a == nil || a.head != s.Case.Head {
		return false, errSiblings
	}
	for _, r := range a.runs {
		if r.Operation == s.Run.Operation && r.Class == Executed {
			return true, nil
		}
	}
	return false, nil
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
// call paid, that is a fact whatever has happened since: it settles the case, a run
// of the case that waits ends as succeeded, and an open letter closes as
// reconciled. A run that is running ends at its own finish.
func decideLate(m background.Move, s *postgres.Snapshot, around *siblings) (postgres.Change, error) {
	run, err := m.Apply(s.Run)
	if err != nil {
		return postgres.Change{}, err
	}
	holder, err := around.holder(s)
	if err != nil {
		return postgres.Change{}, err
	}
	if holder.Operation != s.Run.Operation {
		run.UnknownOpen = s.Run.UnknownOpen // what is unknown is so under another key
	}
	change := postgres.Change{Move: m.ID, Before: s, After: &postgres.Snapshot{Case: s.Case, Run: run}}
	p := evidence(&m, &s.Run, &run)
	var effect settlement.Effect
	if m.Result.Class == Executed {
		var state settlement.State
		if state, effect, err = settleLate(m, s, around); err != nil {
			return change, err
		}
		change.After.Case.State, change.Commits = state, effect.Committed
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
	return closeHolder(m, change, holder), nil
}

// settleLate is the settlement after a payment that was learned late.
func settleLate(m background.Move, s *postgres.Snapshot, around *siblings) (settlement.State, settlement.Effect, error) {
	repeated, err := around.paid(s)
	if err != nil {
		return s.Case.State, settlement.Effect{}, err
	}
	call, err := callOf(s.Run, m.Run.Attempt)
	if err != nil {
		return s.Case.State, settlement.Effect{}, err
	}
	return settlement.Apply(s.Case.State, settlement.Event{Fact: settlement.Executed, Paid: m.Result.Moved, Outcome: call.Outcome, Repeated: repeated})
}

// closeHolder ends the run that holds the case, if what it was to do is done: a
// payment under its own operation key ends it as succeeded and closes its letter as
// reconciled. A payment under an older key leaves it alone, unless the case ended by
// it: then a run that waits has nothing left to do, and is cancelled.
func closeHolder(m background.Move, ch postgres.Change, holder background.Run) postgres.Change {
	if ch.After.Run.ID == holder.ID {
		holder = ch.After.Run
	}
	before, after := holder, holder
	draft := receipts.Draft{Run: holder.ID, Actor: actorOf(&m), At: m.At, Payload: receipts.Payload{
		BudgetSpent: holder.BudgetSpent, Recoveries: holder.Recoveries, Attempt: holder.Attempt,
	}}
	p := &draft.Payload
	switch paid := holder.Operation == ch.Before.Run.Operation; {
	case paid && (holder.State.Waiting() || holder.Letter == background.LetterOpen):
		draft.Subtype, p.Finding, p.Moved, p.Reference = receipts.Reconciled, string(Executed), m.Result.Moved, m.Result.Reference
		p.Ended = holder.State.Waiting()
		if after.Class, after.UnknownOpen = Executed, 0; p.Ended {
			after.State = background.Succeeded
		} else {
			after.Letter = background.LetterReconciled
		}
	case !paid && holder.State.Waiting() && ch.After.Case.State.Progression.Ended():
		draft.Subtype, p.Reason, p.UnknownOpen = receipts.Cancelled, reasonCaseEnded, holder.UnknownOpen
		after.State = background.Cancelled
	default:
		return ch
	}
	after.LastMove, p.OutcomeClass = m.ID, string(after.Class)
	if ch.After.Run.ID == holder.ID {
		ch.After.Run = after
	} else {
		ch.Others = append(ch.Others, postgres.RunChange{Before: before, After: after})
	}
	ch.Drafts = append(ch.Drafts, draft)
	return ch
}
