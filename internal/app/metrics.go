package app

import (
	"context"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/receipts"
)

// latenessBounds are seconds. The promise at low load is 3ms at the median and
// 15ms at the 99th percentile.
var latenessBounds = []float64{.0005, .001, .002, .003, .005, .0075, .01, .015, .025, .05, .1, .25, 1, 5, 30}

// metrics count what this process did. Moves are counted when they are committed.
type metrics struct {
	attempts *counter
	entered  *counter
	letters  *counter
	lateness *histogram
	levels   *levels
}

func newMetrics(measure func(context.Context) (postadjudication.Levels, error)) *metrics {
	return &metrics{
		levels: &levels{measure: measure, now: time.Now},
		attempts: newCounter("recourse_attempts_total", "Attempts that ended, by what is known of the money.", "class",
			string(background.Executed), string(background.NotExecuted), string(background.Unknown)),
		entered: newCounter("recourse_runs_entered_total", "Times that a run entered a state.", "state",
			string(background.Running), string(background.Scheduled), string(background.Succeeded), string(background.DeadLettered), string(background.Cancelled)),
		letters: newCounter("recourse_dead_letters_total", "Dead letters opened, by reason code.", "reason",
			background.ReasonRetryExhausted, background.ReasonFinal, background.ReasonNonRetryableType, background.ReasonOutcomeUnknown, background.ReasonPoisonPill),
		lateness: newHistogram("recourse_retry_lateness_seconds", "How long after its time a retry started.", latenessBounds),
	}
}

// moved counts one committed move of a run.
func (m *metrics) moved(mv background.Move, after background.Run) {
	if mv.Run.State != after.State {
		m.entered.add(string(after.State))
	}
	if mv.Fact == receipts.AttemptStarted && mv.Run.Attempt > 0 {
		m.lateness.observe(max(0, mv.At.Sub(mv.Run.DueAt)).Seconds())
	}
	if mv.Run.State == background.Running && after.State != background.Running {
		m.attempts.add(string(mv.Result.Class))
	}
	if mv.Fact == receipts.DeadLettered {
		m.letters.add(after.Reason)
	}
}

// page is everything in Prometheus's text format. What can't be measured is left
// out, and the page says so.
func (m *metrics) page(ctx context.Context, s postadjudication.Stats, started, now time.Time) ([]byte, error) {
	var out exposition
	out.counter(m.attempts)
	out.counter(m.entered)
	out.counter(m.letters)
	out.histogram(m.lateness)
	out.single("recourse_calls_running", "Calls of the escrow service in flight.", "gauge", float64(s.Running))
	out.single("recourse_runs_waiting_in_place", "Runs that wait for their next attempt in this process.", "gauge", float64(s.Waiting))
	out.single("recourse_calls_abandoned", "Calls that outlived their attempt and have not answered yet.", "gauge", float64(s.Abandoned))
	out.single("recourse_evidence_write_failures_total", "Failed tries to write a move.", "counter", float64(s.WriteFailures))
	out.single("recourse_bells_rung_again_total", "Bells rung again by the sweeper.", "counter", float64(s.Rung))
	out.single("recourse_uptime_seconds", "Since this process opened its service.", "gauge", now.Sub(started).Seconds())
	out.batches("recourse_move_commit_rows", "Moves of existing cases that shared a commit.", s.Moves)
	out.batches("recourse_submit_commit_rows", "New cases that shared a commit.", s.Opens)
	err := m.measured(ctx, &out, now)
	return out.text, err
}

// measured adds what the database tells of all processes.
func (m *metrics) measured(ctx context.Context, out *exposition, now time.Time) error {
	l, err := m.levels.get(ctx)
	const told, help = "recourse_levels_measured", "Whether the levels below could be measured."
	if err != nil {
		out.single(told, help, "gauge", 0)
		return err
	}
	out.single(told, help, "gauge", 1)
	runs, age := make(map[string]float64, len(l.Runs)), 0.0
	for state, n := range l.Runs {
		runs[string(state)] = float64(n)
	}
	if !l.OldestDue.IsZero() {
		age = max(0, now.Sub(l.OldestDue).Seconds())
	}
	atRisk := make(map[string]float64, len(l.AtRisk))
	for currency, minor := range l.AtRisk {
		atRisk[currency] = float64(minor)
	}
	out.labelled("recourse_runs", "Live runs by state, and open letters as dead_lettered; of all processes.", "gauge", "state", runs)
	out.single("recourse_oldest_due_age_seconds", "For how long the oldest run that waits has been due; 0 when none is.", "gauge", age)
	out.labelled("recourse_money_at_risk_minor_units", "Reserved by cases with an open letter, in minor units.", "gauge", "currency", atRisk)
	return nil
}

// batches shows how many rows shared commits.
func (e *exposition) batches(name, help string, b postadjudication.Batches) {
	bounds := make([]float64, len(postadjudication.BatchBounds))
	for i, rows := range postadjudication.BatchBounds {
		bounds[i] = float64(rows)
	}
	e.distribution(name, help, bounds, b.Commits[:], float64(b.Rows))
}
