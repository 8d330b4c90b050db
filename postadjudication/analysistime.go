package postadjudication

import (
	"fmt"
	"time"

	"github.com/recourse-dev/recourse/internal/postgres"
)

// TimeStep is how finely an analysis tells time.
type TimeStep string

// The steps, which begin and end with those of UTC.
const (
	Hours TimeStep = "hour"
	Days  TimeStep = "day"
)

// TimeShare is the letters that died within a step: at or after From, before To.
type TimeShare struct {
	From    time.Time `json:"from"`
	To      time.Time `json:"to"`
	Letters int64     `json:"letters"`
}

// Trend compares the letters that died in the last so and so long with those of as
// long before.
type Trend struct {
	Window  Duration `json:"window"`
	Letters int64    `json:"letters"`
	Before  int64    `json:"before"`
}

// trendWindows rise.
var trendWindows = []Duration{Duration(time.Hour), Duration(day), Duration(7 * day)}

const (
	maxSteps     = 1000
	defaultSteps = 30
)

// edges are the ends of the steps that are asked for. The last one holds the time that
// is asked at, or where the filter ends.
func (q AnalysisQuery) edges(now time.Time) ([]time.Time, error) {
	width, known := map[TimeStep]time.Duration{"": day, Days: day, Hours: time.Hour}[q.Step]
	n := q.Steps
	if n == 0 {
		n = defaultSteps
	}
	switch {
	case !known:
		return nil, &FieldError{Field: "step", Problem: "must be hour or day"}
	case n < 1 || n > maxSteps:
		return nil, &FieldError{Field: "steps", Problem: fmt.Sprintf("must be 1 to %d", maxSteps)}
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

func timesOf(d *postgres.DeathHistogram) []TimeShare {
	out := make([]TimeShare, len(d.Counts))
	for i, n := range d.Counts {
		out[i] = TimeShare{From: d.Edges[i], To: d.Edges[i+1], Letters: n}
	}
	return out
}

// trendEdges asks for the deaths of each window and of the one before.
func trendEdges(now time.Time) *postgres.DeathHistogram {
	d := &postgres.DeathHistogram{}
	for i := len(trendWindows) - 1; i >= 0; i-- {
		w := time.Duration(trendWindows[i])
		d.Edges = append(d.Edges, now.Add(-2*w+time.Microsecond), now.Add(-w+time.Microsecond))
	}
	d.Edges = append(d.Edges, now.Add(time.Microsecond))
	return d
}

func trendsOf(d *postgres.DeathHistogram, now time.Time) []Trend {
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
