package postadjudication

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/postgres"
	"github.com/recourse-dev/recourse/receipts"
)

// acted is what became of letters.
type acted struct{ replayed, marked int }

func (a *acted) add(b acted) { a.replayed, a.marked = a.replayed+b.replayed, a.marked+b.marked }

// byRule is what is done by a rule at a moment.
type byRule struct {
	*ruling
	settlements *family
	lines       map[background.RunID]ruledLine
	at          time.Time
}

// actByRule does what a rule says with those of the letters that were found which no
// gate keeps it from: together, and what that leaves each alone. A letter that can't be
// acted on keeps no other from its turn, unless there are many; what went wrong is told
// of the first.
func (s *Service) actByRule(ctx context.Context, r *ruling, found []postgres.FoundLetter, at time.Time) (n acted, err error) {
	letters, lines, err := s.ruledLetters(ctx, r, found)
	if err != nil || ctx.Err() != nil {
		return n, err
	}
	w := &byRule{r, s.settlements, lines, at}
	var due []postgres.Filed
	for _, f := range letters {
		if s.ruleGate(r, f, lines[f.Run.ID].by(r.Name), at) == "" {
			due = append(due, f)
		}
	}
	n, left := s.togetherByRule(ctx, w, due)
	rest, err := s.eachByRule(ctx, w, left)
	n.add(rest)
	return n, err
}

// eachByRule does what a rule says with letters, each in a commit of its own.
func (s *Service) eachByRule(ctx context.Context, w *byRule, letters []postgres.Filed) (n acted, err error) {
	var all sync.WaitGroup
	var mu sync.Mutex
	var failed []error
	next := make(chan postgres.Filed)
	for range min(ruleAtOne, len(letters)) {
		all.Go(func() {
			for f := range next {
				did, err := s.oneByRule(ctx, w, f)
				mu.Lock()
				n.add(did)
				if err != nil {
					failed = append(failed, fmt.Errorf("letter %s: %w", f.Run.ID, err))
				}
				mu.Unlock()
			}
		})
	}
	many := func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(failed) >= ruleFails
	}
	for _, f := range letters {
		if ctx.Err() != nil || many() {
			break
		}
		next <- f
	}
	close(next)
	all.Wait()
	if len(failed) > 0 {
		err = failed[0]
	}
	return n, err
}

// ruledLine is a lineage as the rules have it.
type ruledLine postgres.ReplayedLine

// by is how often a rule has replayed the lineage.
func (l ruledLine) by(rule string) int {
	for _, b := range l.By {
		if b.Rule == rule {
			return b.Replays
		}
	}
	return 0
}

// ruledLetters reads letters that were found as they are now, oldest death first.
func (s *Service) ruledLetters(ctx context.Context, r *ruling, found []postgres.FoundLetter) ([]postgres.Filed, map[background.RunID]ruledLine, error) {
	if len(found) == 0 {
		return nil, nil, nil
	}
	ids := make([]background.RunID, len(found))
	for i := range found {
		ids[i] = found[i].Run.ID
	}
	letters, err := s.journal.Filed(ctx, ids...)
	if err != nil || r.Mark != nil {
		return letters, nil, err
	}
	counted, err := s.journal.ReplayedLines(ctx, r.Tenant, ids)
	lines := make(map[background.RunID]ruledLine, len(counted))
	for id, l := range counted {
		lines[id] = ruledLine(l)
	}
	return letters, lines, err
}

// oneByRule acts on one letter. That somebody else has moved it, or has changed the
// rule, or that the database is busy with it, is no failure.
func (s *Service) oneByRule(ctx context.Context, w *byRule, f postgres.Filed) (n acted, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panicked: %v", p)
		}
	}()
	err = s.aloneByRule(ctx, w, f)
	var refused *RefusedError
	switch {
	case err == nil && w.Mark != nil:
		return acted{marked: 1}, nil
	case err == nil:
		return acted{replayed: 1}, nil
	case errors.Is(err, errMovedOn), errors.Is(err, postgres.ErrRuleChanged), errors.Is(err, postgres.ErrRuleSpent), errors.Is(err, postgres.ErrBusy), errors.As(err, &refused),
		errors.Is(err, ErrNotFound):
		return acted{}, nil
	}
	return acted{}, err
}

// aloneByRule moves one letter as it was read, in a commit of its own.
func (s *Service) aloneByRule(ctx context.Context, w *byRule, f postgres.Filed) error {
	var made postgres.Change
	move := newID()
	_, err := s.journal.Apply(ctx, f.Run.ID, move, func(now *postgres.Snapshot) (postgres.Change, error) {
		if now.Case.Head != f.Case.Head {
			return postgres.Change{}, errMovedOn
		}
		var err error
		made, err = w.change(f, move)
		return made, err
	})
	if err == nil && made.New != nil {
		s.ringFor(ctx, made.New)
	}
	return err
}

// change is what the rule makes of a letter as it was read.
func (w *byRule) change(f postgres.Filed, move background.MoveID) (postgres.Change, error) {
	if w.Mark != nil {
		return w.marking(f, move)
	}
	return w.forking(f, move)
}

// forking forks a letter as Fork does, and counts that in the same commit.
func (w *byRule) forking(f postgres.Filed, move background.MoveID) (postgres.Change, error) {
	line := w.lines[f.Run.ID]
	reason := fmt.Sprintf("replay %d of %d by rule %s, version %d: %s", line.by(w.Name)+1, w.MaxReplays, w.Name, w.Version, w.Reason)
	k := fork{ForkRequest: ForkRequest{Actor: w.actor(), Reason: reason, Policy: w.Policy}, run: background.RunID(newID()), move: move, at: w.at, family: w.settlements}
	ch, err := k.decide(&f.Snapshot)
	if err != nil {
		return ch, err
	}
	ch.Beside = postgres.ByRule{Tenant: w.Tenant, Rule: w.Name, Version: w.Version, Replay: &postgres.RuleReplay{Root: line.Root, Most: w.MaxReplays, At: w.at}}
	asked := receipts.Draft{Run: f.Run.ID, Subtype: receipts.Replayed, Actor: w.actor(), At: w.at, Payload: receipts.Payload{NewRun: k.run, Reason: clean(reason, 1024)}}
	ch.Drafts = append([]receipts.Draft{asked}, ch.Drafts...)
	return ch, nil
}

// marking marks a letter as Mark does, as far as nobody has.
func (w *byRule) marking(f postgres.Filed, move background.MoveID) (postgres.Change, error) {
	say := w.Mark.missing(f.Desk, or(f.Desk.Reprocess, reprocessEligible(f.Snapshot)), or(f.Desk.Review, manualReviewRequired(f.Snapshot)))
	q := MarkRequest{Actor: w.actor(), Reason: w.Mark.Reason, ReprocessEligible: say.Reprocess, ManualReviewRequired: say.Review}
	ch, err := q.mark(w.at)(f, move)
	if err != nil {
		return ch, err
	}
	desk := ch.Beside.(postgres.DeskRow)
	ch.Beside = postgres.ByRule{Tenant: w.Tenant, Rule: w.Name, Version: w.Version, Desk: &desk}
	return ch, nil
}
