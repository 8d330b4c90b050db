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
	switch {
	case tenant == "":
		return nil, &FieldError{Field: "tenant", Problem: "must be given"}
	case q.OlderThan < 0:
		return nil, &FieldError{Field: "older_than", Problem: "must not be negative"}
	case f.Standing != background.NoLetter && f.Standing != background.LetterOpen:
		return nil, &FieldError{Field: "filter.standing", Problem: "must be open: only open letters can be purged"}
	}
	f.Standing = background.NoLetter
	if f == (LetterFilter{}) && q.OlderThan == 0 {
		return nil, &FieldError{Field: "filter", Problem: "must say which letters; to remove all of a family, clear it"}
	}
	if err := f.Validate(); err != nil {
		return nil, err
	}
	f.Standing = background.LetterOpen
	if died := s.now().Add(-q.OlderThan).Add(time.Microsecond); f.To.IsZero() || died.Before(f.To) {
		f.To = died
	}
	return func(ctx context.Context) func() ([]postgres.Filed, error) {
		at, more := letterCursor{asOf: s.now()}, true
		return func() ([]postgres.Filed, error) {
			for more {
				page, others, last, err := s.findLetters(ctx, tenant, f, letterOrders[NewestFirst], at, pruneBatch)
				if err != nil {
					return nil, err
				}
				if at.place, more = last, others; len(page) == 0 {
					continue
				}
				ids := make([]background.RunID, len(page))
				for i, l := range page {
					ids[i] = l.Run.ID
				}
				return s.journal.Filed(ctx, ids...)
			}
			return nil, nil
		}
	}, nil
}
