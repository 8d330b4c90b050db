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
	// tenantFailureLimit is how many tries in a row may fail before the letters of a tenant in a
	// page are left.
	tenantFailureLimit = 24
	// skipTenantAfterPages is in how many pages in a row a tenant's letters are left before the
	// others of it are passed by.
	skipTenantAfterPages = 2
	// degradedAfterFailures is after how many tries in a row that fail, of whatever tenants, it is
	// likely that nothing works, and a tenant has degradedFailureLimit tries in a page: all its letters
	// there, their halves and quarters. Every tenant has its turn all the same, and as soon
	// as anything works, all tries again.
	degradedAfterFailures = 8 * tenantFailureLimit
	degradedFailureLimit  = 7
)

// maxReportedErrors is how many errors of letters a round returns; all are logged.
const maxReportedErrors = 10

// pruneRound is one round of the pruner.
type pruneRound struct {
	*Service
	report     PruneReport
	errs       []error // of letters and tenants, the first few
	incomplete bool    // letters of a tenant were left without being tried
}

// pruneScan is a walk over the pages of one list.
type pruneScan struct {
	*pruneRound
	apply         func([]postgres.LetterRow) error
	skippedPages  map[string]int // pages in a row in which a tenant's letters were left
	failuresInRow int            // tries in a row, of whatever tenants
}

// applyPage does something with letters, by tenant. When that fails it goes on with the
// halves of them, so that a letter that can't be announced or taken hinders no other: it
// is logged and counted, and met again in the next round. The error is that of ctx, or
// says that the journal takes nothing.
func (w *pruneScan) applyPage(ctx context.Context, letters []postgres.LetterRow) error {
	failedOf, skipTenant := map[string]int{}, map[string]bool{}
	for parts := w.byTenant(letters); len(parts) > 0; parts = parts[1:] {
		part, tenant := parts[0], parts[0][0].Run.Tenant
		if skipTenant[tenant] {
			w.countFailed(len(part))
			continue
		}
		err := w.apply(part)
		switch {
		case err == nil:
			w.failuresInRow, failedOf[tenant], w.skippedPages[tenant] = 0, 0, 0
			continue
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, errJournalUnavailable):
			for _, untried := range parts {
				w.countFailed(len(untried))
			}
			return err
		}
		w.failuresInRow++
		if failedOf[tenant]++; failedOf[tenant] >= w.failureLimit() {
			skipTenant[tenant], w.incomplete = true, true
			w.skippedPages[tenant]++
			w.addError(fmt.Errorf("%d tries in a row of tenant %s: %w", failedOf[tenant], tenant, err))
		}
		if len(part) == 1 {
			w.skipLetter(part[0], err)
			continue
		}
		parts = append(parts, part[:len(part)/2], part[len(part)/2:])
	}
	return nil
}

// failureLimit is how many tries in a row may fail now before the letters of a tenant in a
// page are left.
func (w *pruneScan) failureLimit() int {
	if w.failuresInRow >= degradedAfterFailures {
		return degradedFailureLimit
	}
	return tenantFailureLimit
}

// byTenant gives the letters of a page by tenant, but for those of tenants that are
// passed by.
func (w *pruneScan) byTenant(letters []postgres.LetterRow) (parts [][]postgres.LetterRow) {
	at := map[string]int{}
	for _, f := range letters {
		if w.skippedPages[f.Run.Tenant] >= skipTenantAfterPages {
			w.countFailed(1)
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

// skipLetter leaves a letter to the next round.
func (p *pruneRound) skipLetter(f postgres.LetterRow, err error) {
	p.countFailed(1)
	p.log.Error("a letter can't be announced or pruned, others can; it is tried again later",
		zap.Stringer("run", f.Run.ID), zap.String("tenant", f.Run.Tenant), zap.String("family", f.Run.Family), zap.Error(err))
	p.addError(fmt.Errorf("letter %s: %w", f.Run.ID, err))
}

func (p *pruneRound) addError(err error) {
	if len(p.errs) < maxReportedErrors {
		p.errs = append(p.errs, err)
	}
}

func (p *pruneRound) countFailed(letters int) {
	p.report.Failed += letters
	p.pruneCounts.failed.Add(uint64(letters))
}

// eachPage walks a list page by page, and does something with the letters of each. The
// next page begins behind the last letter, whether that could be taken or not. Only a
// list that can't be read ends the walk, or a journal that takes nothing.
func (p *pruneRound) eachPage(ctx context.Context, list func(after postgres.LetterRowPosition) ([]postgres.LetterRow, postgres.LetterRowPosition, error), do func([]postgres.LetterRow) error) error {
	var after postgres.LetterRowPosition
	w := pruneScan{pruneRound: p, apply: do, skippedPages: map[string]int{}}
	for {
		page, last, err := list(after)
		if err != nil || last == after {
			return err
		}
		if len(page) > 0 {
			if err := w.applyPage(ctx, page); err != nil {
				return err
			}
		}
		after = last
	}
}

// finish tells what the round came to. It was carried through when every list was read to
// its end, and tried, whatever came of single letters.
func (p *pruneRound) finish(err error) (PruneReport, error) {
	if err == nil && !p.incomplete {
		p.pruneCounts.rounds.Add(1)
		if was := p.pruneCounts.unarchived.Swap(p.report.Unarchived); was == 0 && p.report.Unarchived > 0 {
			p.log.Warn("letters of settlements are over their retention and stay: there is no archive to put them into", zap.Int64("letters", p.report.Unarchived))
		}
	}
	return p.report, errors.Join(append(p.errs, err)...)
}
