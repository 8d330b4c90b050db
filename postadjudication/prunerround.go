package postadjudication

import (
	"context"
	"errors"
	"fmt"

	"go.uber.org/zap"

	"github.com/recourse-dev/recourse/internal/postgres"
)

// pruneGiveUp is how many tries in a row may fail before a page of letters is left to
// the next round: more than it takes to find the one letter of a page that fails, or
// a few beside each other. When as many fail, it is no letter's fault.
const pruneGiveUp = 24

// pruneTold is how many errors of letters a round returns; all are logged.
const pruneTold = 10

// pruneRound is one round of the pruner.
type pruneRound struct {
	*Service
	report PruneReport
	stuck  []error // of letters, the first few
	failed int     // tries in a row
}

// apart does something with letters. When that fails it goes on with one half of them
// and then the other, so that a letter that can't be announced or taken hinders no
// other: it is logged and counted, and met again in the next round. The error is that
// of ctx, or says that nothing works.
func (p *pruneRound) apart(ctx context.Context, letters []postgres.Filed, do func([]postgres.Filed) error) error {
	err := do(letters)
	switch {
	case err == nil:
		p.failed = 0
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	}
	if p.failed++; p.failed >= pruneGiveUp {
		p.miss(len(letters))
		return fmt.Errorf("%d tries in a row: %w", p.failed, err)
	}
	if len(letters) == 1 {
		p.setAside(letters[0], err)
		return nil
	}
	half := len(letters) / 2
	if err := p.apart(ctx, letters[:half], do); err != nil {
		p.miss(len(letters) - half)
		return err
	}
	return p.apart(ctx, letters[half:], do)
}

// setAside leaves a letter to the next round.
func (p *pruneRound) setAside(f postgres.Filed, err error) {
	p.miss(1)
	p.log.Error("a letter can't be announced or pruned, others can; it is tried again later",
		zap.Stringer("run", f.Run.ID), zap.String("tenant", f.Run.Tenant), zap.String("family", f.Run.Family), zap.Error(err))
	if len(p.stuck) < pruneTold {
		p.stuck = append(p.stuck, fmt.Errorf("letter %s: %w", f.Run.ID, err))
	}
}

func (p *pruneRound) miss(letters int) {
	p.report.Failed += letters
	p.pruned.failed.Add(uint64(letters))
}

// each walks a list page by page, and does something with the letters of each. The
// next page begins behind the last letter, whether that could be taken or not. Only a
// list that can't be read ends the walk, or that nothing works any more.
func (p *pruneRound) each(ctx context.Context, list func(after postgres.FiledPlace) ([]postgres.Filed, postgres.FiledPlace, error), do func([]postgres.Filed) error) error {
	var after postgres.FiledPlace
	for {
		page, last, err := list(after)
		if err != nil || last == after {
			return err
		}
		if len(page) > 0 {
			if err := p.apart(ctx, page, do); err != nil {
				return err
			}
		}
		after = last
	}
}

// end tells what the round came to. It was carried through when every list was read to
// its end, whatever came of single letters.
func (p *pruneRound) end(err error) (PruneReport, error) {
	if err == nil {
		p.pruned.rounds.Add(1)
		if was := p.pruned.unarchived.Swap(p.report.Unarchived); was == 0 && p.report.Unarchived > 0 {
			p.log.Warn("letters of settlements are over their retention and stay: there is no archive to put them into", zap.Int64("letters", p.report.Unarchived))
		}
	}
	return p.report, errors.Join(append(p.stuck, err)...)
}
