package postadjudication

import (
	"bytes"
	"context"
	"slices"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/postgres"
)

// toPurge are the open letters that a request selects. Letters that die from now on
// are none of them.
func (s *Service) toPurge(tenant string, q PurgeRequest) (pages, error) {
	f := q.Filter
	if f.Standing != background.NoLetter && f.Standing != background.LetterOpen {
		return nil, &FieldError{Field: "letter", Problem: "must be open: only open letters can be purged"}
	}
	if f.Standing = background.NoLetter; f == (LetterFilter{}) {
		return nil, &FieldError{Field: "filter", Problem: "must say which letters; to remove all of a family, clear it"}
	}
	if err := checkLetters(tenant, f); err != nil {
		return nil, err
	}
	f.Standing = background.LetterOpen
	now := s.now()
	if died := now.Add(time.Microsecond); f.To.IsZero() || died.Before(f.To) {
		f.To = died
	}
	return func(ctx context.Context) func() (purgePage, error) {
		walk := purgeWalk{service: s, tenant: tenant, filter: s.selection(f, now)}
		return func() (purgePage, error) { return walk.turn(ctx) }
	}, nil
}

// purgeWalk goes through the letters that a filter selects, oldest first.
type purgeWalk struct {
	service *Service
	tenant  string
	filter  postgres.LetterFilter
	after   postgres.LetterPlace
}

// turn reads the next page.
func (w *purgeWalk) turn(ctx context.Context) (purgePage, error) {
	if w.after == (postgres.LetterPlace{}) {
		if err := w.service.journal.DrainLetters(ctx); err != nil {
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
	filed, err := w.service.journal.Filed(ctx, ids...)
	return purgePage{filed, more, func(ctx context.Context, letters []postgres.Filed) ([]postgres.Filed, error) {
		return w.still(ctx, first, last, letters)
	}}, err
}

// still gives those of some letters between two places that the filter selects. They
// were read before the list of letters is brought up to date, so that each that has not
// moved since it was read is selected as it was read.
func (w *purgeWalk) still(ctx context.Context, first, last postgres.LetterPlace, letters []postgres.Filed) ([]postgres.Filed, error) {
	if err := w.service.journal.DrainLetters(ctx); err != nil {
		return nil, err
	}
	selected := map[background.RunID]bool{}
	for after, more, there := first, true, true; more && there; {
		var found []postgres.FoundLetter
		var err error
		if found, more, after, err = w.service.journal.Letters(ctx, w.tenant, w.filter, letterOrders[OldestFirst], after, pruneBatch); err != nil {
			return nil, err
		}
		for _, l := range found {
			selected[l.Run.ID] = true
		}
		there = after.Value < last.Value || after.Value == last.Value && bytes.Compare(after.Run[:], last.Run[:]) < 0
	}
	return slices.DeleteFunc(slices.Clone(letters), func(f postgres.Filed) bool { return !selected[f.Run.ID] }), nil
}
