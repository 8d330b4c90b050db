package casework

import (
	"strconv"
	"strings"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
	"github.com/recourse-dev/recourse/postadjudication/internal/validate"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/receipts"
)

// HoldGate returns the gate that refuses a change of a letter's hold, or empty: hold is refusal.GateHeld,
// which refuses a held letter, or refusal.GateNotHeld, which refuses one that is not held.
func HoldGate(f journal.LetterRow, hold refusal.Gate) refusal.Gate {
	if gate := OpenGate(f.Snapshot); gate != "" {
		return gate
	}
	if f.Annotations.Held == (hold == refusal.GateHeld) {
		return hold
	}
	return ""
}

// annotationChange returns a change that sets the annotations, with its receipt, and leaves the
// letter as it is.
func annotationChange(f journal.LetterRow, annotations journal.Annotations, receipt receipts.Draft) journal.Change {
	after := f.Snapshot
	receipt.Run = f.Run.ID
	return journal.Change{
		Before: &f.Snapshot, After: &after, Drafts: []receipts.Draft{receipt},
		SideEffect: journal.AnnotationsRow{Run: f.Run.ID, Tenant: f.Run.Tenant, Annotations: annotations},
	}
}

// Holding places a hold on a letter.
func Holding(actor, reason string, at time.Time) LetterDecision {
	return func(f journal.LetterRow) (journal.Change, error) {
		if gate := HoldGate(f, refusal.GateHeld); gate != "" {
			return journal.Change{}, RefusedBy(gate, f.Snapshot)
		}
		annotations := f.Annotations
		annotations.Held, annotations.HoldReason = true, validate.Clean(reason, 1024)
		return annotationChange(f, annotations, receipts.Draft{Subtype: receipts.HoldPlaced, Actor: actor, At: at, Payload: receipts.Payload{Reason: annotations.HoldReason}}), nil
	}
}

// Releasing releases the hold on a letter. It voids the announced end of the letter's retention.
func Releasing(actor, reason string, at time.Time) LetterDecision {
	return func(f journal.LetterRow) (journal.Change, error) {
		if gate := HoldGate(f, refusal.GateNotHeld); gate != "" {
			return journal.Change{}, RefusedBy(gate, f.Snapshot)
		}
		annotations := f.Annotations
		annotations.Held, annotations.HoldReason, annotations.RetentionEndsAt = false, "", time.Time{}
		return annotationChange(f, annotations, receipts.Draft{Subtype: receipts.HoldReleased, Actor: actor, At: at, Payload: receipts.Payload{Reason: validate.Clean(reason, 1024)}}), nil
	}
}

// Marking sets marks on a letter. A nil mark is unchanged.
func Marking(actor, reason string, reprocess, review *bool, at time.Time) LetterDecision {
	return func(f journal.LetterRow) (journal.Change, error) {
		if gate := OpenGate(f.Snapshot); gate != "" {
			return journal.Change{}, RefusedBy(gate, f.Snapshot)
		}
		annotations, changes := f.Annotations, []string{}
		for _, m := range []struct {
			name  string
			value *bool
			to    **bool
		}{{"reprocess_eligible", reprocess, &annotations.Reprocess}, {"manual_review_required", review, &annotations.Review}} {
			if m.value != nil {
				*m.to = m.value
				changes = append(changes, m.name+"="+strconv.FormatBool(*m.value))
			}
		}
		annotations.MarkReason = validate.Clean(reason, 1024)
		return annotationChange(f, annotations, receipts.Draft{Subtype: receipts.Marked, Actor: actor, At: at, Payload: receipts.Payload{
			Reason: annotations.MarkReason, Changes: strings.Join(changes, " ")}}), nil
	}
}

// Announcing announces when the retention of a letter ends.
func Announcing(ends func(journal.LetterRow) time.Time, actor string, at time.Time) LetterDecision {
	return func(f journal.LetterRow) (journal.Change, error) {
		annotations := f.Annotations
		annotations.RetentionEndsAt = ends(f)
		return annotationChange(f, annotations, receipts.Draft{Subtype: receipts.RetentionEnding, Actor: actor, At: at, Payload: receipts.Payload{
			ExpiresAt: annotations.RetentionEndsAt, DeadLetteredAt: f.Run.DeadAt}}), nil
	}
}

// ValueOr returns the mark that somebody set, else the derived one.
func ValueOr(value *bool, derived bool) bool {
	if value != nil {
		return *value
	}
	return derived
}

// ReprocessEligible returns the mark of a letter on which nobody set it: only attempts ran out.
func ReprocessEligible(s journal.Snapshot) bool {
	failed := s.Run.Class == escrow.NotExecuted || s.Run.Class == escrow.Unknown && s.Case.Kind != journal.KindSettlement
	return failed && s.Run.Reason == background.ReasonRetryExhausted
}

// ManualReviewRequired returns the mark of a letter on which nobody set it: money is unknown.
func ManualReviewRequired(s journal.Snapshot) bool {
	return s.Case.Kind == journal.KindSettlement && s.Run.UnknownOpen > 0
}
