package main

import (
	"bytes"
	"io"
	"slices"
	"testing"
	"time"
)

// Half a minute of a seed, from the first fault to the verification, as the command runs it.
func TestAShortRunLosesNothing(t *testing.T) {
	all, err := parseFaults("")
	if err != nil {
		t.Fatal(err)
	}
	var progress bytes.Buffer
	o := options{seed: 7, minutes: 0.5, workers: 2, rate: 10, maxFaultMillis: 2500, freeze: 5 * time.Second, lostAfter: lostAfter, inFlight: 4 * time.Second, keyLifetime: 24 * time.Hour, settleTimeout: 90 * time.Second, appendOnly: true, faults: all}
	r, err := run(t.Context(), o, &progress)
	if err != nil {
		t.Fatalf("%v\n%s", err, progress.String())
	}
	if len(r.Broken) > 0 || r.Accepted < 100 || len(r.Faults) < 3 || r.Effects < 50 {
		t.Errorf("%d accepted, %d kinds of fault, %d effects; broken: %q\n%s", r.Accepted, len(r.Faults), r.Effects, r.Broken, progress.String())
	}
}

// Jobs and adjudications of remote workers, under faults of servers and workers, from the first fault to
// the verification.
func TestAShortRunLosesNoJob(t *testing.T) {
	t.Parallel()
	chosen, err := parseFaults("worker-kill,worker-restart,postgres-immediate,network-cut,remote-kill,remote-freeze")
	if err != nil {
		t.Fatal(err)
	}
	var progress bytes.Buffer
	o := options{seed: 5, minutes: 0.3, workers: 2, rate: 4, remotes: 2, jobRate: 8, maxFaultMillis: 1500, freeze: time.Second, lostAfter: lostAfter, inFlight: 4 * time.Second, keyLifetime: 24 * time.Hour, settleTimeout: 90 * time.Second, faults: chosen}
	r, err := run(t.Context(), o, &progress)
	if err != nil {
		t.Fatalf("%v\n%s", err, progress.String())
	}
	j := r.Jobs
	// The answers to some cancels are lost.
	cancelled := j.Acts["cancel"] + j.Places["cancelled"]
	if len(r.Broken) > 0 || j.Accepted < 60 || j.Leases < 60 || j.Acks < 20 || j.Refused < 1 || len(j.Lies) < 1 || r.Lies["service:meddling"] < 1 || j.Acts["retry"]+cancelled < 1 { // Postgres may be away whenever somebody cancels; what is retried was a dead letter, and at the end there may be none
		t.Errorf("%+v; broken: %q\n%s", j, r.Broken, progress.String())
	}
}

func TestTheSeedAloneDecidesTheFaults(t *testing.T) {
	t.Parallel()
	draws := func(o options) [2]weightedFaults { s := newSchedule(o); return [2]weightedFaults{s.machines, s.people} }
	a, b, drawn := draws(options{seed: 3, faults: faults}), draws(options{seed: 3, faults: faults}), map[string]bool{}
	for who := range a {
		for range 3000 {
			x, y := a[who].draw(), b[who].draw()
			if x.name != y.name {
				t.Fatalf("%s and %s", x.name, y.name)
			}
			drawn[x.name] = true
		}
	}
	if len(drawn) != len(faults) {
		t.Errorf("%d of %d faults are drawn", len(drawn), len(faults))
	}
}

// Every fault can be named. The schedule draws those that are not only injected by name.
func TestEveryFaultCanBeNamed(t *testing.T) {
	t.Parallel()
	all, err := parseFaults("")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range faults {
		one, err := parseFaults(f.name)
		if err != nil || len(one) != 1 || one[0].name != f.name {
			t.Errorf("%s: %v, %v", f.name, one, err)
		}
		if drawn := slices.ContainsFunc(all, func(g fault) bool { return g.name == f.name }); drawn == f.onlyByName {
			t.Errorf("%s is drawn: %t, and only injected by name: %t", f.name, drawn, f.onlyByName)
		}
	}
}

func TestBadOptionsAreRefused(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"--workers", "0"}, {"--rate", "0"}, {"--remotes", "0"}, {"--jobs", "-1"}, {"--seed", "-1"}, {"--minutes", "x"}, {"now"}, {"--only", "peace"}} {
		if _, err := parse(args, io.Discard); err == nil {
			t.Errorf("%q was accepted", args)
		}
	}
	if o, err := parse([]string{"--seed", "8", "--minutes", "0.5", "--only", "redis-full,redis-kill"}, io.Discard); err != nil || o.seed != 8 || len(o.faults) != 2 || o.appendOnly || o.lostAfter != 15*time.Second {
		t.Errorf("%+v, %v", o, err)
	}
}
