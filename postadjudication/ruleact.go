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

// actByRule does what a rule says with those of the letters that were found which no
// gate keeps it from. A letter that can't be acted on keeps no other from its turn,
// unless there are many; what went wrong is told of the first.
func (s *Service) actByRule(ctx context.Context, r *ruling, found []postgres.FoundLetter, at time.Time) (n acted, err error) {
	letters, lines, err := s.ruledLetters(ctx, r, found)
	if err != nil {
		return n, err
	}
	var all sync.WaitGroup
	var mu sync.Mutex
	var failed []error
	todo := make(chan postgres.Filed)
	for range min(ruleAtOne, len(letters)) {
		all.Go(func() {
			for f := range todo {
				did, err := s.oneByRule(ctx, r, f, lines[f.Run.ID], at)
				mu.Lock()
				n.replayed, n.marked = n.replayed+did.replayed, n.marked+did.marked
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
		if s.ruleGate(r, f, lines[f.Run.ID].by(r.Name), at) == "" {
			todo <- f
		}
	}
	close(todo)
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
func (s *Service) oneByRule(ctx context.Context, r *ruling, f postgres.Filed, line ruledLine, at time.Time) (n acted, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panicked: %v", p)
		}
	}()
	if r.Mark != nil {
		err = s.markByRule(ctx, r, f, at)
		n.marked++
	} else {
		err = s.forkByRule(ctx, r, f, line, at)
		n.replayed++
	}
	var refused *RefusedError
	switch {
	case err == nil:
		return n, nil
	case errors.Is(err, errMovedOn), errors.Is(err, postgres.ErrRuleChanged), errors.Is(err, postgres.ErrRuleSpent), errors.Is(err, postgres.ErrBusy), errors.As(err, &refused),
		errors.Is(err, ErrNotFound):
		return acted{}, nil
	}
	return acted{}, err
}

// forkByRule forks a letter as Fork does, and counts that in the same commit.
func (s *Service) forkByRule(ctx context.Context, r *ruling, f postgres.Filed, line ruledLine, at time.Time) error {
	reason := fmt.Sprintf("replay %d of %d by rule %s, version %d: %s", line.by(r.Name)+1, r.MaxReplays, r.Name, r.Version, r.Reason)
	k := fork{ForkRequest: ForkRequest{Actor: r.actor(), Reason: reason, Policy: r.Policy}, run: background.RunID(newID()), move: newID(), at: at, family: s.settlements}
	var begun *background.Run
	_, err := s.journal.Apply(ctx, f.Run.ID, k.move, func(now *postgres.Snapshot) (postgres.Change, error) {
		if now.Case.Head != f.Case.Head {
			return postgres.Change{}, errMovedOn
		}
		ch, err := k.decide(now)
		if err != nil {
			return ch, err
		}
		begun = ch.New
		ch.Beside = postgres.ByRule{Tenant: r.Tenant, Rule: r.Name, Version: r.Version, Replay: &postgres.RuleReplay{Root: line.Root, Most: r.MaxReplays, At: at}}
		asked := receipts.Draft{Run: f.Run.ID, Subtype: receipts.Replayed, Actor: r.actor(), At: at, Payload: receipts.Payload{NewRun: k.run, Reason: clean(reason, 1024)}}
		ch.Drafts = append([]receipts.Draft{asked}, ch.Drafts...)
		return ch, nil
	})
	if err == nil && begun != nil {
		s.ring(ctx, Submitted{Reply: Created, Run: k.run, run: *begun, bell: s.manager.Bell})
	}
	return err
}

// markByRule marks a letter as Mark does, as far as nobody has.
func (s *Service) markByRule(ctx context.Context, r *ruling, f postgres.Filed, at time.Time) error {
	say := r.Mark.missing(f.Desk, or(f.Desk.Reprocess, reprocessEligible(f.Run)), or(f.Desk.Review, manualReviewRequired(f.Run)))
	q := MarkRequest{Actor: r.actor(), Reason: r.Mark.Reason, ReprocessEligible: say.Reprocess, ManualReviewRequired: say.Review}
	move := newID()
	_, err := s.journal.Apply(ctx, f.Run.ID, move, func(now *postgres.Snapshot) (postgres.Change, error) {
		if now.Case.Head != f.Case.Head {
			return postgres.Change{}, errMovedOn
		}
		ch, err := q.mark(at)(f, move)
		if err != nil {
			return ch, err
		}
		desk := ch.Beside.(postgres.DeskRow)
		ch.Beside = postgres.ByRule{Tenant: r.Tenant, Rule: r.Name, Version: r.Version, Desk: &desk}
		return ch, nil
	})
	return err
}
