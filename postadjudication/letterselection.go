package postadjudication

import (
	"strings"
	"time"

	"github.com/recourse-dev/recourse/internal/postgres"
)

// journalFilter is a filter as the journal takes it, with its ages counted from a time.
// The filter is one that Validate finds nothing wrong with.
func (s *Service) journalFilter(f LetterFilter, asOf time.Time) postgres.LetterFilter {
	out := postgres.LetterFilter{
		Facets: postgres.FacetFilter{
			Status: string(f.Status), Family: f.Family, Queue: f.Queue, JobType: f.JobType, Outcome: string(f.Outcome), Reason: f.ReasonCode,
			Class: string(f.Class), ErrorType: f.ErrorType, Signature: f.Signature, Currency: f.Currency, ReplayedBy: f.ReplayedBy,
			Held: f.Held, Eligible: f.Reprocess, Review: f.Review, Text: strings.ToLower(f.ErrorText),
		},
		Transaction: f.Transaction, Submission: f.Submission, Escrow: f.Escrow,
		DeadFrom: journalTime(f.From), DeadTo: journalTime(f.To),
		MinAttempts: f.MinAttempts, MaxAttempts: f.MaxAttempts, MinAmount: f.MinAmount, MaxAmount: f.MaxAmount,
		MinReplays: f.MinReplays, MaxReplays: f.MaxReplays, Lifetime: s.retentionOf,
	}
	out.Run, out.NotificationNumber, _ = f.dispatchedRun()
	if f.OlderThan != 0 {
		if to := asOf.Add(-time.Duration(f.OlderThan) + time.Microsecond); out.DeadTo.IsZero() || to.Before(out.DeadTo) {
			out.DeadTo = to
		}
	}
	if f.YoungerThan != 0 {
		if from := asOf.Add(-time.Duration(f.YoungerThan) + time.Microsecond); from.After(out.DeadFrom) {
			out.DeadFrom = from
		}
	}
	if f.ExpiringWithin != 0 {
		out.ExpiresUntil = asOf.Add(time.Duration(f.ExpiringWithin))
	}
	return out
}

// retentionOf is how long open letters of a queue are kept; it is false when that has no
// end.
func (s *Service) retentionOf(family, queue string) (time.Duration, bool) {
	age := s.retention.ruleFor(family, queue).maxAge
	return age, age > 0
}
