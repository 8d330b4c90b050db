package app

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/receipts"
)

// jobMetrics counts dead letters of jobs, under the names of Open Job Spec.
type jobMetrics struct {
	added   *prometheus.CounterVec
	retried prometheus.Counter
	labels  boundedLabels
}

func newJobMetrics(r *prometheus.Registry) *jobMetrics {
	m := &jobMetrics{
		added:   prometheus.NewCounterVec(prometheus.CounterOpts{Name: "ojs_dead_letter_added_total", Help: "Dead letters of jobs opened by this process, by queue and type of job; from the hundredth pair on as " + otherLabels + "."}, []string{"queue", "type"}),
		retried: prometheus.NewCounter(prometheus.CounterOpts{Name: "ojs_dead_letter_retried_total", Help: "Dead letters of jobs that requests to /ojs retried at this process."}),
		labels:  boundedLabels{seen: map[[2]string]struct{}{}},
	}
	r.MustRegister(m.added, m.retried)
	return m
}

func (m *jobMetrics) countTransition(tr background.Transition, after background.Run) {
	if tr.Event == receipts.DeadLettered && after.Remote {
		labels := m.labels.bound(after.Queue, after.Target)
		m.added.WithLabelValues(labels[0], labels[1]).Inc()
	}
}

const (
	// maxLabels bounds the label values that clients choose.
	maxLabels   = 100
	otherLabels = "other"
)

// boundedLabels lets the first pairs of values be labels. It is safe for concurrent use.
type boundedLabels struct {
	mu   sync.Mutex
	seen map[[2]string]struct{}
}

func (b *boundedLabels) bound(queue, kind string) [2]string {
	b.mu.Lock()
	defer b.mu.Unlock()
	pair := [2]string{queue, kind}
	if _, known := b.seen[pair]; !known {
		if len(b.seen) >= maxLabels {
			return [2]string{otherLabels, otherLabels}
		}
		b.seen[pair] = struct{}{}
	}
	return pair
}

// jobGauges exports the open dead letters of jobs. The specification has two names for the gauge.
func jobGauges(l postadjudication.Levels, gauge func(d *prometheus.Desc, v float64, label ...string)) {
	for queue, n := range l.JobLetters {
		gauge(jobLettersTotal, float64(n), queue)
		gauge(jobLettersDepth, float64(n), queue)
	}
}

var (
	jobLettersTotal = newDesc("ojs_dead_letter_total", "Open dead letters of jobs of all processes, by queue: those of the hundred longest, the rest as "+otherLabels+".", "queue")
	jobLettersDepth = newDesc("ojs_dead_letter_depth", "The same as ojs_dead_letter_total.", "queue")
)
