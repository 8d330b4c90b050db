package main

import (
	"slices"
	"time"
)

// The names of metrics, as in the JSON lines.
const (
	perSecond     = "tasks_per_second"
	ratioToAsynq  = "ratio_to_asynq"
	ratioToRiver  = "ratio_to_river"
	latencyP50    = "latency_p50_ms"
	latencyP99    = "latency_p99_ms"
	earlyAttempts = "early_attempts"
	gapP50        = "gap_error_p50_ms"
	gapP99        = "gap_error_p99_ms"
	pickupP50     = "pickup_p50_ms"
	pickupP99     = "pickup_p99_ms"
	clientCPU     = "client_cpu_s_per_1000"
	redisCPU      = "redis_cpu_s_per_1000"
	postgresCPU   = "postgres_cpu_s_per_1000"
	clientShare   = "client_cpu_percent"
	redisShare    = "redis_cpu_percent"
	postgresShare = "postgres_cpu_percent"
	scripts       = "redis_scripts_per_task"
	commits       = "commits_per_task"
	allocations   = "client_allocations_per_task"
	allocatedKB   = "client_allocated_kb_per_task"
	walBytes      = "wal_bytes_per_task"
	residentMB    = "resident_mb"
	anonymousMB   = "anonymous_mb" // of them, without the pages of files
	peakMB        = "resident_peak_mb"

	renotifiedSeconds = "renotified_s" // from the flush of Redis until every live run has a notification
)

type metrics map[string]float64

// result is one JSON line. It is printed only after the measurement was verified.
type result struct {
	System   string  `json:"system"`
	Workload string  `json:"workload"`
	Round    int     `json:"round"`
	Tasks    int     `json:"tasks"`
	Metrics  metrics `json:"metrics"`
}

// ratios adds to each result of recourse how many times faster it was than each peer in
// the same round.
func ratios(all []result) {
	speed := make(map[trial]float64, len(all))
	for _, r := range all {
		speed[trial{r.System, r.Workload, r.Round, r.Tasks}] = r.Metrics[perSecond]
	}
	for _, r := range all {
		for peer, name := range map[string]string{byHand: ratioToAsynq, river: ratioToRiver} {
			if theirs := speed[trial{peer, r.Workload, r.Round, r.Tasks}]; theirs > 0 && r.System == recourse {
				r.Metrics[name] = r.Metrics[perSecond] / theirs
			}
		}
	}
}

// percentile returns the smallest value that at least the share p of all values does
// not exceed (nearest rank); zero when there are none.
func percentile(values []time.Duration, p float64) time.Duration {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	rank := int(p * float64(len(sorted)))
	if float64(rank) < p*float64(len(sorted)) {
		rank++
	}
	return sorted[min(max(rank, 1), len(sorted))-1]
}

// median returns the median of at least one number; the mean of the middle two when their
// count is even.
func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	middle := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[middle]
	}
	return (sorted[middle-1] + sorted[middle]) / 2
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
