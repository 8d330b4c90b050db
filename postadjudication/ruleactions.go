package postadjudication

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/postgres"
	"github.com/recourse-dev/recourse/receipts"
)

// ruleCounts counts letters by what a rule did to them.
type ruleCounts struct{ replayed, marked int }

func (a *ruleCounts) add(b ruleCounts) {
	a.replayed, a.marked = a.replayed+b.replayed, a.marked+b.marked
}

// ruleAction applies one rule at one time.
type ruleAction struct {
	*activeRule
	settlements *settlementFamily
	lineages    map[background.RunID]ruleLineage
	at          time.Time
}

// applyRuleToFound applies a rule to those of the found letters that no gate refuses: in one
// commit, then the remaining ones each alone. A failing letter does not block the others,
// unless ruleFailureLimit fail; the error is that of the first.
func (s *Service) applyRuleToFound(ctx context.Context, r *activeRule, found []postgres.FoundLetter, at time.Time) (n ruleCounts, err error) {
	letters, lineages, err := s.lettersForRule(ctx, r, found)
	if err != nil || ctx.Err() != nil {
		return n, err
	}
	w := &ruleAction{r, s.settlements, lineages, at}
	var due []postgres.LetterRow
	for _, f := range letters {
		if s.ruleGate(r, f, lineages[f.Run.ID].replaysBy(r.Name), at) == "" {
			due = append(due, f)
		}
	}
	n, left := s.applyRuleBatch(ctx, w, due)
	rest, err := s.applyRuleEach(ctx, w, left)
	n.add(rest)
	return n, err
}

// applyRuleEach applies a rule to letters, each in a commit of its own.
func (s *Service) applyRuleEach(ctx context.Context, w *ruleAction, letters []postgres.LetterRow) (n ruleCounts, err error) {
	var wg sync.WaitGroup
	var mu sync.Mutex
	var failed []error
	next := make(chan postgres.LetterRow)
	for range min(ruleConcurrency, len(letters)) {
		wg.Go(func() {
			for f := range next {
				done, err := s.applyRuleToLetter(ctx, w, f)
				mu.Lock()
				n.add(done)
				if err != nil {
					failed = append(failed, fmt.Errorf("letter %s: %w", f.Run.ID, err))
				}
				mu.Unlock()
			}
		})
	}
	tooManyFailed := func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(failed) >= ruleFailureLimit
	}
	for _, f := range letters {
		if ctx.Err() != nil || tooManyFailed() {
			break
		}
		next <- f
	}
	close(next)
	wg.Wait()
	if len(failed) > 0 {
		err = failed[0]
	}
	return n, err
}

// ruleLineage counts the replays of a lineage.
type ruleLineage postgres.LineageReplays

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
func (s *Service) lettersForRule(ctx context.Context, r *activeRule, found []postgres.FoundLetter) ([]postgres.LetterRow, map[background.RunID]ruleLineage, error) {
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

// applyRuleToLetter applies a rule to one letter. It is no error if the letter or the rule has
// changed meanwhile, a gate refuses, or the letter is locked.
func (s *Service) applyRuleToLetter(ctx context.Context, w *ruleAction, f postgres.LetterRow) (n ruleCounts, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panicked: %v", p)
		}
	}()
	err = s.commitRuleChange(ctx, w, f)
	var refused *RefusedError
	switch {
	case err == nil && w.Mark != nil:
		return ruleCounts{marked: 1}, nil
	case err == nil:
		return ruleCounts{replayed: 1}, nil
	case errors.Is(err, errCaseChanged), errors.Is(err, postgres.ErrRuleChanged), errors.Is(err, postgres.ErrRuleExhausted), errors.Is(err, postgres.ErrBusy), errors.As(err, &refused),
		errors.Is(err, ErrNotFound):
		return ruleCounts{}, nil
	}
	return ruleCounts{}, err
}

// commitRuleChange changes one letter if it is as it was read, in a commit of its own.
func (s *Service) commitRuleChange(ctx context.Context, w *ruleAction, f postgres.LetterRow) error {
	var made postgres.Change
	transition := newID()
	_, err := s.journal.Apply(ctx, f.Run.ID, transition, func(now *postgres.Snapshot) (postgres.Change, error) {
		if now.Case.Head != f.Case.Head {
			return postgres.Change{}, errCaseChanged
		}
		var err error
		made, err = w.change(f, transition)
		return made, err
	})
	if err == nil && made.NewRun != nil {
		s.notifyRuns(ctx, made.NewRun)
	}
	return err
}

// change returns the change that the rule makes to a letter.
func (w *ruleAction) change(f postgres.LetterRow, transition background.TransitionID) (postgres.Change, error) {
	if w.Mark != nil {
		return w.markChange(f, transition)
	}
	return w.forkChange(f, transition)
}

// forkChange forks a letter as Fork does, and counts the replay in the same commit.
func (w *ruleAction) forkChange(f postgres.LetterRow, transition background.TransitionID) (postgres.Change, error) {
	lineage := w.lineages[f.Run.ID]
	reason := fmt.Sprintf("replay %d of %d by rule %s, version %d: %s", lineage.replaysBy(w.Name)+1, w.MaxReplays, w.Name, w.Version, w.Reason)
	k := forkAction{ForkRequest: ForkRequest{Actor: w.actor(), Reason: reason, Policy: w.Policy}, run: background.RunID(newID()), transition: transition, at: w.at, family: w.settlements}
	ch, err := k.decide(&f.Snapshot)
	if err != nil {
		return ch, err
	}
	ch.SideEffect = postgres.RuleAction{Tenant: w.Tenant, Rule: w.Name, Version: w.Version, Replay: &postgres.RuleReplay{Root: lineage.Root, Limit: w.MaxReplays, At: w.at}}
	asked := receipts.Draft{Run: f.Run.ID, Subtype: receipts.Replayed, Actor: w.actor(), At: w.at, Payload: receipts.Payload{NewRun: k.run, Reason: cleanText(reason, 1024)}}
	ch.Drafts = append([]receipts.Draft{asked}, ch.Drafts...)
	return ch, nil
}

// markChange marks a letter as Mark does, without overwriting existing marks.
func (w *ruleAction) markChange(f postgres.LetterRow, transition background.TransitionID) (postgres.Change, error) {
	missing := w.Mark.missing(f.Annotations, valueOr(f.Annotations.Reprocess, reprocessEligible(f.Snapshot)), valueOr(f.Annotations.Review, manualReviewRequired(f.Snapshot)))
	q := MarkRequest{Actor: w.actor(), Reason: w.Mark.Reason, ReprocessEligible: missing.Reprocess, ManualReviewRequired: missing.Review}
	ch, err := q.setMarks(w.at)(f, transition)
	if err != nil {
		return ch, err
	}
	row := ch.SideEffect.(postgres.AnnotationsRow)
	ch.SideEffect = postgres.RuleAction{Tenant: w.Tenant, Rule: w.Name, Version: w.Version, Annotations: &row}
	return ch, nil
}

// applyRuleBatch applies a rule to letters in one commit, and returns those left to try alone:
// all of them if the commit was refused, else those that were locked or changed since they
// were read. If the rule was changed, none are left: the old rule does nothing more.
func (s *Service) applyRuleBatch(ctx context.Context, w *ruleAction, due []postgres.LetterRow) (n ruleCounts, left []postgres.LetterRow) {
	if len(due) < 2 {
		return n, due
	}
	var written []bool
	changes := make([]postgres.Change, 0, len(due))
	err := recoverPanic(func() (err error) {
		for _, f := range due {
			ch, err := w.change(f, newID())
			var refused *RefusedError
			if errors.As(err, &refused) {
				continue // a gate that refuses now would refuse it alone as well
			}
			if err != nil {
				return err
			}
			changes = append(changes, ch)
		}
		if len(changes) > 0 {
			written, err = s.journal.ApplyLetterBatch(ctx, changes)
		}
		return err
	})
	switch {
	case errors.Is(err, postgres.ErrRuleChanged):
		return n, nil
	case err != nil:
		s.log.Debug("a rule could not change letters in one commit, trying each alone", zap.String("tenant", w.Tenant), zap.String("rule", w.Name), zap.Error(err))
		return n, due
	}
	byRun := make(map[background.RunID]postgres.LetterRow, len(due))
	for _, f := range due {
		byRun[f.Run.ID] = f
	}
	var created []*background.Run
	for i, ok := range written {
		switch {
		case !ok:
			left = append(left, byRun[changes[i].Before.Run.ID])
		case w.Mark != nil:
			n.marked++
		default:
			n.replayed++
			created = append(created, changes[i].NewRun)
		}
	}
	s.notifyRuns(ctx, created...)
	return n, left
}
