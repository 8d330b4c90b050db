package app

import (
	"time"

	"github.com/recourse-dev/recourse/background"
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
}

func newMetrics() *metrics {
	return &metrics{
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

// page is everything in Prometheus's text format.
func (m *metrics) page(s background.Stats, started, now time.Time) []byte {
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
	return out.text
}
