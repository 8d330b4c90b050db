package app

import (
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/receipts"
)

// jobMetrics counts dead letters of jobs, under the names of Open Job Spec.
type jobMetrics struct {
	added           *prometheus.CounterVec
	retried, pruned *prometheus.CounterVec
	pairs, queues   boundedLabels
}

func newJobMetrics(r *prometheus.Registry) *jobMetrics {
	const bound = "; from the hundredth on as " + otherLabels + "."
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help + bound}, labels)
	}
	m := &jobMetrics{
		added:   counter("ojs_dead_letter_added_total", "Dead letters of jobs opened by this process, by queue and type of job", "queue", "type"),
		retried: counter("ojs_dead_letter_retried_total", "Dead letters of jobs retried by this process, alone or by a plan but not by a rule, by the queue in which they died", "queue"),
		pruned:  counter("ojs_dead_letter_pruned_total", "Dead letters of jobs removed by retention, by this process, by queue", "queue"),
		pairs:   boundedLabels{seen: map[[2]string]struct{}{}},
		queues:  boundedLabels{seen: map[[2]string]struct{}{}},
	}
	r.MustRegister(m.added, m.retried, m.pruned)
	return m
}

func (m *jobMetrics) countDeath(letter background.Run) {
	if !letter.Remote {
		return
	}
	labels := m.pairs.bound(letter.Queue, letter.Target)
	m.added.WithLabelValues(labels[0], labels[1]).Inc()
	queue := m.queues.bound(letter.Queue, "")[0]
	m.retried.WithLabelValues(queue) // exported from here on, so that a rate over its first count is defined
	m.pruned.WithLabelValues(queue)
}

// countReceipt counts a receipt of a dead letter. What a rule retries is a replay, which the events of jobs
// tell apart as well.
func (m *jobMetrics) countReceipt(letter background.Run, subtype receipts.Subtype, actor string) {
	if !letter.Remote {
		return
	}
	switch {
	case subtype == receipts.ManualRetryRequested && !strings.HasPrefix(actor, "rule:"):
		m.retried.WithLabelValues(m.queues.bound(letter.Queue, "")[0]).Inc()
	case subtype == receipts.RetentionExpired:
		m.pruned.WithLabelValues(m.queues.bound(letter.Queue, "")[0]).Inc()
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
