package postadjudication

import (
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/postgres"
)

// Gates of rules, beside those of forks and holds.
const (
	GateNotDue        Gate = "not_due"                // the rule's delay is not over
	GateMayBeExecuted Gate = "may_be_executed"        // it is not known that nothing was executed
	GateReview        Gate = "manual_review_required" // a person must look first
	GateNotEligible   Gate = "not_reprocess_eligible" // somebody has said that trying again is not worth while
	GateReplaysSpent  Gate = "max_replays"            // the rule has replayed it as often as it may
	GateMarked        Gate = "marked"                 // it is so already, or somebody has said otherwise
	GateNotSelected   Gate = "not_selected"           // the rule's filter does not select it any more
)

// activeRule is a rule that is being applied.
type activeRule struct {
	StoredRule
	delay time.Duration
}

func newActiveRule(r StoredRule) (activeRule, error) {
	delay, err := ruleDelay(r.Delay)
	return activeRule{r, delay}, err
}

// searchFilter is what the rule looks for at a time. It leaves out what the rule never
// touches, so that this need not be read again and again.
func (r *activeRule) searchFilter(at time.Time) LetterFilter {
	f, exclude := r.dueFilter(at), false
	switch m := r.Mark; {
	case m == nil:
		f.Held, f.Review = &exclude, &exclude
		if f.Family == "" || f.Family == Family {
			f.Class = NotExecuted
		}
	case m.Review == nil && f.Reprocess == nil:
		other := !*m.Reprocess
		f.Reprocess = &other
	case m.Reprocess == nil && f.Review == nil:
		other := !*m.Review
		f.Review = &other
	}
	return f
}

// dueFilter is the rule's filter for letters whose delay is over at a time.
func (r *activeRule) dueFilter(at time.Time) LetterFilter {
	f := r.Filter
	f.Status = background.LetterOpen
	if to := at.Add(-r.delay + time.Microsecond); f.To.IsZero() || to.Before(f.To) {
		f.To = to
	}
	return f
}

// ruleGate is the gate that keeps a rule from a letter which its filter found, or empty.
// Of what the filter asks, all that can have changed since is asked again. replays is
// how often the rule has replayed the lineage.
func (s *Service) ruleGate(r *activeRule, f postgres.LetterRow, replays int, at time.Time) Gate {
	reprocess, review := valueOr(f.Annotations.Reprocess, reprocessEligible(f.Snapshot)), valueOr(f.Annotations.Review, manualReviewRequired(f.Snapshot))
	want := r.Filter
	switch {
	case f.Run.Tenant != r.Tenant:
		return GateNotSelected
	case f.Run.State != background.DeadLettered:
		return GateNotALetter
	case f.Run.Letter != background.LetterOpen:
		return GateNotOpen
	case f.Run.DeadAt.Add(r.delay).After(at):
		return GateNotDue
	case want.Held != nil && *want.Held != f.Annotations.Held, want.Reprocess != nil && *want.Reprocess != reprocess, want.Review != nil && *want.Review != review,
		want.Class != "" && want.Class != f.Run.Class:
		return GateNotSelected
	case r.Mark != nil:
		if r.Mark.missing(f.Annotations, reprocess, review) == (RuleMark{}) {
			return GateMarked
		}
		return ""
	case f.Case.Kind == postgres.KindSettlement && (f.Run.Class != NotExecuted || f.Run.UnresolvedUnknowns > 0 || f.Run.HasOutstandingCall()):
		return GateMayBeExecuted
	case f.Annotations.Held:
		return GateHeld
	case review:
		return GateReview
	case f.Annotations.Reprocess != nil && !*f.Annotations.Reprocess:
		return GateNotEligible
	case replays >= r.MaxReplays:
		return GateReplaysSpent
	}
	return s.settlements.forkGate(f.Snapshot, at)
}

// missing is what of a mark is still to be said: what nobody has said, and is not so
// already.
func (m *RuleMark) missing(d postgres.Annotations, reprocess, review bool) (out RuleMark) {
	if m.Reprocess != nil && d.Reprocess == nil && *m.Reprocess != reprocess {
		out.Reprocess = m.Reprocess
	}
	if m.Review != nil && d.Review == nil && *m.Review != review {
		out.Review = m.Review
	}
	return out
}
