package main

import (
	"io"
	"strings"
	"testing"
)

func TestOptionsRefuseWhatCannotBeMeasured(t *testing.T) {
	t.Parallel()
	for _, line := range []string{
		"-systems nobody", "-workloads settle,nothing", "-rounds 0", "-n -1", "-slots 0", "-servers 0", "-submitters 0",
		"-poll 0s", "-quiet 0s", "-pending 0", "extra", "-unknown",
	} {
		if _, err := parseOptions(strings.Fields(line), io.Discard); err == nil {
			t.Errorf("%q was accepted", line)
		}
	}
	if _, err := parseOptions(nil, io.Discard); err != nil {
		t.Errorf("the defaults are refused: %v", err)
	}
}

func TestHelpNamesEveryWorkload(t *testing.T) {
	t.Parallel()
	for _, w := range workloadNames {
		if !strings.Contains(usage, "\n  "+w) {
			t.Errorf("-h does not explain %s", w)
		}
	}
}

func TestEverySystemTakesItsTurnFirst(t *testing.T) {
	t.Parallel()
	o := options{systems: systemNames, workloads: []string{settleWorkload}, rounds: 3, tasks: 10}
	first := map[string]bool{}
	count := map[trial]int{}
	for i, turn := range o.trials() {
		if i%3 == 0 {
			first[turn.system] = true
		}
		count[turn]++
	}
	if len(first) != 3 || len(count) != 9 {
		t.Errorf("first were %v of %d turns", first, len(count))
	}
}

func TestMemoryIsMeasuredWithAndWithoutRunsOfRecourseAlone(t *testing.T) {
	t.Parallel()
	o := options{systems: systemNames, workloads: []string{memoryWorkload}, rounds: 1, pending: 7}
	got := o.trials()
	if len(got) != 2 || got[0] != (trial{recourse, memoryWorkload, 1, 0}) || got[1] != (trial{recourse, memoryWorkload, 1, 7}) {
		t.Errorf("turns %v", got)
	}
}
