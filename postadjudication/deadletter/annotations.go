package deadletter

import (
	"context"
	"errors"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication/internal/casework"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
	"github.com/recourse-dev/recourse/postadjudication/internal/validate"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
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

// Annotations returns the annotations of an open dead letter. Errors: refusal.ErrNotFound if the tenant
// has no such letter; *refusal.RefusedError if the letter is not open.
func (l Letters) Annotations(ctx context.Context, id background.RunID) (Annotations, error) {
	f, err := l.s.Applier.OpenLetter(ctx, l.tenant, id)
	return l.s.annotationsOf(f), err
}

func (l *Repository) annotationsOf(f journal.LetterRow) Annotations {
	out := Annotations{
		Run: f.Run.ID, Held: f.Annotations.Held, HoldReason: f.Annotations.HoldReason, MarkReason: f.Annotations.MarkReason,
		ReprocessEligible:    casework.ValueOr(f.Annotations.Reprocess, casework.ReprocessEligible(f.Snapshot)),
		ManualReviewRequired: casework.ValueOr(f.Annotations.Review, casework.ManualReviewRequired(f.Snapshot)),
	}
	if age, ends := l.RetentionOf(f.Run.Family, f.Run.Queue); ends && casework.PurgeGate(f) == "" {
		at := casework.Later(f.Annotations.RetentionEndsAt, f.Run.DeadAt.Add(age))
		out.ExpiresAt = &at
	}
	return out
}

// annotate applies a decision about annotations to an open letter.
func (l *Repository) annotate(ctx context.Context, tenant string, id background.RunID, decide casework.LetterDecision) (Annotations, error) {
	f, ch, err := l.Applier.Apply(ctx, tenant, id, decide)
	if err == nil {
		f.Annotations = ch.SideEffect.(journal.AnnotationsRow).Annotations
	}
	return l.annotationsOf(f), err
}

// Hold protects an open dead letter: while held, retention and purges skip it and no rule
// replays it. A person may still fork or reconcile it, and a re-adjudication supersedes it: a
// hold keeps the evidence, not the money. If a fork of it dies, the fork's letter is a new one
// and not held. *refusal.RefusedError of refusal.GateHeld if the letter is already held.
func (l Letters) Hold(ctx context.Context, id background.RunID, reason string) (Annotations, error) {
	if err := validate.Actor(l.actor, reason); err != nil {
		return Annotations{}, err
	}
	annotations, err := l.s.annotate(ctx, l.tenant, id, casework.Holding(l.actor, reason, l.s.Now()))
	return annotations, l.s.Applier.Refusals.RecordGateRefusal(ctx, casework.ActionRequest{Action: "hold", Run: id, Actor: l.actor, Reason: reason}, err)
}

// Release releases a held letter. Its retention applies again, still counted from its
// death. Its expiry is announced again, so that there is time for another hold: an announcement
// from before the hold is void, since it may have caused the hold. *refusal.RefusedError of refusal.GateNotHeld
// if the letter is not held.
func (l Letters) Release(ctx context.Context, id background.RunID, reason string) (Annotations, error) {
	if err := validate.Actor(l.actor, reason); err != nil {
		return Annotations{}, err
	}
	annotations, err := l.s.annotate(ctx, l.tenant, id, casework.Releasing(l.actor, reason, l.s.Now()))
	return annotations, l.s.Applier.Refusals.RecordGateRefusal(ctx, casework.ActionRequest{Action: "release", Run: id, Actor: l.actor, Reason: reason}, err)
}

// Mark sets marks on a letter. A nil mark is unchanged.
type Mark struct {
	Reason               string // required
	ReprocessEligible    *bool  // replaying is worthwhile
	ManualReviewRequired *bool  // a person should review it first
}

func (q Mark) validate() error {
	if q.ReprocessEligible == nil && q.ManualReviewRequired == nil {
		return &refusal.FieldError{Field: "marks", Problem: "reprocess_eligible or manual_review_required must be given"}
	}
	return nil
}

// Mark sets marks on an open letter. A mark that nobody set is derived from how the run died:
// ReprocessEligible if nothing was executed and only the attempts ran out, ManualReviewRequired
// if money is unknown. Marks guide people and rules; they affect no gate.
func (l Letters) Mark(ctx context.Context, id background.RunID, q Mark) (Annotations, error) {
	if err := errors.Join(validate.Actor(l.actor, q.Reason), q.validate()); err != nil {
		return Annotations{}, err
	}
	annotations, err := l.s.annotate(ctx, l.tenant, id, casework.Marking(l.actor, q.Reason, q.ReprocessEligible, q.ManualReviewRequired, l.s.Now()))
	return annotations, l.s.Applier.Refusals.RecordGateRefusal(ctx, casework.ActionRequest{Action: "mark", Run: id, Actor: l.actor, Reason: q.Reason}, err)
}
