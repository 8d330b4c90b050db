package postadjudication

import (
	"context"
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
	return func(ctx context.Context) func() ([]postgres.Filed, bool, error) {
		var after postgres.LetterPlace
		upToDate := false
		return func() ([]postgres.Filed, bool, error) {
			if !upToDate { // once: what the purge itself does need not be found again
				if err := s.journal.DrainLetters(ctx); err != nil {
					return nil, false, err
				}
				upToDate = true
			}
			page, more, last, err := s.journal.Letters(ctx, tenant, s.selection(f, now), letterOrders[OldestFirst], after, pruneBatch)
			if err != nil {
				return nil, false, err
			}
			after = last
			ids := make([]background.RunID, len(page))
			for i, l := range page {
				ids[i] = l.Run.ID
			}
			filed, err := s.journal.Filed(ctx, ids...)
			return filed, more, err
		}
	}, nil
}
