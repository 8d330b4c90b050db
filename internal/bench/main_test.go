package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
)

// TestMain is also the process that a bench under test delegates to.
func TestMain(m *testing.M) {
	if mine, err := runDelegated(os.Stdout); mine {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func TestEverySystemDoesEveryWorkloadExactly(t *testing.T) {
	t.Parallel()
	for name, line := range map[string]string{
		"at full speed": "-n 50 -pending 500 -workloads settle,drain,dead,memory,flush",
		"by the clock":  "-n 10 -workloads precision,idle",
		"in pages":      "-n 300 -workloads letters",
		"over HTTP":     "-n 300 -workloads jobs,jobs10,enqueue",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			smoke(t, append(strings.Fields(line), "-rounds", "1", "-quiet", "100ms", "-slots", "20", "-submitters", "4"))
		})
	}
}

func smoke(t *testing.T, args []string) {
	o, err := parseOptions(args, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	var lines, tables bytes.Buffer
	if err := bench(t.Context(), o, &lines, &tables); err != nil {
		t.Fatal(err)
	}
	measured := map[string]int{}
	for in := json.NewDecoder(&lines); in.More(); {
		var r result
		if err := in.Decode(&r); err != nil {
			t.Fatal(err)
		}
		measured[r.System+" "+r.Workload]++
		for _, name := range mustMeasure(r.Workload) {
			if r.Metrics[name] <= 0 {
				t.Errorf("%s %s: %s is %v", r.System, r.Workload, name, r.Metrics[name])
			}
		}
		if r.System != byHand && r.Metrics[earlyAttempts] != 0 {
			t.Errorf("%s %s: %v attempts before their time", r.System, r.Workload, r.Metrics[earlyAttempts])
		}
	}
	for _, w := range o.workloads {
		for _, s := range systemNames {
			want := len(o.sizes(w))
			if recourseOnly(w) && s != recourse {
				want = 0
			}
			if got := measured[s+" "+w]; got != want {
				t.Errorf("%d lines of %s %s, want %d", got, s, w, want)
			}
		}
		if !strings.Contains(tables.String(), w+", medians of 1") && w != lettersWorkload || !strings.Contains(tables.String(), w+", ") {
			t.Errorf("no table of %s", w)
		}
	}
}

func mustMeasure(workload string) []string {
	switch workload {
	case lettersWorkload:
		return []string{perSecond, "five at once|newest|first|p95"}
	case flushWorkload:
		return []string{renotifiedSeconds, residentMB}
	case memoryWorkload:
		return []string{residentMB, peakMB}
	case idleWorkload:
		return []string{residentMB, pickupP50, pickupP99, clientShare}
	}
	return []string{residentMB, perSecond, latencyP50, latencyP99, clientCPU, commits, walBytes}
}

func TestAMeasurementThatLostTasksIsNotPrinted(t *testing.T) {
	t.Parallel()
	s, err := startServers(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.stop(); err != nil {
			t.Error(err)
		}
	})
	for _, name := range systemNames {
		database := "empty_" + name
		if err := s.createDatabase(t.Context(), database); err != nil {
			t.Fatal(err)
		}
		j := job{System: name, DatabaseURL: s.postgres.AppURL(database), OwnerURL: s.postgres.URL(database), RedisURL: s.redis.URL()}
		if err := systemKinds[name].prepare(t.Context(), j.OwnerURL); err != nil {
			t.Fatal(err)
		}
		for _, w := range []string{settleWorkload, deadWorkload} {
			j.Workload, j.Tasks = w, 0
			if err := systemKinds[name].verify(t.Context(), j); err != nil {
				t.Errorf("%s %s: no tasks are verified with %v", name, w, err)
			}
			j.Tasks = 1
			if err := systemKinds[name].verify(t.Context(), j); err == nil {
				t.Errorf("%s %s: a lost task was not noticed", name, w)
			}
		}
	}
}
