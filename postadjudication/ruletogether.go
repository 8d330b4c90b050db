package postadjudication

import (
	"context"
	"errors"

	"go.uber.org/zap"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/postgres"
)

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
