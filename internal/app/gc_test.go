package app

import (
	"runtime"
	"runtime/debug"
	gauges "runtime/metrics"
	"testing"
	"time"
)

// percent returns the present percentage of the garbage collector.
func percent() uint64 {
	s := []gauges.Sample{{Name: "/gc/gogc:percent"}}
	gauges.Read(s)
	return s[0].Value.Uint64()
}

func TestTheGCPercentRisesWhileGarbageIsCollectedOften(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		percent     int
		collections uint64
		want        int
	}{
		{defaultGCPercent, 0, defaultGCPercent}, {defaultGCPercent, busyCollections - 1, defaultGCPercent}, {defaultGCPercent, busyCollections, busyGCPercent},
		{busyGCPercent, busyCollections, busyGCPercent}, {busyGCPercent, idleCollections + 1, busyGCPercent}, {busyGCPercent, idleCollections, defaultGCPercent}, {busyGCPercent, 0, defaultGCPercent},
	} {
		if got := gcPercent(tc.percent, tc.collections); got != tc.want {
			t.Errorf("%d collections at %d: %d, want %d", tc.collections, tc.percent, got, tc.want)
		}
	}
}

// Not parallel: the percentage is that of the whole process.
func TestTheGCIsTunedUnlessTheEnvironmentConfiguresIt(t *testing.T) {
	const own = 77
	defer debug.SetGCPercent(debug.SetGCPercent(own))
	begin := time.Now()
	for range busyCollections {
		runtime.GC()
	}
	interval := 300*time.Millisecond + 4*time.Since(begin) // on a slow machine too, enough collections fit into one
	for value, want := range map[string][2]uint64{"": {busyGCPercent, defaultGCPercent}, "50": {own, own}} {
		m := &Main{Options: Options{Private: true, Embedded: true, TimeLimit: 1}}
		if err := m.Parse(func(name string) string {
			if name == gcVariable {
				return value
			}
			return ""
		}); err != nil {
			t.Fatal(err)
		}
		restore := m.tuneGC(interval)
		awaitPercent(t, want[0], runtime.GC)
		awaitPercent(t, want[1], func() { <-time.After(20 * time.Millisecond) }) // making no garbage
		restore()
		if got := percent(); got != own {
			t.Errorf("%s=%q: %d afterwards, %d before", gcVariable, value, got, own)
		}
	}
}

// awaitPercent repeats an action until the percentage of the garbage collector is as wanted.
func awaitPercent(t *testing.T, want uint64, meanwhile func()) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); percent() != want; meanwhile() {
		if time.Now().After(deadline) {
			t.Fatalf("%d, want %d", percent(), want)
		}
	}
}
