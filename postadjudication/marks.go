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

// MarkRequest says what somebody thinks of a letter. A nil mark stays as it is.
type MarkRequest struct {
	Actor                string // required
	Reason               string // required
	ReprocessEligible    *bool  // trying again is worth while
	ManualReviewRequired *bool  // a person should look first
}

func (q MarkRequest) validate() error {
	errs := []error{requireIdentifier("actor", q.Actor, 128), requireText("reason", q.Reason, 1024)}
	if q.ReprocessEligible == nil && q.ManualReviewRequired == nil {
		errs = append(errs, &FieldError{Field: "marks", Problem: "reprocess_eligible or manual_review_required must be given"})
	}
	return errors.Join(errs...)
}

// Mark marks an open letter. What nobody has marked follows from how it died: trying
// again is worth while when nothing was executed and only the attempts ran out, and a
// person must look when money is unknown. Marks steer people and rules; they open no
// gate, and close none.
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
			name string
			said *bool
			to   **bool
		}{{"reprocess_eligible", q.ReprocessEligible, &annotations.Reprocess}, {"manual_review_required", q.ManualReviewRequired, &annotations.Review}} {
			if m.said != nil {
				*m.to = m.said
				changes = append(changes, m.name+"="+strconv.FormatBool(*m.said))
			}
		}
		annotations.MarkReason = cleanText(q.Reason, 1024)
		ch := annotationChange(f, transition, annotations)
		ch.Drafts = []receipts.Draft{{Run: f.Run.ID, Subtype: receipts.Marked, Actor: q.Actor, At: at, Payload: receipts.Payload{
			Reason: annotations.MarkReason, Changes: strings.Join(changes, " ")}}}
		return ch, nil
	}
}

// The marks of a letter that nobody has marked.
func reprocessEligible(s postgres.Snapshot) bool {
	failed := s.Run.Class == NotExecuted || s.Run.Class == Unknown && s.Case.Kind != postgres.KindSettlement
	return failed && s.Run.Reason == background.ReasonRetryExhausted
}

func manualReviewRequired(s postgres.Snapshot) bool {
	return s.Case.Kind == postgres.KindSettlement && s.Run.UnresolvedUnknowns > 0
}
