package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/recourse-dev/recourse/internal/chaos/prove"
	"github.com/recourse-dev/recourse/internal/chaos/worker"
)

// options of a run.
type options struct {
	seed        uint64
	minutes     float64
	workers     int
	rate        int
	longest     int // milliseconds that a fault lasts at most, beyond the first half second
	freeze      time.Duration
	lostAfter   time.Duration
	inFlight    time.Duration // longer than a fault keeps a call from the escrow service
	keyLifetime time.Duration
	rest        time.Duration // what everything may take to come to rest after the last fault
	appendOnly  bool
	faults      []fault // that may strike
	alone       bool    // one at a time

	prove bool
	guard string
}

func main() {
	if code, is := worker.Main(); is {
		os.Exit(code)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	o, err := parse(os.Args[1:], os.Stderr)
	if err != nil {
		os.Exit(2)
	}
	if o.prove {
		ok, err := prove.Run(ctx, os.Stdout, os.Stderr, o.guard)
		if err != nil {
			fmt.Fprintln(os.Stderr, "chaos:", err)
			os.Exit(3)
		}
		if !ok {
			os.Exit(1)
		}
		return
	}
	r, err := run(ctx, o, os.Stderr)
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(r)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		os.Exit(3)
	}
	if len(r.Broken) > 0 {
		os.Exit(1)
	}
}

func parse(args []string, tell io.Writer) (options, error) {
	var o options
	f := flag.NewFlagSet("chaos", flag.ContinueOnError)
	f.SetOutput(tell)
	f.Uint64Var(&o.seed, "seed", uint64(time.Now().UnixNano()%1_000_000), "what decides faults and load; the time when not given")
	f.Float64Var(&o.minutes, "minutes", 5, "for how long faults strike")
	f.IntVar(&o.workers, "workers", 3, "worker processes")
	f.IntVar(&o.rate, "rate", 25, "things handed over a second")
	f.IntVar(&o.longest, "longest", 7500, "milliseconds that a fault lasts at most")
	f.DurationVar(&o.freeze, "freeze", time.Minute, "for how long a worker is frozen")
	f.DurationVar(&o.lostAfter, "lost-after", 15*time.Second, "as of postadjudication.Config")
	f.BoolVar(&o.prove, "prove", false, "take the product's guards away, one by one, and see that each is missed")
	f.StringVar(&o.guard, "guard", "", "with prove: only guards whose name has this in it, or one of several parts with | between")
	f.DurationVar(&o.rest, "rest", 5*time.Minute, "for how long everything may take to come to rest after the last fault")
	f.DurationVar(&o.inFlight, "in-flight", 30*time.Second, "as of escrowhttp.Config")
	f.DurationVar(&o.keyLifetime, "key-lifetime", 24*time.Hour, "for how long the escrow service knows an operation key")
	f.BoolVar(&o.appendOnly, "aof", false, "Redis keeps its memory over restarts; else whether it does is drawn")
	only := f.String("only", "", "names of the faults that may strike, with commas; one at a time")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if o.workers < 1 || o.rate < 1 || o.longest < 1 || f.NArg() > 0 {
		err := errors.New("chaos: workers, rate and longest are at least 1, and there are no arguments")
		fmt.Fprintln(tell, err)
		return o, err
	}
	var err error
	if o.faults, err = named(*only); err != nil {
		fmt.Fprintln(tell, err)
		return o, err
	}
	o.alone = *only != ""
	o.appendOnly = o.appendOnly || o.seed%2 == 1
	return o, nil
}

// report is what a run says at its end.
type report struct {
	Seed       uint64              `json:"seed"`
	Seconds    float64             `json:"seconds"`
	AppendOnly bool                `json:"redis_append_only"`
	Asked      int64               `json:"asked"`
	Replies    map[string]int64    `json:"replies"`
	Faults     map[string]*strikes `json:"faults"`
	Quiet      float64             `json:"seconds_to_quiescence"`
	Released   int                 `json:"breakers_released_at_the_end"` // behind which nothing but cases that fail waited
	LeftOpen   int                 `json:"unknown_after_the_lookups"`
	ByHand     int                 `json:"found_by_people_at_the_end"`
	*verdict
}

func run(ctx context.Context, o options, tell io.Writer) (r *report, err error) {
	a, err := openArena(ctx, o)
	if err != nil {
		return nil, err
	}
	defer func() {
		err = errors.Join(err, a.close())
		if err != nil || r != nil && len(r.Broken) > 0 {
			fmt.Fprintf(tell, "kept: %s (workers.log; postgres -D %s/postgres/data)\n", a.dir, a.dir)
			return
		}
		err = os.RemoveAll(a.dir)
	}()
	fmt.Fprintf(tell, "seed %d, %g minutes, %d workers, Redis append-only %t, in %s\n", o.seed, o.minutes, o.workers, o.appendOnly, a.dir)
	s := newSchedule(o)
	s.arena, s.tell = a, tell
	l := &load{fleet: a.fleet, accepted: newAccepted(), seed: o.seed}
	a.load = l

	striking, end := context.WithTimeout(ctx, time.Duration(o.minutes*float64(time.Minute)))
	defer end()
	handed := make(chan struct{})
	go func() {
		defer close(handed)
		l.run(striking, o.rate, o.rest)
	}()
	if err := s.runAll(striking); err != nil {
		return nil, err
	}
	if err := a.heal(ctx); err != nil {
		return nil, err
	}
	s.say("the faults are over")
	healed := time.Now()
	<-handed
	l.open.Wait()
	stuck, released, err := a.quiet(ctx, o.rest, alarmAfter)
	if err != nil {
		return nil, err
	}
	r = &report{Seed: o.seed, Seconds: time.Since(s.began).Seconds(), AppendOnly: o.appendOnly, Asked: l.asked.Load(), Replies: l.counts(),
		Faults: s.struck, Quiet: time.Since(healed).Seconds(), Released: released}
	s.say("%d live runs after %.1fs, %d circuit breakers were released by hand", stuck, r.Quiet, released)
	if err := a.resolve(ctx, o, s, r); err != nil {
		return nil, err
	}
	if r.verdict, err = a.conclude(ctx, l); err != nil {
		return nil, err
	}
	if stuck > 0 {
		r.breaks("%d runs did not come to rest within %s of the last fault", stuck, o.rest)
	}
	r.Broken = append(r.Broken, s.stuck...)
	for _, b := range r.Broken {
		s.say("BROKEN: %s", b)
	}
	return r, nil
}

// clockError is what the clocks of two workers may lie apart by, when each has measured
// how far its own is from the database's: by much less than they are off.
const clockError = 250 * time.Millisecond

// resolve has the escrow service mended and asked about everything that is unknown, for
// as long as a call may be on its way and a lost worker's may be. What it has forgotten
// by then is found by people.
func (a *arena) resolve(ctx context.Context, o options, s *schedule, r *report) (err error) {
	a.escrow.Repair()
	if r.LeftOpen, err = a.lookUp(ctx, o.inFlight+o.lostAfter+lookUpLimit); err != nil {
		return err
	}
	if o.keyLifetime < time.Hour {
		r.ByHand, _, err = a.find(ctx)
	}
	s.say("%d cases are unknown after the lookups, of %d of them people found what became of them", r.LeftOpen, r.ByHand)
	return err
}

// lookUpLimit is what asking about everything may take beside.
const lookUpLimit = 20 * time.Second

// conclude ends the workers gracefully and judges.
func (a *arena) conclude(ctx context.Context, l *load) (*verdict, error) {
	var failed []string
	for i := range a.fleet.seats {
		if err := a.fleet.leave(i, openLimit); err != nil {
			failed = append(failed, err.Error())
		}
	}
	a.fleet.buryAll()
	v, err := judge(ctx, world{service: a.desk, escrow: a.escrow, accepted: l.accepted, deeds: a.deeds, barred: a.barred, clocks: clockError})
	if err != nil {
		return nil, err
	}
	if n := l.unanswered.Load(); n > 0 {
		v.breaks("%d of what was handed over was never answered", n)
	}
	v.Broken = append(append(v.Broken, failed...), a.fleet.crashes...)
	return v, nil
}
