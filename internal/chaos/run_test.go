package main

import (
	"bytes"
	"io"
	"testing"
	"time"
)

// Half a minute of a seed: the command's own way from the first fault to the
// judgement.
func TestAShortRunLosesNothing(t *testing.T) {
	var told bytes.Buffer
	o := options{seed: 7, minutes: 0.5, workers: 2, rate: 20, longest: 2500, freeze: 5 * time.Second, lostAfter: lostAfter, appendOnly: true, faults: faults}
	r, err := run(t.Context(), o, &told)
	if err != nil {
		t.Fatalf("%v\n%s", err, told.String())
	}
	if len(r.Broken) > 0 || r.Accepted < 100 || len(r.Faults) < 3 || r.Effects < 50 {
		t.Errorf("%d accepted, %d kinds of fault, %d effects; broken: %q\n%s", r.Accepted, len(r.Faults), r.Effects, r.Broken, told.String())
	}
}

func TestASeedAloneDecidesWhatStrikes(t *testing.T) {
	t.Parallel()
	for range 2 {
		a, b := newSchedule(options{seed: 3, faults: faults}), newSchedule(options{seed: 3, faults: faults})
		for range 200 {
			if x, y := a.draw(), b.draw(); x.name != y.name {
				t.Fatalf("%s and %s", x.name, y.name)
			}
		}
	}
	drawn := map[string]bool{}
	s := newSchedule(options{seed: 4, faults: faults})
	for range 2000 {
		drawn[s.draw().name] = true
	}
	if len(drawn) != len(faults) {
		t.Errorf("%d of %d faults are drawn", len(drawn), len(faults))
	}
}

func TestBadOptionsAreRefused(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"--workers", "0"}, {"--rate", "0"}, {"--seed", "-1"}, {"--minutes", "x"}, {"now"}, {"--only", "peace"}} {
		if _, err := parse(args, io.Discard); err == nil {
			t.Errorf("%q was taken", args)
		}
	}
	if o, err := parse([]string{"--seed", "8", "--minutes", "0.5", "--only", "redis-full,redis-kill"}, io.Discard); err != nil || o.seed != 8 || len(o.faults) != 2 || o.appendOnly || o.lostAfter != 15*time.Second {
		t.Errorf("%+v, %v", o, err)
	}
}
