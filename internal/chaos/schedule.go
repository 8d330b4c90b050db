package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// schedule injects faults and heals them until its time is over. Which ones, and for how long,
// depends on the seed only. People act at the same time as machines fail.
type schedule struct {
	testbed *testbed
	o       options
	began   time.Time

	machines, people weightedFaults

	mu       sync.Mutex
	progress io.Writer
	stats    map[string]*faultStats
	stuck    []string
}

// weightedFaults draws from faults, by weight.
type weightedFaults struct {
	rng    *rand.Rand
	faults []fault
}

// faultStats are the statistics of one kind of fault.
type faultStats struct {
	Times   int     `json:"times"`
	Slowest float64 `json:"slowest_recovery_s"` // from the healing until every run that was live has progressed
	sum     float64
	Mean    float64 `json:"mean_recovery_s"`
}

func newSchedule(o options) *schedule {
	s := &schedule{o: o, began: time.Now(), stats: map[string]*faultStats{}}
	s.machines.rng, s.people.rng = rand.New(rand.NewPCG(o.seed, 1)), rand.New(rand.NewPCG(o.seed, 2))
	for _, f := range o.faults {
		if f.byPeople {
			s.people.faults = append(s.people.faults, f)
		} else {
			s.machines.faults = append(s.machines.faults, f)
		}
	}
	return s
}

func (c weightedFaults) draw() fault {
	sum := 0
	for _, f := range c.faults {
		sum += f.weight
	}
	roll := c.rng.IntN(sum)
	for _, f := range c.faults {
		if roll -= f.weight; roll < 0 {
			return f
		}
	}
	return c.faults[0] // not reached: the weights add up
}

// runAll has machines fail and people act until ctx ends.
func (s *schedule) runAll(ctx context.Context) error {
	var acting sync.WaitGroup
	var acted error
	acting.Go(func() { acted = s.runPeople(ctx) })
	err := s.runMachines(ctx)
	acting.Wait()
	return errors.Join(err, acted)
}

// runMachines goes from fault to fault. Every third time two come at once.
func (s *schedule) runMachines(ctx context.Context) error {
	if len(s.machines.faults) == 0 {
		<-ctx.Done()
		return nil
	}
	rng := s.machines.rng
	for ctx.Err() == nil {
		chosen := []fault{s.machines.draw()}
		if !s.o.oneAtATime && rng.IntN(3) == 0 {
			chosen = append(chosen, s.machines.draw())
		}
		last := time.Duration(500+rng.IntN(s.o.maxFaultMillis)) * time.Millisecond
		if slices.ContainsFunc(chosen, func(f fault) bool { return f.freeze }) {
			last = s.o.freeze
		}
		pause := time.Duration(rng.IntN(3000)) * time.Millisecond
		if err := s.runFaults(context.WithoutCancel(ctx), ctx.Done(), chosen, last); err != nil {
			return err
		}
		sleep(ctx, pause)
	}
	return nil
}

// runPeople has people act, one act after the other.
func (s *schedule) runPeople(ctx context.Context) error {
	rng := s.people.rng
	for len(s.people.faults) > 0 && ctx.Err() == nil {
		sleep(ctx, time.Duration(100+rng.IntN(900))*time.Millisecond)
		f, last := s.people.draw(), time.Duration(500+rng.IntN(min(s.o.maxFaultMillis, 3000)))*time.Millisecond
		limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), actionTimeout)
		detail, err := f.inject(limited, s.testbed, rng)
		cancel()
		if err != nil {
			detail = "could not: " + err.Error() // a server is down
		}
		s.logf("%-24s %s", f.name, detail)
		s.record(f.name, 0)
		if f.heal == nil {
			continue
		}
		sleep(ctx, last)
		if err := f.heal(context.WithoutCancel(ctx), s.testbed); err != nil {
			return fmt.Errorf("undoing %s: %w", f.name, err)
		}
	}
	return nil
}

// actionTimeout is how long a person waits for an answer.
const actionTimeout = 10 * time.Second

// runFaults injects faults, waits, heals them, and measures the recovery. A fault that can't be
// injected because of the other one is logged and skipped.
func (s *schedule) runFaults(ctx context.Context, over <-chan struct{}, chosen []fault, last time.Duration) error {
	name := ""
	for _, f := range chosen {
		detail, err := f.inject(ctx, s.testbed, s.machines.rng)
		if err != nil {
			detail = "could not be injected: " + err.Error()
		}
		s.logf("%-24s %s, for %.1fs", f.name, detail, last.Seconds())
		if name != "" {
			name += "+"
		}
		name += f.name
	}
	select {
	case <-time.After(last):
	case <-over:
	}
	healed := time.Now()
	for _, f := range chosen {
		if f.heal == nil {
			continue
		}
		if err := f.heal(ctx, s.testbed); err != nil {
			return fmt.Errorf("healing %s: %w", f.name, err)
		}
	}
	stood, err := s.testbed.snapshot(ctx)
	if err != nil {
		return err
	}
	if err := s.testbed.heal(ctx); err != nil {
		return err
	}
	still := s.o.lostAfter + recoveryTimeout
	stuck, err := s.testbed.awaitProgress(ctx, stood, still)
	if err != nil {
		return err
	}
	took := time.Since(healed)
	s.logf("%-24s healed; %d live runs have moved on after %.1fs", name, len(stood.runs)-stuck, took.Seconds())
	if stuck > 0 {
		s.stuck = append(s.stuck, fmt.Sprintf("%d of %d live runs did not move in the %s after the others had, once %s was healed", stuck, len(stood.runs), still, name))
		s.logf("%s", s.stuck[len(s.stuck)-1])
		described, err := stood.describe(ctx, s.testbed)
		if err != nil {
			return err
		}
		for _, run := range described {
			s.logf("    %s", run)
		}
	}
	s.record(name, took.Seconds())
	return nil
}

// recoveryTimeout is how long the runs of a snapshot may make no progress after a fault, beyond
// the time after which a process counts as lost.
const recoveryTimeout = 30 * time.Second

func (s *schedule) record(name string, took float64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.stats[name]
	if r == nil {
		r = &faultStats{}
		s.stats[name] = r
	}
	r.Times++
	r.sum += took
	r.Slowest, r.Mean = max(r.Slowest, took), r.sum/float64(r.Times)
}

func (s *schedule) logf(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	// A failed write is ignored: the result has everything.
	_, _ = fmt.Fprintf(s.progress, "%7.1fs  %s\n", time.Since(s.began).Seconds(), fmt.Sprintf(format, args...))
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
