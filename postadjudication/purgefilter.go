package postadjudication

import (
	"bytes"
	"context"
	"slices"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/postgres"
)

// pagesToPurge are the open letters that a request selects. Letters that die from now on
// are none of them.
func (s *Service) pagesToPurge(tenant string, q PurgeRequest) (pageSource, error) {
	f := q.Filter
	if f.Status != background.NoLetter && f.Status != background.LetterOpen {
		return nil, &FieldError{Field: "letter", Problem: "must be open: only open letters can be purged"}
	}
	if f.Status = background.NoLetter; f == (LetterFilter{}) {
		return nil, &FieldError{Field: "filter", Problem: "must say which letters; to remove all of a family, clear it"}
	}
	if err := validateLetterQuery(tenant, f); err != nil {
		return nil, err
	}
	f.Status = background.LetterOpen
	now := s.now()
	if died := now.Add(time.Microsecond); f.To.IsZero() || died.Before(f.To) {
		f.To = died
	}
	return func(ctx context.Context) func() (purgePage, error) {
		scan := purgeScan{service: s, tenant: tenant, filter: s.journalFilter(f, now)}
		return func() (purgePage, error) { return scan.readPage(ctx) }
	}, nil
}

// purgeScan goes through the letters that a filter selects, oldest first.
type purgeScan struct {
	service *Service
	tenant  string
	filter  postgres.LetterFilter
	after   postgres.LetterPosition
}

// readPage reads the next page.
func (w *purgeScan) readPage(ctx context.Context) (purgePage, error) {
	if w.after == (postgres.LetterPosition{}) {
		if err := w.service.journal.CatchUpLetters(ctx); err != nil {
			return purgePage{}, err
		}
	}
	found, more, last, err := w.service.journal.Letters(ctx, w.tenant, w.filter, letterOrders[OldestFirst], w.after, pruneBatch)
	if err != nil {
		return purgePage{}, err
	}
	first := w.after
	w.after = last
	ids := make([]background.RunID, len(found))
	for i, l := range found {
		ids[i] = l.Run.ID
	}
	filed, err := w.service.journal.LetterRowsByID(ctx, ids...)
	return purgePage{filed, more, func(ctx context.Context, letters []postgres.LetterRow) ([]postgres.LetterRow, error) {
		return w.stillSelected(ctx, first, last, letters)
	}}, err
}

// stillSelected gives those of some letters between two places that the filter selects. They
// were read before the list of letters is brought up to date, so that each that has not
// moved since it was read is selected as it was read.
func (w *purgeScan) stillSelected(ctx context.Context, first, last postgres.LetterPosition, letters []postgres.LetterRow) ([]postgres.LetterRow, error) {
	if err := w.service.journal.CatchUpLetters(ctx); err != nil {
		return nil, err
	}
	selected := map[background.RunID]bool{}
	for after, more, inRange := first, true, true; more && inRange; {
		var found []postgres.FoundLetter
		var err error
		if found, more, after, err = w.service.journal.Letters(ctx, w.tenant, w.filter, letterOrders[OldestFirst], after, pruneBatch); err != nil {
			return nil, err
		}
		for _, l := range found {
			selected[l.Run.ID] = true
		}
		inRange = after.Value < last.Value || after.Value == last.Value && bytes.Compare(after.Run[:], last.Run[:]) < 0
	}
	return slices.DeleteFunc(slices.Clone(letters), func(f postgres.LetterRow) bool { return !selected[f.Run.ID] }), nil
}
