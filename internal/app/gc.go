package app

import (
	"runtime/debug"
	gauges "runtime/metrics"
	"sync"
	"time"
)

// A worker keeps about ten megabytes and allocates fifteen times as much per second at full
// load. At Go's default percentage garbage collection then takes a sixth more time. So a busy
// worker gets a larger heap, by tens of megabytes. An idle worker keeps a small heap, however
// many runs wait.
const (
	defaultGCPercent = 100 // Go's default
	busyGCPercent    = 400

	gcTuneInterval  = 5 * time.Second
	busyCollections = 30 // collections per interval from which the percentage is raised
	idleCollections = 3  // collections per interval up to which it is lowered
)

const gcVariable = "GOGC"

// gcPercent returns the next percentage after an interval with that many collections.
func gcPercent(percent int, collections uint64) int {
	switch {
	case collections >= busyCollections:
		return busyGCPercent
	case collections <= idleCollections:
		return defaultGCPercent
	}
	return percent
}

// tuneGC makes the garbage collector run less often under load, unless the environment sets
// GOGC. restore stops it and restores the previous percentage.
func (m *Main) tuneGC(every time.Duration) (restore func()) {
	if m.gcConfigured {
		return func() {}
	}
	percent := defaultGCPercent
	before := debug.SetGCPercent(percent)
	stop := make(chan struct{})
	var tuning sync.WaitGroup
	tuning.Go(func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for seen := gcCycles(); ; {
			select {
			case <-stop:
				return
			case <-tick.C:
			}
			now := gcCycles()
			if next := gcPercent(percent, now-seen); next != percent {
				percent = next
				debug.SetGCPercent(percent)
			}
			seen = now
		}
	})
	return func() {
		close(stop)
		tuning.Wait()
		debug.SetGCPercent(before)
	}
}

// gcCycles returns the number of garbage collections of this process.
func gcCycles() uint64 {
	s := []gauges.Sample{{Name: "/gc/cycles/total:gc-cycles"}}
	gauges.Read(s)
	return s[0].Value.Uint64()
}
