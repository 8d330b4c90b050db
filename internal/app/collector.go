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
	thrifty = 100 // Go's own percentage
	roomy   = 400

	paceEvery = 5 * time.Second
	often     = 30 // collections in that time that are worth the room
	seldom    = 3  // that are not, though there is room
)

const collectorVariable = "GOGC"

// pace is the collector's percentage after a time of so many collections.
func pace(percent int, collections uint64) int {
	switch {
	case collections >= often:
		return roomy
	case collections <= seldom:
		return thrifty
	}
	return percent
}

// makeRoom lets the collector run more rarely while there is much to do, unless the
// environment says how often. restore undoes it.
func (m *Main) makeRoom(every time.Duration) (restore func()) {
	if m.collects {
		return func() {}
	}
	percent := thrifty
	before := debug.SetGCPercent(percent)
	stop := make(chan struct{})
	var pacing sync.WaitGroup
	pacing.Go(func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for seen := collections(); ; {
			select {
			case <-stop:
				return
			case <-tick.C:
			}
			now := collections()
			if next := pace(percent, now-seen); next != percent {
				percent = next
				debug.SetGCPercent(percent)
			}
			seen = now
		}
	})
	return func() {
		close(stop)
		pacing.Wait()
		debug.SetGCPercent(before)
	}
}

// collections is how many this process has made.
func collections() uint64 {
	s := []gauges.Sample{{Name: "/gc/cycles/total:gc-cycles"}}
	gauges.Read(s)
	return s[0].Value.Uint64()
}
