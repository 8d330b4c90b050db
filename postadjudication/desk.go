package postadjudication

import (
	"context"
	"errors"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/postgres"
)

// Annotations is what people have said of an open letter, and what follows from it.
type Annotations struct {
	Run                  background.RunID `json:"run_id"`
	Held                 bool             `json:"held"`
	HoldReason           string           `json:"hold_reason,omitempty"`
	ReprocessEligible    bool             `json:"reprocess_eligible"`
	ManualReviewRequired bool             `json:"manual_review_required"`
	MarkReason           string           `json:"mark_reason,omitempty"` // empty: the marks follow from how it died
	ExpiresAt            *time.Time       `json:"expires_at,omitempty"`  // nil: retention does not touch it while it is held, or its money unknown; or this process has no rule for it
}

// Annotations tells what people have said of an open letter. ErrNotFound when the tenant has
// none such, *RefusedError when the letter is not open.
func (s *Service) Annotations(ctx context.Context, tenant string, id background.RunID) (Annotations, error) {
	f, err := s.openLetter(ctx, tenant, id)
	return s.annotationsOf(f), err
}

// openLetter reads an open letter of a tenant with its desk.
func (s *Service) openLetter(ctx context.Context, tenant string, id background.RunID) (postgres.LetterRow, error) {
	found, err := s.journal.LetterRowsByID(ctx, id)
	if err != nil {
		return postgres.LetterRow{}, err
	}
	if len(found) == 0 || tenant == "" || found[0].Run.Tenant != tenant || found[0].Run.Letter == background.LetterPurged {
		return postgres.LetterRow{}, ErrNotFound
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

func (s *Service) annotationsOf(f postgres.LetterRow) Annotations {
	out := Annotations{
		Run: f.Run.ID, Held: f.Annotations.Held, HoldReason: f.Annotations.HoldReason, MarkReason: f.Annotations.MarkReason,
		ReprocessEligible:    valueOr(f.Annotations.Reprocess, reprocessEligible(f.Snapshot)),
		ManualReviewRequired: valueOr(f.Annotations.Review, manualReviewRequired(f.Snapshot)),
	}
	if age, ends := s.retentionOf(f.Run.Family, f.Run.Queue); ends && purgeGate(f) == "" {
		at := laterOf(f.Annotations.RetentionEndsAt, f.Run.DeadAt.Add(age))
		out.ExpiresAt = &at
	}
	return out
}

func valueOr(value *bool, derived bool) bool {
	if value != nil {
		return *value
	}
	return derived
}

// annotationDecision gives the change of a letter's desk with its receipt, or why there is
// none.
type annotationDecision func(f postgres.LetterRow, move background.TransitionID) (postgres.Change, error)

// annotate is a change of a letter's desk that is decided on the letter as it is.
func (s *Service) annotate(ctx context.Context, tenant string, id background.RunID, decide annotationDecision) (Annotations, error) {
	transition := newID()
	for {
		seen, err := s.openLetter(ctx, tenant, id)
		if err != nil {
			return Annotations{}, err
		}
		if seen.Run.LastTransition == transition {
			return s.annotationsOf(seen), nil
		}
		change, err := decide(seen, transition)
		if err != nil {
			return s.annotationsOf(seen), err
		}
		_, err = s.journal.Apply(ctx, id, transition, func(now *postgres.Snapshot) (postgres.Change, error) {
			if now.Case.Head != seen.Case.Head {
				return postgres.Change{}, errCaseChanged
			}
			return change, nil
		})
		if err == nil {
			seen.Annotations = change.SideEffect.(postgres.AnnotationsRow).Annotations
			return s.annotationsOf(seen), nil
		}
		if !errors.Is(err, errCaseChanged) {
			return Annotations{}, err
		}
	}
}

// annotationChange is the change of a letter that leaves the letter as it is.
func annotationChange(f postgres.LetterRow, transition background.TransitionID, annotations postgres.Annotations) postgres.Change {
	after := f.Snapshot
	after.Run.LastTransition = transition
	return postgres.Change{Transition: transition, Before: &f.Snapshot, After: &after, SideEffect: postgres.AnnotationsRow{Run: f.Run.ID, Tenant: f.Run.Tenant, Annotations: annotations}}
}
