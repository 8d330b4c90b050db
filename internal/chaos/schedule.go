package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// schedule strikes and heals until its time is over. The seed alone decides what
// and for how long.
type schedule struct {
	arena  *arena
	rng    *rand.Rand
	o      options
	tell   io.Writer
	began  time.Time
	struck map[string]*strikes
	stuck  []string
}

// strikes sums one kind of fault up.
type strikes struct {
	Times   int     `json:"times"`
	Slowest float64 `json:"slowest_recovery_s"` // from the healing until every run that was live has moved on
	sum     float64
	Mean    float64 `json:"mean_recovery_s"`
}

func newSchedule(o options) *schedule {
	return &schedule{rng: rand.New(rand.NewPCG(o.seed, 1)), o: o, began: time.Now(), struck: map[string]*strikes{}}
}

// run goes from fault to fault. Every third time two come at once.
func (s *schedule) run(ctx context.Context) error {
	for ctx.Err() == nil {
		chosen := []fault{s.draw()}
		if !s.o.alone && s.rng.IntN(3) == 0 {
			chosen = append(chosen, s.draw())
		}
		last := time.Duration(500+s.rng.IntN(s.o.longest)) * time.Millisecond
		if slices.ContainsFunc(chosen, func(f fault) bool { return f.freeze }) {
			last = s.o.freeze
		}
		calm := time.Duration(s.rng.IntN(3000)) * time.Millisecond
		if err := s.once(context.WithoutCancel(ctx), ctx.Done(), chosen, last); err != nil {
			return err
		}
		pause(ctx, calm)
	}
	return nil
}

func (s *schedule) draw() fault {
	sum := 0
	for _, f := range s.o.faults {
		sum += f.weight
	}
	roll := s.rng.IntN(sum)
	for _, f := range s.o.faults {
		if roll -= f.weight; roll < 0 {
			return f
		}
	}
	return s.o.faults[0] // not reached: the weights add up
}

// once strikes, lets it last, heals, and measures the recovery. A fault that can't
// strike because of the other one is told and passed over.
func (s *schedule) once(ctx context.Context, over <-chan struct{}, chosen []fault, last time.Duration) error {
	name := ""
	for _, f := range chosen {
		detail, err := f.strike(ctx, s.arena, s.rng)
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
	_, stuck, err := s.arena.moved(ctx, stood, s.o.lostAfter+recoveryLimit)
	if err != nil {
		return err
	}
	took := time.Since(healed)
	s.say("%-24s healed; %d live runs have moved on after %.1fs", name, len(stood.runs)-stuck, took.Seconds())
	if stuck > 0 {
		s.stuck = append(s.stuck, fmt.Sprintf("%d of %d live runs did not move within %.0fs of healing %s", stuck, len(stood.runs), took.Seconds(), name))
		s.say("%s", s.stuck[len(s.stuck)-1])
	}
	s.record(name, took.Seconds())
	return nil
}

// operated reports whether somebody did anything to tasks.
func (s *schedule) operated() bool {
	for name := range s.struck {
		if strings.Contains(name, "operator-") {
			return true
		}
	}
	return false
}

// recoveryLimit is for how long a run may stand still after a fault, beyond the time
// that a lost process is given.
const recoveryLimit = 30 * time.Second

func (s *schedule) record(name string, took float64) {
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
	// Who can't read what happens reads the judgement.
	_, _ = fmt.Fprintf(s.tell, "%7.1fs  %s\n", time.Since(s.began).Seconds(), fmt.Sprintf(format, args...))
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
