package app

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

var keyExpires = newDesc("recourse_access_key_expires_timestamp_seconds", "When an access key ends that was shown to this process in its last 30 days, by its prefix.", "key")

// expiringKeys shows the access keys that end soon.
type expiringKeys struct {
	api interface{ ExpiringKeys() map[string]time.Time }
}

// Describe implements prometheus.Collector.
func (k expiringKeys) Describe(to chan<- *prometheus.Desc) { to <- keyExpires }

// Collect implements prometheus.Collector.
func (k expiringKeys) Collect(to chan<- prometheus.Metric) {
	for prefix, end := range k.api.ExpiringKeys() {
		to <- prometheus.MustNewConstMetric(keyExpires, prometheus.GaugeValue, float64(end.Unix()), prefix)
	}
}
