package postadjudication

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
	"github.com/recourse-dev/recourse/postadjudication/internal/validate"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
)

// ruleCounts counts letters by what a rule did to them.
type ruleCounts struct{ replayed, marked int }

// ruleAction applies one rule at one time.
type ruleAction struct {
	*activeRule
	settlements *casework.Settlements
	lineages    map[background.RunID]ruleLineage
	at          time.Time
}

// applyRuleToFound applies a rule to those of the found letters that no gate refuses.
func (s *ruleStore) applyRuleToFound(ctx context.Context, r *activeRule, found []search.Letter, at time.Time) (ruleCounts, error) {
	letters, lineages, err := s.lettersForRule(ctx, r, found)
	if err != nil || ctx.Err() != nil {
		return ruleCounts{}, err
	}
	var due []journal.LetterRow
	for _, f := range letters {
		if s.ruleGate(r, f, lineages[f.Run.ID].replaysBy(r.Name), at) == "" {
			due = append(due, f)
		}
	}
	return s.applyRuleToDue(ctx, &ruleAction{r, s.cases.Settlements, lineages, at}, due)
}

// applyRuleToDue applies a rule to letters. Letters that were locked or changed are tried alone.
// A failing letter does not block the others, unless ruleFailureLimit fail; the error is that of
// the first. If the rule was changed, nothing more is done: the changed one has its own rounds.
func (s *ruleStore) applyRuleToDue(ctx context.Context, w *ruleAction, due []journal.LetterRow) (n ruleCounts, err error) {
	var failed atomic.Int32
	tried := func(letters int, err error) bool {
		if letters == 1 && !skippedByRule(err) {
			failed.Add(1)
		}
		return !errors.Is(err, journal.ErrRuleChanged) && failed.Load() < ruleFailureLimit
	}
	results, err := s.cases.ApplyMany(ctx, due, w.decide, casework.Batch{Around: s.cases.Notifying, Alone: ruleConcurrency, Tried: tried})
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
		casework.ErrLetterChanged, casework.ErrNotTried, journal.ErrRuleChanged, journal.ErrRuleExhausted, journal.ErrBusy, refusal.ErrNotFound,
	}, func(target error) bool { return errors.Is(err, target) })
}

// ruleLineage counts the replays of a lineage.
type ruleLineage journal.LineageReplays

// replaysBy returns how often a rule has replayed the lineage.
func (l ruleLineage) replaysBy(rule string) int {
	for _, b := range l.ByRule {
		if b.Rule == rule {
			return b.Replays
		}
	}
	return 0
}

// lettersForRule reads the present state of found letters, oldest death first.
func (s *ruleStore) lettersForRule(ctx context.Context, r *activeRule, found []search.Letter) ([]journal.LetterRow, map[background.RunID]ruleLineage, error) {
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
	lineages := make(map[background.RunID]ruleLineage, len(counted))
	for id, l := range counted {
		lineages[id] = ruleLineage(l)
	}
	return letters, lineages, err
}

// decide returns the change that the rule makes to a letter.
func (w *ruleAction) decide(f journal.LetterRow) (journal.Change, error) {
	if w.Mark != nil {
		return w.markChange(f)
	}
	return w.forkChange(f)
}

// forkChange forks a letter as Fork does, and counts the replay in the same commit.
func (w *ruleAction) forkChange(f journal.LetterRow) (journal.Change, error) {
	lineage := w.lineages[f.Run.ID]
	reason := fmt.Sprintf("replay %d of %d by rule %s, version %d: %s", lineage.replaysBy(w.Name)+1, w.MaxReplays, w.Name, w.Version, w.Reason)
	k := casework.Forking{Family: w.settlements, Actor: w.actor(), Reason: reason, Policy: w.Policy, Run: background.RunID(casework.NewID()), At: w.at, Replayed: true}
	ch, err := k.Decide(f)
	if err != nil {
		return ch, err
	}
	ch.SideEffect = journal.RuleAction{Tenant: w.Tenant, Rule: w.Name, Version: w.Version, Replay: &journal.RuleReplay{Root: lineage.Root, Limit: w.MaxReplays, At: w.at}}
	return ch, nil
}

// markChange marks a letter as Mark does, without overwriting existing marks.
func (w *ruleAction) markChange(f journal.LetterRow) (journal.Change, error) {
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

func newActiveRule(r StoredRule) (activeRule, error) {
	delay, err := ruleDelay(r.Delay)
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
func (s *ruleStore) ruleGate(r *activeRule, f journal.LetterRow, replays int, at time.Time) refusal.Gate {
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
		if r.Mark.missing(f.Annotations, reprocess, review) == (RuleMark{}) {
			return refusal.GateMarked
		}
		return ""
	case f.Case.Kind == journal.KindSettlement && (f.Run.Class != escrow.NotExecuted || f.Run.UnresolvedUnknowns > 0 || f.Run.HasOutstandingCall()):
		return refusal.GateMayBeExecuted
	case f.Annotations.Held:
		return refusal.GateHeld
	case review:
		return refusal.GateReview
	case f.Annotations.Reprocess != nil && !*f.Annotations.Reprocess:
		return refusal.GateNotEligible
	case replays >= r.MaxReplays:
		return refusal.GateReplaysSpent
	}
	return s.cases.Settlements.ForkGate(f.Snapshot, at)
}

// missing returns the part of a mark to set: what no person has set, and is not already
// so.
func (m *RuleMark) missing(d journal.Annotations, reprocess, review bool) (out RuleMark) {
	if m.Reprocess != nil && d.Reprocess == nil && *m.Reprocess != reprocess {
		out.Reprocess = m.Reprocess
	}
	if m.Review != nil && d.Review == nil && *m.Review != review {
		out.Review = m.Review
	}
	return out
}

// RuleTrialLimit is the maximum number of letters that Try reads, the oldest first.
const RuleTrialLimit = 10_000

// ruleSamples is how many of the ready letters RuleTrial shows.
const ruleSamples = 10

// RuleTrial counts what a rule would do now.
type RuleTrial struct {
	Matched int64                  `json:"matched"` // open letters that the filter matches; exact
	Scanned int64                  `json:"looked"`  // how many of them were checked, the oldest first
	More    bool                   `json:"more"`    // the counts below do not cover all of them
	Ready   int64                  `json:"ready"`   // the rule would replay or mark them now
	Money   map[string]int64       `json:"money"`   // reserved for the ready ones: currency -> minor units
	Refused map[refusal.Gate]int64 `json:"refused,omitempty"`
	Letters []deadletter.Letter    `json:"letters,omitempty"` // the first of the ready ones
}

// Try returns what a rule would do if it were set and enabled. It changes nothing. Earlier
// replays by a rule of the same name count.
func (o Rules) Try(ctx context.Context, rule Rule) (RuleTrial, error) {
	out := RuleTrial{Money: map[string]int64{}, Refused: map[refusal.Gate]int64{}}
	if err := validate.Text("tenant", o.tenant, 128); err != nil {
		return out, err
	}
	if err := rule.Validate(); err != nil {
		return out, err
	}
	r, err := newActiveRule(StoredRule{Rule: rule, Tenant: o.tenant})
	if err != nil {
		return out, err
	}
	if err := o.s.index.Search.CatchUp(ctx); err != nil {
		return out, err
	}
	at := o.s.now()
	filter := rule.Filter
	filter.Status = background.LetterOpen
	counts, err := o.s.index.Search.Count(ctx, o.tenant, o.s.index.JournalFilter(filter, at))
	if err != nil {
		return out, err
	}
	out.Matched = counts[string(background.LetterOpen)]
	var after search.Position
	for out.More = true; out.More && out.Scanned < RuleTrialLimit; {
		var found []search.Letter
		if found, out.More, after, err = o.s.index.Search.Search(ctx, o.tenant, o.s.index.JournalFilter(filter, at), deadletter.Orders[deadletter.OldestFirst], after, rulePage); err != nil {
			return out, err
		}
		letters, lineages, err := o.s.lettersForRule(ctx, &r, found)
		if err != nil {
			return out, err
		}
		listed := make(map[background.RunID]search.Letter, len(found))
		for _, l := range found {
			listed[l.Run.ID] = l
		}
		for _, f := range letters {
			out.Scanned++
			if gate := o.s.ruleGate(&r, f, lineages[f.Run.ID].replaysBy(r.Name), at); gate != "" {
				out.Refused[gate]++
				continue
			}
			out.Ready++
			if f.Case.Currency != "" {
				out.Money[f.Case.Currency] += f.Case.State.Reserved
			}
			if len(out.Letters) < ruleSamples {
				out.Letters = append(out.Letters, o.s.index.LetterOf(listed[f.Run.ID]))
			}
		}
	}
	return out, nil
}
