package postadjudication

import (
	"context"
	"errors"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
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
	f, err := l.s.cases.openLetter(ctx, l.tenant, id)
	return l.s.annotationsOf(f), err
}

func (s *Service) annotationsOf(f journal.LetterRow) Annotations {
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

// annotate applies a decision about annotations to an open letter.
func (s *Service) annotate(ctx context.Context, tenant string, id background.RunID, decide decision) (Annotations, error) {
	f, ch, err := s.cases.apply(ctx, tenant, id, decide)
	if err == nil {
		f.Annotations = ch.SideEffect.(journal.AnnotationsRow).Annotations
	}
	return s.annotationsOf(f), err
}

// Hold protects an open dead letter: while held, retention, Purge and Clear skip it and no rule
// replays it. A person may still fork or reconcile it, and a re-adjudication supersedes it: a
// hold keeps the evidence, not the money. If a fork of it dies, the fork's letter is a new one
// and not held. *RefusedError of GateHeld if the letter is already held.
func (l Letters) Hold(ctx context.Context, id background.RunID, reason string) (Annotations, error) {
	if err := l.checkActor(reason); err != nil {
		return Annotations{}, err
	}
	annotations, err := l.s.annotate(ctx, l.tenant, id, holding(l.actor, reason, l.s.now()))
	return annotations, l.s.recordGateRefusal(ctx, actionRequest{"hold", id, l.actor, reason}, err)
}

// Release releases a held letter. Its retention applies again, still counted from its
// death. Its expiry is announced again, so that there is time for another hold: an announcement
// from before the hold is void, since it may have caused the hold. *RefusedError of GateNotHeld
// if the letter is not held.
func (l Letters) Release(ctx context.Context, id background.RunID, reason string) (Annotations, error) {
	if err := l.checkActor(reason); err != nil {
		return Annotations{}, err
	}
	annotations, err := l.s.annotate(ctx, l.tenant, id, releasing(l.actor, reason, l.s.now()))
	return annotations, l.s.recordGateRefusal(ctx, actionRequest{"release", id, l.actor, reason}, err)
}

// MarkRequest sets marks on a letter. A nil mark is unchanged.
type MarkRequest struct {
	Reason               string // required
	ReprocessEligible    *bool  // replaying is worthwhile
	ManualReviewRequired *bool  // a person should review it first
}

func (q MarkRequest) validate() error {
	if q.ReprocessEligible == nil && q.ManualReviewRequired == nil {
		return &FieldError{Field: "marks", Problem: "reprocess_eligible or manual_review_required must be given"}
	}
	return nil
}

// Mark sets marks on an open letter. A mark that nobody set is derived from how the run died:
// ReprocessEligible if nothing was executed and only the attempts ran out, ManualReviewRequired
// if money is unknown. Marks guide people and rules; they affect no gate.
func (l Letters) Mark(ctx context.Context, id background.RunID, q MarkRequest) (Annotations, error) {
	if err := errors.Join(l.checkActor(q.Reason), q.validate()); err != nil {
		return Annotations{}, err
	}
	annotations, err := l.s.annotate(ctx, l.tenant, id, marking(l.actor, q.Reason, q.ReprocessEligible, q.ManualReviewRequired, l.s.now()))
	return annotations, l.s.recordGateRefusal(ctx, actionRequest{"mark", id, l.actor, q.Reason}, err)
}

// reprocessEligible returns the mark of a letter on which nobody set it: only attempts ran out.
func reprocessEligible(s journal.Snapshot) bool {
	failed := s.Run.Class == escrow.NotExecuted || s.Run.Class == escrow.Unknown && s.Case.Kind != journal.KindSettlement
	return failed && s.Run.Reason == background.ReasonRetryExhausted
}

// manualReviewRequired returns the mark of a letter on which nobody set it: money is unknown.
func manualReviewRequired(s journal.Snapshot) bool {
	return s.Case.Kind == journal.KindSettlement && s.Run.UnresolvedUnknowns > 0
}
