package postadjudication

import (
	"context"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/postgres"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/settlement"
)

// recordLate records the answer of an attempt that had already ended. If the call
// paid, that is a fact whatever has happened since: it settles the case, a run of
// the case that waits ends as succeeded, and an open letter closes as reconciled.
// A run that is running ends at its own finish.
func (f *family) recordLate(ctx context.Context, m background.Move) (background.Run, error) {
	for {
		runs, err := f.runsOf(ctx, m.Run)
		if err != nil {
			return m.Run, err
		}
		s, err := f.journal.Apply(ctx, m.Run.ID, m.ID, func(s postgres.Snapshot) (postgres.Change, error) { return decideLate(m, s, runs) })
		if err != errStaleRuns {
			return s.Run, err
		}
	}
}

func (f *family) runsOf(ctx context.Context, r background.Run) (map[background.RunID]background.Run, error) {
	all, err := f.journal.CaseRuns(ctx, r.Tenant, r.Case)
	if err != nil {
		return nil, err
	}
	out := make(map[background.RunID]background.Run, len(all))
	for _, s := range all {
		out[s.Run.ID] = s.Run
	}
	return out, nil
}

// errStaleRuns asks for the case's other runs to be read again.
var errStaleRuns = refusal("stale")

func decideLate(m background.Move, s postgres.Snapshot, runs map[background.RunID]background.Run) (postgres.Change, error) {
	run, err := m.Apply(s.Run)
	if err != nil {
		return postgres.Change{}, err
	}
	change := postgres.Change{Move: m.ID, Before: s, After: postgres.Snapshot{Case: s.Case, Run: run}}
	p := evidence(m, s.Run, run)
	var effect settlement.Effect
	if m.Result.Class == Executed {
		var state settlement.State
		if state, effect, err = settleLate(m, s, runs); err != nil {
			return change, err
		}
		change.After.Case.State, change.Commits = state, effect.Committed
		p.Outcome = string(state.Adjudication)
		if state != s.Case.State {
			p.Settlement = snapshotOf(state)
		}
	}
	change.Drafts = append(change.Drafts, receipts.Draft{Run: run.ID, Subtype: m.Fact, Actor: actorOf(m), At: m.At, Payload: p})
	change.Drafts = append(change.Drafts, moneyDrafts(m, run, effect)...)
	if m.Result.Class != Executed {
		return change, nil
	}
	return closeHolder(m, change, runs)
}

// settleLate is the settlement after a payment that was learnt late. It counts
// once per operation key: not if a run under the same key has told it already.
func settleLate(m background.Move, s postgres.Snapshot, runs map[background.RunID]background.Run) (settlement.State, settlement.Effect, error) {
	e := settlement.Event{Fact: settlement.Executed, Paid: m.Result.Moved, Outcome: s.Case.State.Adjudication}
	for _, r := range runs {
		if r.Operation == s.Run.Operation && r.Class == Executed {
			e.Repeated = true
		}
	}
	if outcome, err := callOf(s.Run, 0); err == nil && outcome.Outcome != "" {
		e.Outcome = outcome.Outcome
	}
	return settlement.Apply(s.Case.State, e)
}

// closeHolder ends the run that holds the case, if it waits or is an open letter:
// what it was to do is done.
func closeHolder(m background.Move, ch postgres.Change, runs map[background.RunID]background.Run) (postgres.Change, error) {
	holder := ch.After.Run
	same := ch.Before.Case.Holder == holder.ID
	if !same {
		var ok bool
		if holder, ok = runs[ch.Before.Case.Holder]; !ok {
			return ch, errStaleRuns
		}
	}
	before := holder
	switch {
	case holder.State.Waiting():
		holder.State = background.Succeeded
	case holder.Letter == background.LetterOpen:
		holder.Letter = background.LetterReconciled
	default:
		return ch, nil
	}
	holder.LastMove, holder.Class, holder.UnknownOpen = m.ID, background.Executed, 0
	if same {
		ch.After.Run = holder
	} else {
		ch.Others = append(ch.Others, postgres.RunChange{Before: before, After: holder})
	}
	ch.Drafts = append(ch.Drafts, receipts.Draft{Run: holder.ID, Subtype: receipts.Reconciled, Actor: actorOf(m), At: m.At, Payload: receipts.Payload{
		Finding: string(Executed), Moved: m.Result.Moved, Reference: m.Result.Reference, OutcomeClass: string(Executed),
		BudgetSpent: holder.BudgetSpent, Recoveries: holder.Recoveries, Attempt: holder.Attempt,
	}})
	return ch, nil
}
