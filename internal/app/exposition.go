package app

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// counter counts by the value of one label. Values named at its making are shown
// from the start, at zero, so that a rate over them is defined.
type counter struct {
	name, help, label string

	mu     sync.Mutex
	counts map[string]uint64
}

func newCounter(name, help, label string, values ...string) *counter {
	c := &counter{name: name, help: help, label: label, counts: make(map[string]uint64, len(values))}
	for _, v := range values {
		c.counts[v] = 0
	}
	return c
}

func (c *counter) add(value string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.counts[value]++
}

// histogram counts observations by upper bound.
type histogram struct {
	name, help string
	bounds     []float64 // ascending

	mu      sync.Mutex
	buckets []uint64 // of each bound, and of what is over the last
	sum     float64
}

func newHistogram(name, help string, bounds []float64) *histogram {
	return &histogram{name: name, help: help, bounds: bounds, buckets: make([]uint64, len(bounds)+1)}
}

func (h *histogram) observe(v float64) {
	i, _ := slices.BinarySearch(h.bounds, v)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.buckets[i]++
	h.sum += v
}

// exposition is text in the Prometheus format 0.0.4.
type exposition struct{ text []byte }

const expositionType = "text/plain; version=0.0.4; charset=utf-8"

func (e *exposition) head(name, help, kind string) {
	e.text = fmt.Appendf(e.text, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind)
}

func (e *exposition) single(name, help, kind string, value float64) {
	e.head(name, help, kind)
	e.text = fmt.Appendf(e.text, "%s %s\n", name, number(value))
}

// labelled shows a value for each value of one label.
func (e *exposition) labelled(name, help, kind, label string, values map[string]float64) {
	e.head(name, help, kind)
	for _, v := range slices.Sorted(maps.Keys(values)) {
		e.text = fmt.Appendf(e.text, "%s{%s=\"%s\"} %s\n", name, label, escaped.Replace(v), number(values[v]))
	}
}

func (e *exposition) counter(c *counter) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e.head(c.name, c.help, "counter")
	for _, v := range slices.Sorted(maps.Keys(c.counts)) {
		e.text = fmt.Appendf(e.text, "%s{%s=\"%s\"} %d\n", c.name, c.label, escaped.Replace(v), c.counts[v])
	}
}

func (e *exposition) histogram(h *histogram) {
	h.mu.Lock()
	defer h.mu.Unlock()
	e.distribution(h.name, h.help, h.bounds, h.buckets, h.sum)
}

// distribution shows a histogram. There is one bucket more than bounds when values
// may lie beyond the last.
func (e *exposition) distribution(name, help string, bounds []float64, buckets []uint64, sum float64) {
	e.head(name, help, "histogram")
	var below uint64
	for i, n := range buckets {
		if below += n; i < len(bounds) {
			e.text = fmt.Appendf(e.text, "%s_bucket{le=\"%s\"} %d\n", name, number(bounds[i]), below)
		}
	}
	e.text = fmt.Appendf(e.text, "%s_bucket{le=\"+Inf\"} %d\n%s_sum %s\n%s_count %d\n", name, below, name, number(sum), name, below)
}

var escaped = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)

func number(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }
