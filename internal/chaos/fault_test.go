package main

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

// Each of these faults is injected alone, repeatedly for some seconds: the faults of
// servers, network and clocks that no other test injects.
func TestAFaultAloneLosesNothing(t *testing.T) {
	for _, name := range []string{"redis-full", "both-kill", "network-slow", "network-cut", "network-stall", "clock-step", "database-clock"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			singles, err := parseFaults(name)
			if err != nil {
				t.Fatal(err)
			}
			var progress bytes.Buffer
			o := options{seed: 11, minutes: 0.12, workers: 2, rate: 15, maxFaultMillis: 1500, freeze: time.Second, lostAfter: lostAfter, inFlight: 4 * time.Second, keyLifetime: 24 * time.Hour, settleTimeout: 150 * time.Second, oneAtATime: true, faults: singles}
			r, err := run(t.Context(), o, &progress)
			if err != nil {
				t.Fatalf("%v\n%s", err, progress.String())
			}
			if len(r.Broken) > 0 || r.Accepted < 30 || r.Effects < 15 || r.Faults[name].Times < 1 || strings.Contains(progress.String(), "could not") {
				t.Errorf("%d accepted, %d effects; broken: %q\n%s", r.Accepted, r.Effects, r.Broken, progress.String())
			}
		})
	}
}
