package app

import (
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.uber.org/zap"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/background/circuit"
	"github.com/recourse-dev/recourse/internal/build"
	"github.com/recourse-dev/recourse/postadjudication/deadletter"
	"github.com/recourse-dev/recourse/receipts"
)

// latenessBuckets are in seconds. The promise at low load is 3ms at the median and 15ms at the
// 99th percentile.
var latenessBuckets = []float64{.0005, .001, .002, .003, .005, .0075, .01, .015, .025, .05, .1, .25, 1, 5, 30}

// metrics counts the work of this process. Transitions are counted once they are committed.
type metrics struct {
	registry           *prometheus.Registry
	attempts           *prometheus.CounterVec
	stateEntries       *prometheus.CounterVec
	deadLetters        *prometheus.CounterVec
	breakerTransitions *prometheus.CounterVec
	outOfBandChanges   *prometheus.CounterVec
	refusals           *prometheus.CounterVec
	lateness           prometheus.Histogram
	jobs               *jobMetrics
}

func newMetrics() *metrics {
	m := &metrics{
		registry: prometheus.NewPedanticRegistry(),
		attempts: newCounters("recourse_attempts_total", "Attempts that ended, by outcome class.", "class",
			string(background.Executed), string(background.NotExecuted), string(background.Unknown)),
		stateEntries: newCounters("recourse_runs_entered_total", "Times that a run entered a state.", "state",
			string(background.Running), string(background.Scheduled), string(background.Succeeded), string(background.DeadLettered), string(background.Discarded), string(background.Cancelled)),
		deadLetters: newCounters("recourse_dead_letters_total", "Dead letters opened, by reason code.", "reason", deadletter.ReasonCodes()...),
		breakerTransitions: newCounters("recourse_breaker_transitions_total", "State changes of circuit breakers made by this process, by the new state.", "state",
			string(circuit.Open), string(circuit.HalfOpen), string(circuit.Closed)),
		outOfBandChanges: newCounters("recourse_out_of_band_changes_total", "Tasks changed in Redis by others, by kind of change as in the receipts.", "what",
			background.TaskArchived, background.TaskRemoved, background.ArchivedTaskRemoved, background.ArchivedTaskRequeued),
		refusals: newCounters("recourse_http_refusals_total", "Requests refused for authentication, authorisation or rate (401, 403, 429), by problem code.", "code",
			"key_missing", "key_invalid", "key_expired", "key_revoked", "tenant_mismatch", "role_missing", "beyond_reach", "host_unknown", "cross_origin", "too_many_failures"),
		lateness: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "recourse_retry_lateness_seconds", Help: "Time between the due time of a retry and its start.", Buckets: latenessBuckets,
		}),
	}
	from := build.Read()
	made := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "recourse_build_info", Help: "Always 1; the labels have the version, revision and Go version of this program.",
		ConstLabels: prometheus.Labels{"version": from.Version, "revision": from.Revision, "go_version": from.Go},
	})
	made.Set(1)
	m.registry.MustRegister(made, m.attempts, m.stateEntries, m.deadLetters, m.breakerTransitions, m.outOfBandChanges, m.refusals, m.lateness)
	m.jobs = newJobMetrics(m.registry)
	return m
}

// newCounters returns counters with one label. The given values are exported from the start, at
// zero, so that a rate over them is defined.
func newCounters(name, help, label string, values ...string) *prometheus.CounterVec {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{label})
	for _, v := range values {
		c.WithLabelValues(v)
	}
	return c
}

// countTransition counts one committed transition of a run.
func (m *metrics) countTransition(tr background.Transition, after background.Run) {
	if tr.Run.State != after.State {
		m.stateEntries.WithLabelValues(string(after.State)).Inc()
	}
	if tr.Subtype == receipts.AttemptStarted && tr.Run.Attempt > 0 && !after.Remote { // remote workers come when they want
		m.lateness.Observe(max(0, tr.At.Sub(tr.Run.DueAt)).Seconds())
	}
	if tr.Run.State == background.Running && after.State != background.Running {
		m.attempts.WithLabelValues(string(tr.Result.Class)).Inc()
	}
	if tr.Subtype == receipts.OutOfBandChangeDetected {
		m.outOfBandChanges.WithLabelValues(tr.Reason).Inc()
	}
}

// countDeath counts one run that became a dead letter.
func (m *metrics) countDeath(letter background.Run) {
	m.deadLetters.WithLabelValues(letter.Reason).Inc()
	m.jobs.countDeath(letter)
}

// registerCollectors adds the collectors that read at each scrape.
func (m *metrics) registerCollectors(s measuredService, started time.Time, log *zap.Logger) {
	levels := newLevelCache(s, log)
	m.registry.MustRegister(processCollector{s, started}, newStoreCollector(levels), levels.failures)
}

func (m *metrics) handler(log *zap.Logger) http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{ErrorLog: zap.NewStdLog(log), ErrorHandling: promhttp.ContinueOnError})
}
