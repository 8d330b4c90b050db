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

	"github.com/recourse-dev/recourse/internal/chaos/worker"
)

// options of a run.
type options struct {
	seed       uint64
	minutes    float64
	workers    int
	rate       int
	longest    int // milliseconds that a fault lasts at most, beyond the first half second
	freeze     time.Duration
	lostAfter  time.Duration
	appendOnly bool
	faults     []fault // that may strike
	alone      bool    // one at a time
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
	*verdict
}

// quietLimit is for how long everything may take to come to rest after the last
// fault: parked runs are let go bit by bit.
const quietLimit = 5 * time.Minute

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

	striking, end := context.WithTimeout(ctx, time.Duration(o.minutes*float64(time.Minute)))
	defer end()
	handed := make(chan struct{})
	go func() {
		defer close(handed)
		l.run(striking, o.rate, quietLimit)
	}()
	if err := s.run(striking); err != nil {
		return nil, err
	}
	if err := a.heal(ctx); err != nil {
		return nil, err
	}
	s.say("the faults are over")
	healed := time.Now()
	<-handed
	stuck, err := a.quiet(ctx, quietLimit)
	if err != nil {
		return nil, err
	}
	r = &report{Seed: o.seed, Seconds: time.Since(s.began).Seconds(), AppendOnly: o.appendOnly, Asked: l.asked.Load(), Replies: l.counts(),
		Faults: s.struck, Quiet: time.Since(healed).Seconds()}
	s.say("%d live runs after %.1fs", stuck, r.Quiet)
	if r.verdict, err = a.conclude(ctx, l); err != nil {
		return nil, err
	}
	r.Broken = append(r.Broken, s.stuck...)
	if !s.operated() && len(r.Touched) > 0 {
		r.breaks("receipts say that somebody touched tasks, and nobody did: %v", r.Touched)
	}
	for _, b := range r.Broken {
		s.say("BROKEN: %s", b)
	}
	return r, nil
}

// quiet waits until no run is live, and tells how many are when limit is over.
func (a *arena) quiet(ctx context.Context, limit time.Duration) (live int, err error) {
	for began := time.Now(); time.Since(began) < limit; pause(ctx, 100*time.Millisecond) {
		if err := a.db.QueryRowContext(ctx, `SELECT count(*) FROM recourse.runs WHERE live`).Scan(&live); err != nil || live == 0 {
			return live, err
		}
	}
	return live, nil
}

// conclude ends the workers gracefully and judges.
func (a *arena) conclude(ctx context.Context, l *load) (*verdict, error) {
	var failed []string
	for i := range a.fleet.seats {
		if err := a.fleet.leave(i, openLimit); err != nil {
			failed = append(failed, err.Error())
		}
	}
	a.fleet.buryAll()
	service, err := a.look(ctx)
	if err != nil {
		return nil, err
	}
	v, err := judge(ctx, service, a.escrow, l.accepted)
	if err = errors.Join(err, service.Close()); err != nil {
		return nil, err
	}
	if n := l.unanswered.Load(); n > 0 {
		v.breaks("%d of what was handed over was never answered", n)
	}
	v.Broken = append(append(v.Broken, failed...), a.fleet.crashes...)
	return v, nil
}
