package postadjudication

import (
	"context"
	"fmt"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/postgres"
)

// AnalysisQuery asks what dead letters have in common.
type AnalysisQuery struct {
	Filter LetterFilter
	Step   TimeStep // Days when empty
	Steps  int      // how many of them, up to 1000; 30 when 0
}

// Analysis is what the letters that a filter selects have in common: how many there
// are in all, of what, since when, and how much money they keep.
type Analysis struct {
	At       time.Time `json:"at"`
	Letters  int64     `json:"letters"`
	Open     int64     `json:"open"`
	AtRisk   Sums      `json:"at_risk"`       // what stays reserved for the open ones
	Attempts float64   `json:"mean_attempts"` // of one letter

	ByStatus    []Share `json:"by_letter"`
	ByFamily    []Share `json:"by_family"`
	ByType      []Share `json:"by_job_type"`
	ByQueue     []Share `json:"by_queue"`
	ByOutcome   []Share `json:"by_outcome"`
	ByReason    []Share `json:"by_reason_code"`
	ByClass     []Share `json:"by_outcome_class"`
	ByErrorType []Share `json:"by_error_type"`
	ByCurrency  []Share `json:"by_currency"`
	ByReplayer  []Share `json:"by_replayed_by"` // "" are those that nobody tried again
	ByHeld      []Share `json:"by_held"`
	ByReprocess []Share `json:"by_reprocess_eligible"`
	ByReview    []Share `json:"by_manual_review_required"`

	Groups   int           `json:"groups"` // signatures that there are
	Largest  []LetterGroup `json:"largest_groups"`
	Times    []TimeShare   `json:"times"`
	Earlier  int64         `json:"earlier"` // died before the first of Times
	Trends   []Trend       `json:"trends"`
	Oldest   *Letter       `json:"oldest,omitempty"` // of those that are open
	Expiring int64         `json:"expiring"`         // let go by retention within 7 days
}

// largestGroups is how many groups an analysis shows itself.
const largestGroups = 10

// Analyze tells what dead letters of a tenant have in common. Counts and sums are
// exact and of one moment; Oldest and Expiring are looked up behind it.
func (s *Service) Analyze(ctx context.Context, tenant string, q AnalysisQuery) (Analysis, error) {
	now := s.now()
	out := Analysis{At: now}
	steps, err := q.edges(now)
	if err != nil {
		return out, err
	}
	if err := s.checkAndDrain(ctx, tenant, q.Filter); err != nil {
		return out, err
	}
	f := s.journalFilter(q.Filter, now)
	times, trends := &postgres.DeathHistogram{Edges: steps}, trendEdges(now)
	found, err := s.journal.AnalyzeLetters(ctx, tenant, f, largestGroups, times, trends)
	if err != nil {
		return out, err
	}
	if err := out.add(found.Tallies); err != nil {
		return out, err
	}
	out.Times, out.Trends, out.Earlier = timesOf(times), trendsOf(trends, now), out.Letters
	for _, t := range out.Times {
		out.Earlier -= t.Letters
	}
	out.Groups = found.SignatureCount
	if out.Largest, err = groupsOf(found.Largest); err != nil {
		return out, err
	}
	out.Oldest, out.Expiring, err = s.oldestAndExpiring(ctx, tenant, q.Filter)
	return out, err
}

// checkAndDrain checks what is asked and brings the list of letters up to date.
func (s *Service) checkAndDrain(ctx context.Context, tenant string, f LetterFilter) error {
	if err := validateLetterQuery(tenant, f); err != nil {
		return err
	}
	return s.journal.CatchUpLetters(ctx)
}

// add puts the tallies together, in all the ways that they are shown.
func (a *Analysis) add(tallies []postgres.LetterTally) error {
	a.AtRisk = Sums{}
	var attempts int64
	for _, t := range tallies {
		a.Letters, attempts = a.Letters+t.Letters, attempts+t.Attempts
		if background.LetterStatus(t.Status) == background.LetterOpen {
			a.Open += t.Letters
		}
		if err := a.AtRisk.add(t.Currency, t.AtRisk); err != nil {
			return err
		}
	}
	if a.Letters > 0 {
		a.Attempts = float64(attempts) / float64(a.Letters)
	}
	for _, by := range []struct {
		to *[]Share
		of func(t *postgres.LetterTally) string
	}{
		{&a.ByStatus, func(t *postgres.LetterTally) string { return t.Status }},
		{&a.ByFamily, func(t *postgres.LetterTally) string { return t.Family }},
		{&a.ByType, func(t *postgres.LetterTally) string { return t.JobType }},
		{&a.ByQueue, func(t *postgres.LetterTally) string { return t.Queue }},
		{&a.ByOutcome, func(t *postgres.LetterTally) string { return t.Outcome }},
		{&a.ByReason, func(t *postgres.LetterTally) string { return t.Reason }},
		{&a.ByClass, func(t *postgres.LetterTally) string { return t.Class }},
		{&a.ByErrorType, func(t *postgres.LetterTally) string { return t.ErrorType }},
		{&a.ByCurrency, func(t *postgres.LetterTally) string { return t.Currency }},
		{&a.ByReplayer, func(t *postgres.LetterTally) string { return t.ReplayedBy }},
		{&a.ByHeld, func(t *postgres.LetterTally) string { return fmt.Sprint(t.Held) }},
		{&a.ByReprocess, func(t *postgres.LetterTally) string { return fmt.Sprint(t.Eligible) }},
		{&a.ByReview, func(t *postgres.LetterTally) string { return fmt.Sprint(t.Review) }},
	} {
		var err error
		if *by.to, err = sharesOf(tallies, by.of); err != nil {
			return err
		}
	}
	return nil
}

// oldestAndExpiring gives the oldest open letter that a filter selects, and how many are let go
// by retention soon.
func (s *Service) oldestAndExpiring(ctx context.Context, tenant string, f LetterFilter) (oldest *Letter, expiring int64, err error) {
	if f.Status != background.NoLetter && f.Status != background.LetterOpen {
		return nil, 0, nil
	}
	f.Status = background.LetterOpen
	page, err := s.Letters(ctx, tenant, LetterQuery{Filter: f, Sort: OldestFirst, Limit: 1})
	if err != nil {
		return nil, 0, err
	}
	if len(page.Letters) > 0 {
		oldest = &page.Letters[0]
	}
	if soon := Duration(expiryNotice); f.ExpiringWithin == 0 || f.ExpiringWithin > soon {
		f.ExpiringWithin = soon
	}
	count, err := s.CountLetters(ctx, tenant, f)
	return oldest, count.Total, err
}
