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

// ruleCounts is what became of letters.
type ruleCounts struct{ replayed, marked int }

func (a *ruleCounts) add(b ruleCounts) {
	a.replayed, a.marked = a.replayed+b.replayed, a.marked+b.marked
}

// ruleAction is what is done by a rule at a moment.
type ruleAction struct {
	*activeRule
	settlements *settlementFamily
	lineages    map[background.RunID]ruleLineage
	at          time.Time
}

// applyRuleToFound does what a rule says with those of the letters that were found which no
// gate keeps it from: together, and what that leaves each alone. A letter that can't be
// acted on keeps no other from its turn, unless there are many; what went wrong is told
// of the first.
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

// applyRuleEach does what a rule says with letters, each in a commit of its own.
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

// ruleLineage is a lineage as the rules have it.
type ruleLineage postgres.LineageReplays

// replaysBy is how often a rule has replayed the lineage.
func (l ruleLineage) replaysBy(rule string) int {
	for _, b := range l.ByRule {
		if b.Rule == rule {
			return b.Replays
		}
	}
	return 0
}

// lettersForRule reads letters that were found as they are now, oldest death first.
func (s *Service) lettersForRule(ctx context.Context, r *activeRule, found []postgres.FoundLetter) ([]postgres.LetterRow, map[background.RunID]ruleLineage, error) {
	if len(found) == 0 {
		return nil, nil, nil
	}
	ids := make([]background.RunID, len(found))
	for i := range found {
		ids[i] = found[i].Run.ID
	}
	letters, err := s.journal.LetterRowsByID(ctx, ids...)
	if err != nil || r.Mark != nil {
		return letters, nil, err
	}
	counted, err := s.journal.LineageReplays(ctx, r.Tenant, ids)
	lineages := make(map[background.RunID]ruleLineage, len(counted))
	for id, l := range counted {
		lineages[id] = ruleLineage(l)
	}
	return letters, lineages, err
}

// applyRuleToLetter acts on one letter. That somebody else has moved it, or has changed the
// rule, or that the database is busy with it, is no failure.
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

// commitRuleChange moves one letter as it was read, in a commit of its own.
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

// change is what the rule makes of a letter as it was read.
func (w *ruleAction) change(f postgres.LetterRow, transition background.TransitionID) (postgres.Change, error) {
	if w.Mark != nil {
		return w.markChange(f, transition)
	}
	return w.forkChange(f, transition)
}

// forkChange forks a letter as Fork does, and counts that in the same commit.
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

// markChange marks a letter as Mark does, as far as nobody has.
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

// applyRuleBatch does what a rule says with letters that no gate keeps it from, in one
// commit, and gives those that it left: the commit was refused, or they were locked or
// have moved since they were read. They are to be tried alone. Once the rule has been
// changed none are left: nothing is done by the old one.
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
				continue // a gate of the moment: alone it would be refused as well
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
		s.log.Debug("letters were not moved together by a rule, each is tried alone", zap.String("tenant", w.Tenant), zap.String("rule", w.Name), zap.Error(err))
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
