package postadjudication

import (
	"context"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/postgres"
)

// LetterStats is how the dead letters of a tenant stand.
type LetterStats struct {
	At       time.Time                         `json:"at"`
	Letters  int64                             `json:"letters"`
	ByStatus map[background.LetterStatus]int64 `json:"by_letter"`

	// Of the open ones.

	Open      int64     `json:"open"`
	ByClass   []Share   `json:"by_outcome_class"`
	ByError   []Share   `json:"by_error_type"`
	Ages      []AgeBand `json:"ages"` // the youngest first
	AtRisk    Sums      `json:"at_risk"`
	Attempts  float64   `json:"mean_attempts"`
	Held      int64     `json:"held"`
	Reprocess int64     `json:"reprocess_eligible"`
	Review    int64     `json:"manual_review_required"`
	Oldest    *Letter   `json:"oldest,omitempty"`
	Expiring  int64     `json:"expiring"` // let go by retention within 7 days

	// Of all, whatever became of them.

	DiedLastHour int64 `json:"died_last_hour"`
	DiedLastDay  int64 `json:"died_last_day"`
}

// AgeBand is the letters that are at least From old, and younger than To; the oldest
// band has no To.
type AgeBand struct {
	From    Duration `json:"from"`
	To      Duration `json:"to,omitzero"`
	Letters int64    `json:"letters"`
}

// ageBands begin at these ages.
var ageBands = []Duration{0, Duration(time.Hour), Duration(day), Duration(7 * day), Duration(30 * day), Duration(90 * day)}

// LetterStats tells how the dead letters of a tenant stand that a filter selects, as
// all of a family; the zero filter selects all. Counts and sums are exact and of one
// moment; Oldest and Expiring are looked up behind it.
func (s *Service) LetterStats(ctx context.Context, tenant string, f LetterFilter) (LetterStats, error) {
	now := s.now()
	out := LetterStats{At: now, ByStatus: map[background.LetterStatus]int64{}, AtRisk: Sums{}}
	if err := s.checkAndDrain(ctx, tenant, f); err != nil {
		return out, err
	}
	all := s.journalFilter(f, now)
	died := &postgres.DeathHistogram{Edges: []time.Time{now.Add(-day + time.Microsecond), now.Add(-time.Hour + time.Microsecond), now.Add(time.Microsecond)}}
	counts := []*postgres.DeathHistogram{died}
	ages := &postgres.DeathHistogram{OpenOnly: true, Edges: bandEdges(now)}
	noneOpen := f.Status != background.NoLetter && f.Status != background.LetterOpen
	if !noneOpen {
		counts = append(counts, ages)
	}
	tallies, err := s.journal.TallyLetters(ctx, tenant, all, counts...)
	if err != nil {
		return out, err
	}
	if err := out.add(tallies); err != nil {
		return out, err
	}
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
	out.Oldest, out.Expiring, err = s.oldestAndExpiring(ctx, tenant, f)
	return out, err
}

// bandEdges are the deaths that the bands end at, the oldest first.
func bandEdges(now time.Time) []time.Time {
	edges := []time.Time{time.Time{}.Add(time.Microsecond)}
	for i := len(ageBands) - 1; i >= 0; i-- {
		edges = append(edges, now.Add(-time.Duration(ageBands[i])+time.Microsecond))
	}
	edges[len(edges)-1] = now.Add(365 * day) // whoever's clock is ahead
	return edges
}

func (l *LetterStats) add(tallies []postgres.LetterTally) (err error) {
	var open []postgres.LetterTally
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
		if err := l.AtRisk.add(t.Currency, t.AtRisk); err != nil {
			return err
		}
	}
	if l.Open > 0 {
		l.Attempts = float64(attempts) / float64(l.Open)
	}
	if l.ByClass, err = sharesOf(open, func(t *postgres.LetterTally) string { return t.Class }); err != nil {
		return err
	}
	l.ByError, err = sharesOf(open, func(t *postgres.LetterTally) string { return t.ErrorType })
	return err
}
