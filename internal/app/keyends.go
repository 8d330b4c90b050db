package app

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

var keyExpires = about("recourse_access_key_expires_timestamp_seconds", "When an access key ends that was shown to this process in its last 30 days, by its prefix.", "key")

// keyEnds shows the access keys that end soon.
type keyEnds struct {
	of interface{ EndingKeys() map[string]time.Time }
}

// Describe implements prometheus.Collector.
func (k keyEnds) Describe(to chan<- *prometheus.Desc) { to <- keyExpires }

// Collect implements prometheus.Collector.
func (k keyEnds) Collect(to chan<- prometheus.Metric) {
	for prefix, end := range k.of.EndingKeys() {
		to <- prometheus.MustNewConstMetric(keyExpires, prometheus.GaugeValue, float64(end.Unix()), prefix)
	}
}
