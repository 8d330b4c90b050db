package postadjudication

import (
	"context"
	"errors"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/postgres"
)

// Desk is what people have said of an open letter, and what follows from it.
type Desk struct {
	Run                  background.RunID `json:"run_id"`
	Held                 bool             `json:"held"`
	HoldReason           string           `json:"hold_reason,omitempty"`
	ReprocessEligible    bool             `json:"reprocess_eligible"`
	ManualReviewRequired bool             `json:"manual_review_required"`
	MarkReason           string           `json:"mark_reason,omitempty"` // empty: the marks follow from how it died
	ExpiresAt            *time.Time       `json:"expires_at,omitempty"`  // nil: retention does not touch it while it is held, or its money unknown; or this process has no rule for it
}

// Desk tells what people have said of an open letter. ErrNotFound when the tenant has
// none such, *RefusedError when the letter is not open.
func (s *Service) Desk(ctx context.Context, tenant string, id background.RunID) (Desk, error) {
	f, err := s.filed(ctx, tenant, id)
	return s.deskOf(f), err
}

// filed reads an open letter of a tenant with its desk.
func (s *Service) filed(ctx context.Context, tenant string, id background.RunID) (postgres.Filed, error) {
	found, err := s.journal.Filed(ctx, id)
	if err != nil {
		return postgres.Filed{}, err
	}
	if len(found) == 0 || tenant == "" || found[0].Run.Tenant != tenant || found[0].Run.Letter == background.LetterPurged {
		return postgres.Filed{}, ErrNotFound
	}
	switch f := found[0]; {
	case f.Run.State != background.DeadLettered:
		return f, refusedBy(GateNotALetter, f.Snapshot)
	case f.Run.Letter != background.LetterOpen:
		return f, refusedBy(GateNotOpen, f.Snapshot)
	default:
		return f, nil
	}
}

func (s *Service) deskOf(f postgres.Filed) Desk {
	out := Desk{
		Run: f.Run.ID, Held: f.Desk.Held, HoldReason: f.Desk.HoldReason, MarkReason: f.Desk.MarkReason,
		ReprocessEligible:    or(f.Desk.Reprocess, reprocessEligible(f.Snapshot)),
		ManualReviewRequired: or(f.Desk.Review, manualReviewRequired(f.Snapshot)),
	}
	if kept, ends := s.lifetime(f.Run.Family, f.Run.Queue); ends && keeps(f) == "" {
		at := later(f.Desk.EndsAt, f.Run.DeadAt.Add(kept))
		out.ExpiresAt = &at
	}
	return out
}

func or(said *bool, derived bool) bool {
	if said != nil {
		return *said
	}
	return derived
}

// deskDecision gives the change of a letter's desk with its receipt, or why there is
// none.
type deskDecision func(f postgres.Filed, move background.MoveID) (postgres.Change, error)

// desked is a change of a letter's desk that is decided on the letter as it is.
func (s *Service) desked(ctx context.Context, tenant string, id background.RunID, decide deskDecision) (Desk, error) {
	move := newID()
	for {
		seen, err := s.filed(ctx, tenant, id)
		if err != nil {
			return Desk{}, err
		}
		if seen.Run.LastMove == move {
			return s.deskOf(seen), nil
		}
		change, err := decide(seen, move)
		if err != nil {
			return s.deskOf(seen), err
		}
		_, err = s.journal.Apply(ctx, id, move, func(now *postgres.Snapshot) (postgres.Change, error) {
			if now.Case.Head != seen.Case.Head {
				return postgres.Change{}, errMovedOn
			}
			return change, nil
		})
		if err == nil {
			seen.Desk = change.Beside.(postgres.DeskRow).Desk
			return s.deskOf(seen), nil
		}
		if !errors.Is(err, errMovedOn) {
			return Desk{}, err
		}
	}
}

// deskChange is the change of a letter that leaves the letter as it is.
func deskChange(f postgres.Filed, move background.MoveID, desk postgres.Desk) postgres.Change {
	after := f.Snapshot
	after.Run.LastMove = move
	return postgres.Change{Move: move, Before: &f.Snapshot, After: &after, Beside: postgres.DeskRow{Run: f.Run.ID, Tenant: f.Run.Tenant, Desk: desk}}
}
