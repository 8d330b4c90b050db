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

// schedule strikes and heals until its time is over. The seed alone decides what
// and for how long. What people do goes on beside what happens to the machines.
type schedule struct {
	arena *arena
	o     options
	began time.Time

	machines, people chance

	mu     sync.Mutex
	tell   io.Writer
	struck map[string]*strikes
	stuck  []string
}

// chance draws from faults, by weight.
type chance struct {
	rng    *rand.Rand
	faults []fault
}

// strikes sums one kind of fault up.
type strikes struct {
	Times   int     `json:"times"`
	Slowest float64 `json:"slowest_recovery_s"` // from the healing until every run that was live has moved on
	sum     float64
	Mean    float64 `json:"mean_recovery_s"`
}

func newSchedule(o options) *schedule {
	s := &schedule{o: o, began: time.Now(), struck: map[string]*strikes{}}
	s.machines.rng, s.people.rng = rand.New(rand.NewPCG(o.seed, 1)), rand.New(rand.NewPCG(o.seed, 2))
	for _, f := range o.faults {
		if f.people {
			s.people.faults = append(s.people.faults, f)
		} else {
			s.machines.faults = append(s.machines.faults, f)
		}
	}
	return s
}

func (c chance) draw() fault {
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
	acting.Go(func() { acted = s.act(ctx) })
	err := s.run(ctx)
	acting.Wait()
	return errors.Join(err, acted)
}

// run goes from fault to fault. Every third time two come at once.
func (s *schedule) run(ctx context.Context) error {
	if len(s.machines.faults) == 0 {
		<-ctx.Done()
		return nil
	}
	rng := s.machines.rng
	for ctx.Err() == nil {
		chosen := []fault{s.machines.draw()}
		if !s.o.alone && rng.IntN(3) == 0 {
			chosen = append(chosen, s.machines.draw())
		}
		last := time.Duration(500+rng.IntN(s.o.longest)) * time.Millisecond
		if slices.ContainsFunc(chosen, func(f fault) bool { return f.freeze }) {
			last = s.o.freeze
		}
		calm := time.Duration(rng.IntN(3000)) * time.Millisecond
		if err := s.once(context.WithoutCancel(ctx), ctx.Done(), chosen, last); err != nil {
			return err
		}
		pause(ctx, calm)
	}
	return nil
}

// act has people do one thing after the other.
func (s *schedule) act(ctx context.Context) error {
	rng := s.people.rng
	for len(s.people.faults) > 0 && ctx.Err() == nil {
		pause(ctx, time.Duration(100+rng.IntN(900))*time.Millisecond)
		f, last := s.people.draw(), time.Duration(500+rng.IntN(min(s.o.longest, 3000)))*time.Millisecond
		limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), actLimit)
		detail, err := f.strike(limited, s.arena, rng)
		cancel()
		if err != nil {
			detail = "could not: " + err.Error() // a server is away
		}
		s.say("%-24s %s", f.name, detail)
		s.record(f.name, 0)
		if f.heal == nil {
			continue
		}
		pause(ctx, last)
		if err := f.heal(context.WithoutCancel(ctx), s.arena); err != nil {
			return fmt.Errorf("undoing %s: %w", f.name, err)
		}
	}
	return nil
}

// actLimit is for how long a person waits for an answer.
const actLimit = 10 * time.Second

// once strikes, lets it last, heals, and measures the recovery. A fault that can't
// strike because of the other one is told and passed over.
func (s *schedule) once(ctx context.Context, over <-chan struct{}, chosen []fault, last time.Duration) error {
	name := ""
	for _, f := range chosen {
		detail, err := f.strike(ctx, s.arena, s.machines.rng)
		if err != nil {
			detail = "could not strike: " + err.Error()
		}
		s.say("%-24s %s, for %.1fs", f.name, detail, last.Seconds())
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
		if err := f.heal(ctx, s.arena); err != nil {
			return fmt.Errorf("healing %s: %w", f.name, err)
		}
	}
	stood, err := s.arena.standing(ctx)
	if err != nil {
		return err
	}
	if err := s.arena.heal(ctx); err != nil {
		return err
	}
	still := s.o.lostAfter + recoveryLimit
	stuck, err := s.arena.moved(ctx, stood, still)
	if err != nil {
		return err
	}
	took := time.Since(healed)
	s.say("%-24s healed; %d live runs have moved on after %.1fs", name, len(stood.runs)-stuck, took.Seconds())
	if stuck > 0 {
		s.stuck = append(s.stuck, fmt.Sprintf("%d of %d live runs did not move in the %s after the others had, once %s was healed", stuck, len(stood.runs), still, name))
		s.say("%s", s.stuck[len(s.stuck)-1])
	}
	s.record(name, took.Seconds())
	return nil
}

// recoveryLimit is for how long runs may stand still after a fault when no other one of
// those that stood moves, beyond the time that a lost process is given.
const recoveryLimit = 30 * time.Second

func (s *schedule) record(name string, took float64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.struck[name]
	if r == nil {
		r = &strikes{}
		s.struck[name] = r
	}
	r.Times++
	r.sum += took
	r.Slowest, r.Mean = max(r.Slowest, took), r.sum/float64(r.Times)
}

func (s *schedule) say(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	// Who can't read what happens reads the judgement.
	_, _ = fmt.Fprintf(s.tell, "%7.1fs  %s\n", time.Since(s.began).Seconds(), fmt.Sprintf(format, args...))
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
