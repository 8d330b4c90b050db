package postadjudication

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/postgres"
	"github.com/recourse-dev/recourse/receipts"
)

// Annotations holds what people recorded about an open dead letter, and what follows from it.
type Annotations struct {
	Run                  background.RunID `json:"run_id"`
	Held                 bool             `json:"held"`
	HoldReason           string           `json:"hold_reason,omitempty"`
	ReprocessEligible    bool             `json:"reprocess_eligible"`
	ManualReviewRequired bool             `json:"manual_review_required"`
	MarkReason           string           `json:"mark_reason,omitempty"` // empty: nobody set marks; they are derived from how the run died
	ExpiresAt            *time.Time       `json:"expires_at,omitempty"`  // nil: the letter is held, its money is unknown, or this process has no retention rule for it
}

// Annotations returns the annotations of an open dead letter. Errors: ErrNotFound if the tenant
// has no such letter; *RefusedError if the letter is not open.
func (l Letters) Annotations(ctx context.Context, id background.RunID) (Annotations, error) {
	f, err := l.s.openLetter(ctx, l.tenant, id)
	return l.s.annotationsOf(f), err
}

// openLetter reads an open letter of a tenant with its annotations.
func (s *Service) openLetter(ctx context.Context, tenant string, id background.RunID) (postgres.LetterRow, error) {
	found, err := s.journal.Letters.ByID(ctx, id)
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

// annotationDecision returns the change of a letter's annotations with its receipt, or the
// error that refuses it.
type annotationDecision func(f postgres.LetterRow, move background.TransitionID) (postgres.Change, error)

// annotate applies a decision to a letter's annotations. It decides again if the case changed
// since it was read.
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

// annotationChange returns a change that sets the annotations and leaves the letter as it is.
func annotationChange(f postgres.LetterRow, transition background.TransitionID, annotations postgres.Annotations) postgres.Change {
	after := f.Snapshot
	after.Run.LastTransition = transition
	return postgres.Change{Transition: transition, Before: &f.Snapshot, After: &after, SideEffect: postgres.AnnotationsRow{Run: f.Run.ID, Tenant: f.Run.Tenant, Annotations: annotations}}
}

// HoldRequest says who places or releases a hold, and why. Both fields are required.
type HoldRequest struct {
	Actor  string
	Reason string
}

func (q HoldRequest) validate() error {
	return errors.Join(requireIdentifier("actor", q.Actor, 128), requireText("reason", q.Reason, 1024))
}

// Hold protects an open dead letter: while held, retention, Purge and Clear skip it and no rule
// replays it. A person may still fork or reconcile it, and a re-adjudication supersedes it: a
// hold keeps the evidence, not the money. If a fork of it dies, the fork's letter is a new one
// and not held. *RefusedError of GateHeld if the letter is already held.
func (s *Service) Hold(ctx context.Context, tenant string, id background.RunID, q HoldRequest) (Annotations, error) {
	if err := q.validate(); err != nil {
		return Annotations{}, err
	}
	annotations, err := s.annotate(ctx, tenant, id, q.placeHold(s.now()))
	return annotations, s.recordGateRefusal(ctx, actionRequest{"hold", id, q.Actor, q.Reason}, err)
}

func (q HoldRequest) placeHold(at time.Time) annotationDecision {
	return func(f postgres.LetterRow, transition background.TransitionID) (postgres.Change, error) {
		if f.Annotations.Held {
			return postgres.Change{}, refusedBy(GateHeld, f.Snapshot)
		}
		annotations := f.Annotations
		annotations.Held, annotations.HoldReason = true, cleanText(q.Reason, 1024)
		ch := annotationChange(f, transition, annotations)
		ch.Drafts = []receipts.Draft{{Run: f.Run.ID, Subtype: receipts.HoldPlaced, Actor: q.Actor, At: at, Payload: receipts.Payload{Reason: annotations.HoldReason}}}
		return ch, nil
	}
}

// ReleaseHold releases a held letter. Its retention applies again, still counted from its
// death. Its expiry is announced again, so that there is time for another hold: an announcement
// from before the hold is void, since it may have caused the hold. *RefusedError of GateNotHeld
// if the letter is not held.
func (s *Service) ReleaseHold(ctx context.Context, tenant string, id background.RunID, q HoldRequest) (Annotations, error) {
	if err := q.validate(); err != nil {
		return Annotations{}, err
	}
	annotations, err := s.annotate(ctx, tenant, id, q.releaseHold(s.now()))
	return annotations, s.recordGateRefusal(ctx, actionRequest{"release", id, q.Actor, q.Reason}, err)
}

func (q HoldRequest) releaseHold(at time.Time) annotationDecision {
	return func(f postgres.LetterRow, transition background.TransitionID) (postgres.Change, error) {
		if !f.Annotations.Held {
			return postgres.Change{}, refusedBy(GateNotHeld, f.Snapshot)
		}
		annotations := f.Annotations
		annotations.Held, annotations.HoldReason, annotations.RetentionEndsAt = false, "", time.Time{}
		ch := annotationChange(f, transition, annotations)
		ch.Drafts = []receipts.Draft{{Run: f.Run.ID, Subtype: receipts.HoldReleased, Actor: q.Actor, At: at, Payload: receipts.Payload{Reason: cleanText(q.Reason, 1024)}}}
		return ch, nil
	}
}

// MarkRequest sets marks on a letter. A nil mark is unchanged.
type MarkRequest struct {
	Actor                string // required
	Reason               string // required
	ReprocessEligible    *bool  // replaying is worthwhile
	ManualReviewRequired *bool  // a person should review it first
}

func (q MarkRequest) validate() error {
	errs := []error{requireIdentifier("actor", q.Actor, 128), requireText("reason", q.Reason, 1024)}
	if q.ReprocessEligible == nil && q.ManualReviewRequired == nil {
		errs = append(errs, &FieldError{Field: "marks", Problem: "reprocess_eligible or manual_review_required must be given"})
	}
	return errors.Join(errs...)
}

// Mark sets marks on an open letter. A mark that nobody set is derived from how the run died:
// ReprocessEligible if nothing was executed and only the attempts ran out, ManualReviewRequired
// if money is unknown. Marks guide people and rules; they affect no gate.
func (s *Service) Mark(ctx context.Context, tenant string, id background.RunID, q MarkRequest) (Annotations, error) {
	if err := q.validate(); err != nil {
		return Annotations{}, err
	}
	annotations, err := s.annotate(ctx, tenant, id, q.setMarks(s.now()))
	return annotations, s.recordGateRefusal(ctx, actionRequest{"mark", id, q.Actor, q.Reason}, err)
}

func (q MarkRequest) setMarks(at time.Time) annotationDecision {
	return func(f postgres.LetterRow, transition background.TransitionID) (postgres.Change, error) {
		annotations, changes := f.Annotations, []string{}
		for _, m := range []struct {
			name  string
			value *bool
			to    **bool
		}{{"reprocess_eligible", q.ReprocessEligible, &annotations.Reprocess}, {"manual_review_required", q.ManualReviewRequired, &annotations.Review}} {
			if m.value != nil {
				*m.to = m.value
				changes = append(changes, m.name+"="+strconv.FormatBool(*m.value))
			}
		}
		annotations.MarkReason = cleanText(q.Reason, 1024)
		ch := annotationChange(f, transition, annotations)
		ch.Drafts = []receipts.Draft{{Run: f.Run.ID, Subtype: receipts.Marked, Actor: q.Actor, At: at, Payload: receipts.Payload{
			Reason: annotations.MarkReason, Changes: strings.Join(changes, " ")}}}
		return ch, nil
	}
}

// Marks of a letter on which nobody set them.
func reprocessEligible(s postgres.Snapshot) bool {
	failed := s.Run.Class == NotExecuted || s.Run.Class == Unknown && s.Case.Kind != postgres.KindSettlement
	return failed && s.Run.Reason == background.ReasonRetryExhausted
}

func manualReviewRequired(s postgres.Snapshot) bool {
	return s.Case.Kind == postgres.KindSettlement && s.Run.UnresolvedUnknowns > 0
}
