package report

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication/casestatus"
	"github.com/recourse-dev/recourse/postadjudication/deadletter"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/search"
	"github.com/recourse-dev/recourse/postadjudication/internal/validate"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/settlement"
)

// Reports counts and groups dead letters.
type Reports struct {
	s       *deadletter.Searcher
	letters deadletter.Letters
	cases   casestatus.Cases
	tenant  string
}

// Of returns the reports of a tenant.
func Of(s *deadletter.Repository, tenant string) Reports {
	return Reports{s.Searcher, s.As(tenant, ""), s.Statuses.As(tenant), tenant}
}

// Query selects the dead letters to analyze.
type Query struct {
	Filter deadletter.Filter
	Step   TimeStep // empty: Days
	Steps  int      // number of steps, at most 1000; 0: 30
}

// Analysis summarizes the dead letters that a filter selects: counts, shares by property,
// deaths over time, and the money they keep reserved.
type Analysis struct {
	At       time.Time       `json:"at"`
	Letters  int64           `json:"letters"`
	Open     int64           `json:"open"`
	AtRisk   settlement.Sums `json:"at_risk"`       // reserved for the open ones
	Attempts float64         `json:"mean_attempts"` // attempts per letter

	ByStatus    []Share `json:"by_letter"`
	ByFamily    []Share `json:"by_family"`
	ByType      []Share `json:"by_job_type"`
	ByQueue     []Share `json:"by_queue"`
	ByOutcome   []Share `json:"by_outcome"`
	ByReason    []Share `json:"by_reason_code"`
	ByClass     []Share `json:"by_outcome_class"`
	ByErrorType []Share `json:"by_error_type"`
	ByCurrency  []Share `json:"by_currency"`
	ByReplayer  []Share `json:"by_replayed_by"` // "": not replayed
	ByHeld      []Share `json:"by_held"`
	ByReprocess []Share `json:"by_reprocess_eligible"`
	ByReview    []Share `json:"by_manual_review_required"`

	Groups   int                `json:"groups"` // number of signatures
	Largest  []Group            `json:"largest_groups"`
	Times    []TimeShare        `json:"times"`
	Earlier  int64              `json:"earlier"` // letters that died before the first of Times
	Trends   []Trend            `json:"trends"`
	Oldest   *deadletter.Letter `json:"oldest,omitempty"` // oldest open letter
	Expiring int64              `json:"expiring"`         // open letters whose retention ends within 7 days

	Reserved casestatus.ReservedMoney `json:"reserved"` // of all cases, whatever the filter selects
}

// largestGroups is the number of groups that an analysis includes.
const largestGroups = 10

// Analyze summarizes the dead letters of a tenant that a filter selects. Counts and sums are
// exact and of one moment; Oldest, Expiring and Reserved are read afterwards.
func (r Reports) Analyze(ctx context.Context, q Query) (Analysis, error) {
	now := r.s.Now()
	out := Analysis{At: now}
	steps, err := q.edges(now)
	if err != nil {
		return out, err
	}
	if err := r.checkAndDrain(ctx, q.Filter); err != nil {
		return out, err
	}
	f := r.s.JournalFilter(q.Filter, now)
	times, trends := &search.DeathHistogram{Edges: steps}, trendEdges(now)
	found, err := r.s.Search.Analyze(ctx, r.tenant, f, largestGroups, times, trends)
	if err != nil {
		return out, err
	}
	out.add(found.Tallies)
	out.Times, out.Trends, out.Earlier = timesOf(times), trendsOf(trends, now), out.Letters
	for _, t := range out.Times {
		out.Earlier -= t.Letters
	}
	out.Groups = found.SignatureCount
	out.Largest = groupsOf(found.Largest)
	if out.Oldest, out.Expiring, err = r.oldestAndExpiring(ctx, q.Filter); err != nil {
		return out, err
	}
	out.Reserved, err = r.cases.Reserved(ctx)
	return out, err
}

// checkAndDrain validates the query and brings the list of letters up to date.
func (r Reports) checkAndDrain(ctx context.Context, f deadletter.Filter) error {
	if err := deadletter.CheckQuery(r.tenant, f); err != nil {
		return err
	}
	return r.s.Search.CatchUp(ctx)
}

// add sums up the tallies by each property that an analysis shows.
func (a *Analysis) add(tallies []search.Tally) {
	a.AtRisk = settlement.Sums{}
	var attempts int64
	for _, t := range tallies {
		a.Letters, attempts = a.Letters+t.Letters, attempts+t.Attempts
		if background.LetterStatus(t.Status) == background.LetterOpen {
			a.Open += t.Letters
		}
		addAtRisk(a.AtRisk, &t)
	}
	if a.Letters > 0 {
		a.Attempts = float64(attempts) / float64(a.Letters)
	}
	for _, by := range []struct {
		to *[]Share
		of func(t *search.Tally) string
	}{
		{&a.ByStatus, func(t *search.Tally) string { return t.Status }},
		{&a.ByFamily, func(t *search.Tally) string { return t.Family }},
		{&a.ByType, func(t *search.Tally) string { return t.JobType }},
		{&a.ByQueue, func(t *search.Tally) string { return t.Queue }},
		{&a.ByOutcome, func(t *search.Tally) string { return t.Outcome }},
		{&a.ByReason, func(t *search.Tally) string { return t.Reason }},
		{&a.ByClass, func(t *search.Tally) string { return t.Class }},
		{&a.ByErrorType, func(t *search.Tally) string { return t.ErrorType }},
		{&a.ByCurrency, func(t *search.Tally) string { return t.Currency }},
		{&a.ByReplayer, func(t *search.Tally) string { return t.ReplayedBy }},
		{&a.ByHeld, func(t *search.Tally) string { return fmt.Sprint(t.Held) }},
		{&a.ByReprocess, func(t *search.Tally) string { return fmt.Sprint(t.Eligible) }},
		{&a.ByReview, func(t *search.Tally) string { return fmt.Sprint(t.Review) }},
	} {
		*by.to = sharesOf(tallies, by.of)
	}
}

// addAtRisk adds what letters have at risk. A currency of which nothing is at risk is not named.
func addAtRisk(to settlement.Sums, t *search.Tally) {
	if t.AtRisk.Sign() != 0 {
		to.Add(t.Currency, t.AtRisk)
	}
}

// oldestAndExpiring returns the oldest open letter that a filter selects, and the number of
// those whose retention ends soon.
func (r Reports) oldestAndExpiring(ctx context.Context, f deadletter.Filter) (oldest *deadletter.Letter, expiring int64, err error) {
	if f.Status != background.NoLetter && f.Status != background.LetterOpen {
		return nil, 0, nil
	}
	f.Status = background.LetterOpen
	page, err := r.letters.List(ctx, deadletter.Query{Filter: f, Sort: deadletter.OldestFirst, Limit: 1})
	if err != nil {
		return nil, 0, err
	}
	if len(page.Letters) > 0 {
		oldest = &page.Letters[0]
	}
	if soon := deadletter.Duration(deadletter.ExpiresSoon); f.ExpiringWithin == 0 || f.ExpiringWithin > soon {
		f.ExpiringWithin = soon
	}
	count, err := r.letters.Count(ctx, f)
	return oldest, count.Total, err
}

// Share counts the letters that have a value in common.
type Share struct {
	Value   string          `json:"value"`
	Letters int64           `json:"letters"`
	AtRisk  settlement.Sums `json:"at_risk"` // reserved for the open ones
}

// sharesOf groups letters by a value, most frequent first.
func sharesOf(tallies []search.Tally, of func(*search.Tally) string) []Share {
	at := map[string]int{}
	out := []Share{}
	for i := range tallies {
		t := &tallies[i]
		value := of(t)
		if _, known := at[value]; !known {
			at[value] = len(out)
			out = append(out, Share{Value: value, AtRisk: settlement.Sums{}})
		}
		share := &out[at[value]]
		share.Letters += t.Letters
		addAtRisk(share.AtRisk, t)
	}
	slices.SortFunc(out, func(a, b Share) int { return cmp.Or(cmp.Compare(b.Letters, a.Letters), cmp.Compare(a.Value, b.Value)) })
	return out
}

// Stats holds statistics of a tenant's dead letters.
type Stats struct {
	At       time.Time                         `json:"at"`
	Letters  int64                             `json:"letters"`
	ByStatus map[background.LetterStatus]int64 `json:"by_letter"`

	// Open letters only.

	Open      int64              `json:"open"`
	ByClass   []Share            `json:"by_outcome_class"`
	ByError   []Share            `json:"by_error_type"`
	Ages      []AgeBand          `json:"ages"` // the youngest first
	AtRisk    settlement.Sums    `json:"at_risk"`
	Attempts  float64            `json:"mean_attempts"`
	Held      int64              `json:"held"`
	Reprocess int64              `json:"reprocess_eligible"`
	Review    int64              `json:"manual_review_required"`
	Oldest    *deadletter.Letter `json:"oldest,omitempty"`
	Expiring  int64              `json:"expiring"` // letters whose retention ends within 7 days

	// All letters, whatever their status.

	DiedLastHour int64 `json:"died_last_hour"`
	DiedLastDay  int64 `json:"died_last_day"`

	Reserved casestatus.ReservedMoney `json:"reserved"` // of all cases, whatever the filter selects
}

// TenantStats are the statistics of one of all tenants.
type TenantStats struct {
	Tenant string `json:"tenant"`
	Stats
}

// AgeBand counts the letters of age From or more and below To. The oldest band has no To.
type AgeBand struct {
	From    deadletter.Duration `json:"from"`
	To      deadletter.Duration `json:"to,omitzero"`
	Letters int64               `json:"letters"`
}

// ageBands holds the lower bound of each band.
var ageBands = []deadletter.Duration{0, deadletter.Duration(time.Hour), deadletter.Duration(validate.Day), deadletter.Duration(7 * validate.Day), deadletter.Duration(30 * validate.Day), deadletter.Duration(90 * validate.Day)}

// Stats returns statistics of a tenant's dead letters that a filter selects; the zero
// filter selects all. Counts and sums are exact and of one moment; Oldest, Expiring and Reserved are
// read afterwards.
func (r Reports) Stats(ctx context.Context, f deadletter.Filter) (Stats, error) {
	now := r.s.Now()
	out := Stats{At: now, ByStatus: map[background.LetterStatus]int64{}, AtRisk: settlement.Sums{}}
	if err := r.checkAndDrain(ctx, f); err != nil {
		return out, err
	}
	all := r.s.JournalFilter(f, now)
	died := &search.DeathHistogram{Edges: []time.Time{now.Add(-validate.Day + time.Microsecond), now.Add(-time.Hour + time.Microsecond), now.Add(time.Microsecond)}}
	counts := []*search.DeathHistogram{died}
	ages := &search.DeathHistogram{OpenOnly: true, Edges: bandEdges(now)}
	noneOpen := f.Status != background.NoLetter && f.Status != background.LetterOpen
	if !noneOpen {
		counts = append(counts, ages)
	}
	tallies, err := r.s.Search.Tally(ctx, r.tenant, all, counts...)
	if err != nil {
		return out, err
	}
	out.add(tallies)
	out.DiedLastDay, out.DiedLastHour = died.Counts[0]+died.Counts[1], died.Counts[1]
	for i, from := range ageBands {
		band := AgeBand{From: from}
		if i+1 < len(ageBands) {
			band.To = ageBands[i+1]
		}
		if !noneOpen {
			band.Letters = ages.Counts[len(ageBands)-1-i]
		}
		out.Ages = append(out.Ages, band)
	}
	if out.Oldest, out.Expiring, err = r.oldestAndExpiring(ctx, f); err != nil {
		return out, err
	}
	out.Reserved, err = r.cases.Reserved(ctx)
	return out, err
}

// bandEdges returns the times of death that separate the bands, oldest first.
func bandEdges(now time.Time) []time.Time {
	edges := []time.Time{time.Time{}.Add(time.Microsecond)}
	for i := len(ageBands) - 1; i >= 0; i-- {
		edges = append(edges, now.Add(-time.Duration(ageBands[i])+time.Microsecond))
	}
	edges[len(edges)-1] = now.Add(365 * validate.Day) // includes deaths recorded by a process whose clock is ahead
	return edges
}

func (l *Stats) add(tallies []search.Tally) {
	var open []search.Tally
	var attempts int64
	for _, t := range tallies {
		l.Letters += t.Letters
		l.ByStatus[background.LetterStatus(t.Status)] += t.Letters
		if background.LetterStatus(t.Status) != background.LetterOpen {
			continue
		}
		open = append(open, t)
		l.Open, attempts = l.Open+t.Letters, attempts+t.Attempts
		for _, is := range []struct {
			so bool
			n  *int64
		}{{t.Held, &l.Held}, {t.Eligible, &l.Reprocess}, {t.Review, &l.Review}} {
			if is.so {
				*is.n += t.Letters
			}
		}
		addAtRisk(l.AtRisk, &t)
	}
	if l.Open > 0 {
		l.Attempts = float64(attempts) / float64(l.Open)
	}
	l.ByClass = sharesOf(open, func(t *search.Tally) string { return t.Class })
	l.ByError = sharesOf(open, func(t *search.Tally) string { return t.ErrorType })
}

// TimeStep is the width of an analysis step.
type TimeStep string

// The steps. They are aligned to UTC hours and days.
const (
	Hours TimeStep = "hour"
	Days  TimeStep = "day"
)

// TimeShare counts the letters that died within a step: at or after From, before To.
type TimeShare struct {
	From    time.Time `json:"from"`
	To      time.Time `json:"to"`
	Letters int64     `json:"letters"`
}

// Trend compares the letters that died in the last Window with those that died in the Window
// before it.
type Trend struct {
	Window  deadletter.Duration `json:"window"`
	Letters int64               `json:"letters"`
	Before  int64               `json:"before"`
}

// trendWindows are in ascending order.
var trendWindows = []deadletter.Duration{deadletter.Duration(time.Hour), deadletter.Duration(validate.Day), deadletter.Duration(7 * validate.Day)}

const (
	maxSteps     = 1000
	defaultSteps = 30
)

// edges returns the bounds of the requested steps. The last step contains now, or the end of
// the filter if that is earlier.
func (q Query) edges(now time.Time) ([]time.Time, error) {
	width, known := map[TimeStep]time.Duration{"": validate.Day, Days: validate.Day, Hours: time.Hour}[q.Step]
	n := q.Steps
	if n == 0 {
		n = defaultSteps
	}
	switch {
	case !known:
		return nil, &refusal.FieldError{Field: "step", Problem: "must be hour or day"}
	case n < 1 || n > maxSteps:
		return nil, &refusal.FieldError{Field: "steps", Problem: fmt.Sprintf("must be 1 to %d", maxSteps)}
	}
	end := now.Truncate(width).Add(width)
	if to := q.Filter.To; !to.IsZero() && to.Before(now) {
		if end = to.UTC().Truncate(width); end.Before(to) {
			end = end.Add(width)
		}
	}
	out := make([]time.Time, n+1)
	for i := range out {
		out[i] = end.Add(-time.Duration(n-i) * width)
	}
	return out, nil
}

func timesOf(d *search.DeathHistogram) []TimeShare {
	out := make([]TimeShare, len(d.Counts))
	for i, n := range d.Counts {
		out[i] = TimeShare{From: d.Edges[i], To: d.Edges[i+1], Letters: n}
	}
	return out
}

// trendEdges returns the histogram edges for each window and the one before it.
func trendEdges(now time.Time) *search.DeathHistogram {
	d := &search.DeathHistogram{}
	for i := len(trendWindows) - 1; i >= 0; i-- {
		w := time.Duration(trendWindows[i])
		d.Edges = append(d.Edges, now.Add(-2*w+time.Microsecond), now.Add(-w+time.Microsecond))
	}
	d.Edges = append(d.Edges, now.Add(time.Microsecond))
	return d
}

func trendsOf(d *search.DeathHistogram, now time.Time) []Trend {
	out := make([]Trend, len(trendWindows))
	for i, w := range trendWindows {
		from, middle := now.Add(-2*time.Duration(w)), now.Add(-time.Duration(w))
		out[i].Window = w
		for k, n := range d.Counts {
			switch {
			case d.Edges[k].After(middle):
				out[i].Letters += n
			case d.Edges[k].After(from):
				out[i].Before += n
			}
		}
	}
	return out
}
