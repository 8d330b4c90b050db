package casework

import (
	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
)

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
	return s.Case.Kind == journal.KindSettlement && s.Run.UnresolvedUnknowns > 0
}
