package app

import (
	"runtime/debug"
	gauges "runtime/metrics"
	"sync"
	"time"
)

// A worker keeps some ten megabytes, and allocates fifteen times as much in a second of
// full load: at Go's own percentage a sixth more of its time goes into collecting. So it
// is given room, tens of megabytes, while garbage is collected often. A worker that is
// not busy stays small, however many runs wait.
const (
	defaultGCPercent = 100 // Go's own percentage
	busyGCPercent    = 400

	gcTuneInterval  = 5 * time.Second
	busyCollections = 30 // collections in that time that are worth the room
	idleCollections = 3  // that are not, though there is room
)

const gcVariable = "GOGC"

// gcPercent is the collector's percentage after a time of so many collections.
func gcPercent(percent int, collections uint64) int {
	switch {
	case collections >= busyCollections:
		return busyGCPercent
	case collections <= idleCollections:
		return defaultGCPercent
	}
	return percent
}

// tuneGC lets the collector run more rarely while there is much to do, unless the
// environment says how often. restore undoes it.
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

// gcCycles is how many this process has made.
func gcCycles() uint64 {
	s := []gauges.Sample{{Name: "/gc/cycles/total:gc-cycles"}}
	gauges.Read(s)
	return s[0].Value.Uint64()
}
