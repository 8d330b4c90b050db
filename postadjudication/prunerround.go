package postadjudication

import (
	"context"
	"errors"
	"fmt"

	"go.uber.org/zap"

	"github.com/recourse-dev/recourse/internal/postgres"
)

// When a round stops trying, until the next one. Parts of a page are tried largest
// first, so that what is left untried then is hardly ever more than what fails.
const (
	// pruneGiveUp is how many tries in a row may fail before the letters of a tenant in a
	// page are left.
	pruneGiveUp = 24
	// prunePages is in how many pages in a row a tenant's letters are left before the
	// others of it are passed by.
	prunePages = 2
	// pruneTired is after how many tries in a row that fail, of whatever tenants, it is
	// likely that nothing works, and a tenant has pruneTurn tries in a page: all its letters
	// there, their halves and quarters. Every tenant has its turn all the same, and as soon
	// as anything works, all tries again.
	pruneTired = 8 * pruneGiveUp
	pruneTurn  = 7
)

// pruneTold is how many errors of letters a round returns; all are logged.
const pruneTold = 10

// pruneRound is one round of the pruner.
type pruneRound struct {
	*Service
	report PruneReport
	stuck  []error // of letters and tenants, the first few
	left   bool    // letters of a tenant were left without being tried
}

// pruneWalk is a walk over the pages of one list.
type pruneWalk struct {
	*pruneRound
	do     func([]postgres.Filed) error
	gaveUp map[string]int // pages in a row in which a tenant's letters were left
	failed int            // tries in a row, of whatever tenants
}

// page does something with letters, by tenant. When that fails it goes on with the
// halves of them, so that a letter that can't be announced or taken hinders no other: it
// is logged and counted, and met again in the next round. The error is that of ctx, or
// says that the journal takes nothing.
func (w *pruneWalk) page(ctx context.Context, letters []postgres.Filed) error {
	failedOf, leave := map[string]int{}, map[string]bool{}
	for parts := w.byTenant(letters); len(parts) > 0; parts = parts[1:] {
		part, tenant := parts[0], parts[0][0].Run.Tenant
		if leave[tenant] {
			w.miss(len(part))
			continue
		}
		err := w.do(part)
		switch {
		case err == nil:
			w.failed, failedOf[tenant], w.gaveUp[tenant] = 0, 0, 0
			continue
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, errJournalTrouble):
			for _, untried := range parts {
				w.miss(len(untried))
			}
			return err
		}
		w.failed++
		if failedOf[tenant]++; failedOf[tenant] >= w.patience() {
			leave[tenant], w.left = true, true
			w.gaveUp[tenant]++
			w.tell(fmt.Errorf("%d tries in a row of tenant %s: %w", failedOf[tenant], tenant, err))
		}
		if len(part) == 1 {
			w.setAside(part[0], err)
			continue
		}
		parts = append(parts, part[:len(part)/2], part[len(part)/2:])
	}
	return nil
}

// patience is how many tries in a row may fail now before the letters of a tenant in a
// page are left.
func (w *pruneWalk) patience() int {
	if w.failed >= pruneTired {
		return pruneTurn
	}
	return pruneGiveUp
}

// byTenant gives the letters of a page by tenant, but for those of tenants that are
// passed by.
func (w *pruneWalk) byTenant(letters []postgres.Filed) (parts [][]postgres.Filed) {
	at := map[string]int{}
	for _, f := range letters {
		if w.gaveUp[f.Run.Tenant] >= prunePages {
			w.miss(1)
			continue
		}
		n, known := at[f.Run.Tenant]
		if !known {
			n = len(parts)
			at[f.Run.Tenant], parts = n, append(parts, nil)
		}
		parts[n] = append(parts[n], f)
	}
	return parts
}

// setAside leaves a letter to the next round.
func (p *pruneRound) setAside(f postgres.Filed, err error) {
	p.miss(1)
	p.log.Error("a letter can't be announced or pruned, others can; it is tried again later",
		zap.Stringer("run", f.Run.ID), zap.String("tenant", f.Run.Tenant), zap.String("family", f.Run.Family), zap.Error(err))
	p.tell(fmt.Errorf("letter %s: %w", f.Run.ID, err))
}

func (p *pruneRound) tell(err error) {
	if len(p.stuck) < pruneTold {
		p.stuck = append(p.stuck, err)
	}
}

func (p *pruneRound) miss(letters int) {
	p.report.Failed += letters
	p.pruned.failed.Add(uint64(letters))
}

// each walks a list page by page, and does something with the letters of each. The
// next page begins behind the last letter, whether that could be taken or not. Only a
// list that can't be read ends the walk, or a journal that takes nothing.
func (p *pruneRound) each(ctx context.Context, list func(after postgres.FiledPlace) ([]postgres.Filed, postgres.FiledPlace, error), do func([]postgres.Filed) error) error {
	var after postgres.FiledPlace
	w := pruneWalk{pruneRound: p, do: do, gaveUp: map[string]int{}}
	for {
		page, last, err := list(after)
		if err != nil || last == after {
			return err
		}
		if len(page) > 0 {
			if err := w.page(ctx, page); err != nil {
				return err
			}
		}
		after = last
	}
}

// end tells what the round came to. It was carried through when every list was read to
// its end, and tried, whatever came of single letters.
func (p *pruneRound) end(err error) (PruneReport, error) {
	if err == nil && !p.left {
		p.pruned.rounds.Add(1)
		if was := p.pruned.unarchived.Swap(p.report.Unarchived); was == 0 && p.report.Unarchived > 0 {
			p.log.Warn("letters of settlements are over their retention and stay: there is no archive to put them into", zap.Int64("letters", p.report.Unarchived))
		}
	}
	return p.report, errors.Join(append(p.stuck, err)...)
}
