package replay

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication/deadletter"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/internal/casework"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/search"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
)

// counts counts letters by what a rule did to them.
type counts struct{ replayed, marked int }

// action applies one rule at one time.
type action struct {
	*activeRule
	facts    casework.ForkFacts // zero for a mark
	lineages map[background.RunID]lineage
	at       time.Time
}

// applyRuleToFound applies a rule to those of the found letters that no gate refuses.
func (s *Replayer) applyRuleToFound(ctx context.Context, r *activeRule, found []search.Letter, at time.Time) (counts, error) {
	letters, lineages, err := s.lettersForRule(ctx, r, found)
	if err != nil || ctx.Err() != nil {
		return counts{}, err
	}
	var due []journal.LetterRow
	for _, f := range letters {
		if s.ruleGate(r, f, lineages[f.Run.ID].replaysBy(r.Name), at) == "" {
			due = append(due, f)
		}
	}
	w, err := s.newAction(ctx, r, due, lineages, at)
	if err != nil {
		return counts{}, err
	}
	return s.applyRuleToDue(ctx, w, due)
}

// newAction reads what a rule decides on besides the letters and their lineages.
func (s *Replayer) newAction(ctx context.Context, r *activeRule, letters []journal.LetterRow, lineages map[background.RunID]lineage, at time.Time) (w *action, err error) {
	w = &action{activeRule: r, lineages: lineages, at: at}
	if r.Mark == nil {
		w.facts, err = s.applier.Settlements.ReadForkFacts(ctx, at, letters...)
	}
	return w, err
}

// applyRuleToDue applies a rule to letters. Letters that were locked or changed are tried alone.
// A failing letter does not block the others, unless failureLimit fail; the error is that of
// the first. If the rule was changed, nothing more is done: the changed one has its own rounds.
func (s *Replayer) applyRuleToDue(ctx context.Context, w *action, due []journal.LetterRow) (n counts, err error) {
	var failed atomic.Int32
	tried := func(letters int, err error) bool {
		if letters == 1 && !skippedByRule(err) {
			failed.Add(1)
		}
		return !errors.Is(err, journal.ErrRuleChanged) && failed.Load() < failureLimit
	}
	results, err := s.applier.ApplyMany(ctx, due, w.decide, casework.Batch{Around: s.applier.Notifying, Alone: concurrency, Tried: tried})
	if errors.Is(err, journal.ErrBusy) {
		err = nil // a later round has its turn
	}
	for _, r := range results {
		switch {
		case r.Err == nil && w.Mark != nil:
			n.marked++
		case r.Err == nil:
			n.replayed++
		case err == nil && !skippedByRule(r.Err):
			err = fmt.Errorf("letter %s: %w", r.Letter.Run.ID, r.Err)
		}
	}
	return n, err
}

// skippedByRule reports whether err is no failure of a rule at a letter: the letter or the rule
// has changed meanwhile, a gate refuses, or the letter is locked.
func skippedByRule(err error) bool {
	var refused *refusal.RefusedError
	return err == nil || errors.As(err, &refused) || slices.ContainsFunc([]error{
		casework.ErrLetterChanged, casework.ErrNotTried, journal.ErrRuleChanged, journal.ErrRuleExhausted, journal.ErrBusy, journal.ErrFingerprintHeld, refusal.ErrNotFound,
	}, func(target error) bool { return errors.Is(err, target) })
}

// lineage counts the replays of a lineage.
type lineage journal.LineageReplays

// replaysBy returns how often a rule has replayed the lineage.
func (l lineage) replaysBy(rule string) int {
	for _, b := range l.ByRule {
		if b.Rule == rule {
			return b.Replays
		}
	}
	return 0
}

// lettersForRule reads the present state of found letters, oldest death first.
func (s *Replayer) lettersForRule(ctx context.Context, r *activeRule, found []search.Letter) ([]journal.LetterRow, map[background.RunID]lineage, error) {
	if len(found) == 0 {
		return nil, nil, nil
	}
	ids := make([]background.RunID, len(found))
	for i := range found {
		ids[i] = found[i].Run.ID
	}
	letters, err := s.journal.Letters.ByID(ctx, ids...)
	if err != nil || r.Mark != nil {
		return letters, nil, err
	}
	counted, err := s.journal.Rules.LineageReplays(ctx, r.Tenant, ids)
	lineages := make(map[background.RunID]lineage, len(counted))
	for id, l := range counted {
		lineages[id] = lineage(l)
	}
	return letters, lineages, err
}

// decide returns the change that the rule makes to a letter.
func (w *action) decide(f journal.LetterRow) (journal.Change, error) {
	if w.Mark != nil {
		return w.markChange(f)
	}
	return w.forkChange(f)
}

// forkChange forks a letter as Fork does, and counts the replay in the same commit.
func (w *action) forkChange(f journal.LetterRow) (journal.Change, error) {
	lineage := w.lineages[f.Run.ID]
	reason := fmt.Sprintf("replay %d of %d by rule %s, version %d: %s", lineage.replaysBy(w.Name)+1, w.MaxReplays, w.Name, w.Version, w.Reason)
	k := casework.Forking{Facts: w.facts, Actor: w.actor(), Reason: reason, Policy: w.Policy, Run: background.RunID(casework.NewIDAt(w.at)), Replayed: true}
	ch, err := k.Decide(f)
	if err != nil {
		return ch, err
	}
	ch.SideEffect = journal.RuleAction{Tenant: w.Tenant, Rule: w.Name, Version: w.Version, Replay: &journal.RuleReplay{Root: lineage.Root, Limit: w.MaxReplays, At: w.at}}
	return ch, nil
}

// markChange marks a letter as Mark does, without overwriting existing marks.
func (w *action) markChange(f journal.LetterRow) (journal.Change, error) {
	missing := w.Mark.missing(f.Annotations, casework.ValueOr(f.Annotations.Reprocess, casework.ReprocessEligible(f.Snapshot)), casework.ValueOr(f.Annotations.Review, casework.ManualReviewRequired(f.Snapshot)))
	ch, err := casework.Marking(w.actor(), w.Mark.Reason, missing.Reprocess, missing.Review, w.at)(f)
	if err != nil {
		return ch, err
	}
	row := ch.SideEffect.(journal.AnnotationsRow)
	ch.SideEffect = journal.RuleAction{Tenant: w.Tenant, Rule: w.Name, Version: w.Version, Annotations: &row}
	return ch, nil
}

// activeRule is a rule in force.
type activeRule struct {
	StoredRule
	delay time.Duration
}

func newActive(r StoredRule) (activeRule, error) {
	delay, err := parseDelay(r.Delay)
	return activeRule{r, delay}, err
}

// searchFilter is the filter with which the rule searches at a time. It excludes letters that the
// rule's gates always refuse, so that they are not read again in every round.
func (r *activeRule) searchFilter(at time.Time) deadletter.Filter {
	f, exclude := r.dueFilter(at), false
	switch m := r.Mark; {
	case m == nil:
		f.Held, f.Review = &exclude, &exclude
		if f.Family == "" || f.Family == casework.Family {
			f.Class = escrow.NotExecuted
		}
	case m.Review == nil && f.Reprocess == nil:
		other := !*m.Reprocess
		f.Reprocess = &other
	case m.Reprocess == nil && f.Review == nil:
		other := !*m.Review
		f.Review = &other
	}
	return f
}

// dueFilter is the rule's filter restricted to letters whose delay is over at a time.
func (r *activeRule) dueFilter(at time.Time) deadletter.Filter {
	f := r.Filter
	f.Status = background.LetterOpen
	if to := at.Add(-r.delay + time.Microsecond); f.To.IsZero() || to.Before(f.To) {
		f.To = to
	}
	return f
}

// ruleGate returns the gate that refuses a letter which the rule's filter found, or "". It checks
// again those members of the filter that can have changed since. replays is how often the rule
// has replayed the lineage.
func (s *Replayer) ruleGate(r *activeRule, f journal.LetterRow, replays int, at time.Time) refusal.Gate {
	reprocess, review := casework.ValueOr(f.Annotations.Reprocess, casework.ReprocessEligible(f.Snapshot)), casework.ValueOr(f.Annotations.Review, casework.ManualReviewRequired(f.Snapshot))
	want := r.Filter
	switch {
	case f.Run.Tenant != r.Tenant:
		return refusal.GateNotSelected
	case f.Run.State != background.DeadLettered:
		return refusal.GateNotALetter
	case f.Run.Letter != background.LetterOpen:
		return refusal.GateNotOpen
	case f.Run.DeadAt.Add(r.delay).After(at):
		return refusal.GateNotDue
	case want.Held != nil && *want.Held != f.Annotations.Held, want.Reprocess != nil && *want.Reprocess != reprocess, want.Review != nil && *want.Review != review,
		want.Class != "" && want.Class != f.Run.Class:
		return refusal.GateNotSelected
	case r.Mark != nil:
		if r.Mark.missing(f.Annotations, reprocess, review) == (Mark{}) {
			return refusal.GateMarked
		}
		return ""
	case f.Case.Kind == journal.KindSettlement && (f.Run.Class != escrow.NotExecuted || f.Run.UnknownOpen > 0 || f.Run.HasOutstandingCall()):
		return refusal.GateMayBeExecuted
	case f.Annotations.Held:
		return refusal.GateHeld
	case review, f.Run.CancelRequested: // that the money was found unpaid since does not recall the request
		return refusal.GateReview
	case f.Annotations.Reprocess != nil && !*f.Annotations.Reprocess:
		return refusal.GateNotEligible
	case replays >= r.MaxReplays:
		return refusal.GateReplaysSpent
	}
	return s.applier.Settlements.ForkGate(f.Snapshot, at, "")
}

// missing returns the part of a mark to set: what no person has set, and is not already
// so.
func (m *Mark) missing(d journal.Annotations, reprocess, review bool) (out Mark) {
	if m.Reprocess != nil && d.Reprocess == nil && *m.Reprocess != reprocess {
		out.Reprocess = m.Reprocess
	}
	if m.Review != nil && d.Review == nil && *m.Review != review {
		out.Review = m.Review
	}
	return out
}
