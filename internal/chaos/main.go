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
	"sync"
	"syscall"
	"time"

	"github.com/recourse-dev/recourse/internal/chaos/prove"
	"github.com/recourse-dev/recourse/internal/chaos/remote"
	"github.com/recourse-dev/recourse/internal/chaos/worker"
)

// options of a run.
type options struct {
	seed           uint64
	minutes        float64
	workers        int
	rate           int
	remotes        int // processes of remote workers
	jobRate        int // jobs a second; 0: none
	maxFaultMillis int // milliseconds that a fault lasts at most, beyond its first half second
	freeze         time.Duration
	lostAfter      time.Duration
	inFlight       time.Duration // longer than a fault keeps a call from the escrow service
	keyLifetime    time.Duration
	settleTimeout  time.Duration // how long all runs may take to end after the last fault
	appendOnly     bool
	asynchronous   bool    // the escrow service accepts a third of the calls, and ends them later
	faults         []fault // that may be injected
	oneAtATime     bool    // machines have one fault at a time; else sometimes two

	prove bool
	guard string

	mutate   bool
	mutation prove.Mutation
}

// remoteKeyLifetime is what the workers are told about the payment services of remote workers: the key
// lifetime by two seeds of three, else none, so that a person decides after each unknown outcome.
func (o options) remoteKeyLifetime() time.Duration {
	if o.seed%3 == 0 {
		return 0
	}
	return o.keyLifetime
}

func main() {
	if code, is := worker.Main(); is {
		os.Exit(code)
	}
	if code, is := remote.Main(); is {
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
	if o.mutate {
		ok, err := prove.Mutate(ctx, os.Stdout, os.Stderr, o.mutation)
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

func parse(args []string, progress io.Writer) (options, error) {
	var o options
	f := flag.NewFlagSet("chaos", flag.ContinueOnError)
	f.SetOutput(progress)
	f.Uint64Var(&o.seed, "seed", uint64(time.Now().UnixNano()%1_000_000), "seed of faults and load (default: from the time)")
	f.Float64Var(&o.minutes, "minutes", 5, "for how long faults are injected")
	f.IntVar(&o.workers, "workers", 3, "worker processes")
	f.IntVar(&o.rate, "rate", 25, "submissions a second")
	f.IntVar(&o.remotes, "remotes", 3, "processes of remote workers, which fetch jobs")
	f.IntVar(&o.jobRate, "jobs", 4, "jobs a second; 0: none")
	f.IntVar(&o.maxFaultMillis, "longest", 7500, "milliseconds that a fault lasts at most, beyond its first half second")
	f.DurationVar(&o.freeze, "freeze", time.Minute, "for how long a worker is frozen")
	f.DurationVar(&o.lostAfter, "lost-after", 15*time.Second, "silence after which a worker counts as lost")
	f.BoolVar(&o.prove, "prove", false, "remove the product's guards, one by one, and check that a test fails without each")
	f.StringVar(&o.guard, "guard", "", "with prove: only guards whose name contains this, or one of several parts separated by |")
	f.BoolVar(&o.mutate, "mutate", false, "change conditions on money, one by one, and check that a test fails with each; for -minutes at most")
	f.Func("package", "with mutate: only this package, from the root of the module", func(name string) error {
		o.mutation.Packages = append(o.mutation.Packages, name)
		return nil
	})
	f.IntVar(&o.mutation.Count, "count", 0, "with mutate: so many changes of each package, drawn by the seed; 0: all")
	f.StringVar(&o.mutation.Results, "results", "", "with mutate: file that keeps the results, so that a later run goes on")
	f.DurationVar(&o.settleTimeout, "rest", 5*time.Minute, "how long all runs may take to end after the last fault")
	f.DurationVar(&o.inFlight, "in-flight", 30*time.Second, "how long an abandoned call may still be executed; longer than a fault delays one")
	f.DurationVar(&o.keyLifetime, "key-lifetime", 24*time.Hour, "for how long the escrow service knows an operation key")
	f.BoolVar(&o.asynchronous, "asynchronous", false, "the escrow service accepts the calls of a third of the decisions, and ends them later")
	f.BoolVar(&o.appendOnly, "aof", false, "Redis is append-only, and keeps its data over restarts; with an odd seed it always is")
	only := f.String("only", "", "names of the faults to inject, separated by commas; one at a time")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if o.workers < 1 || o.rate < 1 || o.remotes < 1 || o.jobRate < 0 || o.maxFaultMillis < 1 || f.NArg() > 0 {
		err := errors.New("chaos: workers, rate, remotes and longest are at least 1, jobs is not negative, and there are no arguments")
		fmt.Fprintln(progress, err)
		return o, err
	}
	var err error
	if o.faults, err = parseFaults(*only); err != nil {
		fmt.Fprintln(progress, err)
		return o, err
	}
	o.mutation.Seed, o.mutation.Limit = o.seed, time.Duration(o.minutes*float64(time.Minute))
	o.oneAtATime = *only != ""
	o.appendOnly = o.appendOnly || o.seed%2 == 1
	return o, nil
}

// report is the result of a run.
type report struct {
	Seed          uint64                 `json:"seed"`
	Seconds       float64                `json:"seconds"`
	AppendOnly    bool                   `json:"redis_append_only"`
	Asked         int64                  `json:"asked"`
	Replies       map[string]int64       `json:"replies"`
	Faults        map[string]*faultStats `json:"faults"`
	SecondsToIdle float64                `json:"seconds_to_quiescence"`
	Released      int                    `json:"breakers_released_at_the_end"` // only failing cases waited behind them
	LeftOpen      int                    `json:"unknown_after_the_lookups"`
	ByHand        int                    `json:"found_by_people_at_the_end"`
	RestsByHand   int                    `json:"rests_found_by_people"` // that no living worker was told
	Jobs          *remote.Verdict        `json:"jobs,omitempty"`
	*verification
}

func run(ctx context.Context, o options, progress io.Writer) (r *report, err error) {
	a, err := openTestbed(ctx, o)
	if err != nil {
		return nil, err
	}
	defer func() {
		err = errors.Join(err, a.close())
		if err != nil || r != nil && len(r.Broken) > 0 {
			fmt.Fprintf(progress, "kept: %s (workers.log; postgres -D %s/postgres/data)\n", a.dir, a.dir)
			return
		}
		err = os.RemoveAll(a.dir)
	}()
	fmt.Fprintf(progress, "seed %d, %g minutes, %d workers, Redis append-only %t, in %s\n", o.seed, o.minutes, o.workers, o.appendOnly, a.dir)
	s := newSchedule(o)
	s.testbed, s.progress = a, progress
	l := &load{fleet: a.fleet, accepted: newAccepted(), seed: o.seed, remote: o.jobRate > 0, asynchronous: o.asynchronous}
	a.load = l

	faultsCtx, end := context.WithTimeout(ctx, time.Duration(o.minutes*float64(time.Minute)))
	defer end()
	jobs, err := a.startJobs(ctx, o)
	if err != nil {
		return nil, err
	}
	var submitted sync.WaitGroup
	submitted.Go(func() { l.run(faultsCtx, o.rate, o.settleTimeout) })
	submitted.Go(func() { jobs.run(faultsCtx, o, s.logf) })
	if err := s.runAll(faultsCtx); err != nil {
		return nil, err
	}
	if err := a.heal(ctx); err != nil {
		return nil, err
	}
	s.logf("the faults are over")
	healed := time.Now()
	submitted.Wait()
	l.open.Wait()
	if err := errors.Join(jobs.settle(ctx, o, s.logf), cancelKept(ctx, a, s)); err != nil {
		return nil, err
	}
	live, released, err := a.awaitNoneLive(ctx, o.settleTimeout, alarmDelay)
	if err != nil {
		return nil, err
	}
	r = &report{Seed: o.seed, Seconds: time.Since(s.began).Seconds(), AppendOnly: o.appendOnly, Asked: l.sent.Load(), Replies: l.counts(),
		Faults: s.stats, SecondsToIdle: time.Since(healed).Seconds(), Released: released}
	s.logf("%d live runs after %.1fs, %d circuit breakers were released by hand", live, r.SecondsToIdle, released)
	if err := a.resolve(ctx, o, s, r); err != nil {
		return nil, err
	}
	if r.Jobs, err = jobs.verify(ctx, a.clockSettings); err != nil {
		return nil, err
	}
	if r.verification, err = a.stopAndVerify(ctx, l); err != nil {
		return nil, err
	}
	if r.Jobs != nil {
		r.Broken = append(r.Broken, r.Jobs.Broken...)
	}
	if live > 0 {
		r.fail("%d runs did not come to rest within %s of the last fault", live, o.settleTimeout)
	}
	r.Broken = append(r.Broken, s.stuck...)
	for _, b := range r.Broken {
		s.logf("BROKEN: %s", b)
	}
	return r, nil
}

// maxWorkerClockSkew is by how much the times of two workers may differ after each has measured
// the offset of its clock from the database's: much less than the clocks are off.
const maxWorkerClockSkew = 250 * time.Millisecond

// resolve repairs the escrow service and looks up every unknown outcome, for as long as a
// call, or a lost worker's call, may be outstanding. Keys that the service has forgotten by
// then, or whose age nobody knows since the database's clock was set right, and what remote workers left unknown, are resolved by findings.
func (a *testbed) resolve(ctx context.Context, o options, s *schedule, r *report) (err error) {
	a.escrow.Repair()
	a.brief.Repair()
	if r.LeftOpen, err = a.lookUp(ctx, o.inFlight+o.lostAfter+lookupTimeout); err != nil {
		return err
	}
	if o.keyLifetime < time.Hour || r.LeftOpen > 0 && (o.jobRate > 0 || len(a.clockSettings) > 0) {
		if r.ByHand, _, err = a.recordAllFindings(ctx); err != nil {
			return err
		}
	}
	for a.ledgers().RestsOpen() && ctx.Err() == nil { // a payment of the last moments: its rest counts, too
		sleep(ctx, 50*time.Millisecond)
	}
	if r.RestsByHand, err = recordRests(ctx, a); err != nil {
		return err
	}
	s.logf("%d cases are unknown after the lookups, of %d of them people found what became of them", r.LeftOpen, r.ByHand)
	return nil
}

// lookupTimeout is how long the lookups may take beyond that.
const lookupTimeout = 20 * time.Second

// stopAndVerify ends the workers gracefully and verifies the result.
func (a *testbed) stopAndVerify(ctx context.Context, l *load) (*verification, error) {
	var failed []string
	for i := range a.fleet.seats {
		if err := a.fleet.stop(i, openTimeout); err != nil {
			failed = append(failed, err.Error())
		}
	}
	a.fleet.checkExits()
	v, err := verify(ctx, verifyInput{service: a.operatorService, escrows: a.ledgers(), accepted: l.accepted, statements: append(a.fleet.statements(), a.jobs.statements()...), reports: a.jobs.reports(), tampering: a.tampering, clockFaults: a.clockFaults, clock: a.clockSettings, maxClockSkew: maxWorkerClockSkew})
	if err != nil {
		return nil, err
	}
	if n := l.unanswered.Load(); n > 0 {
		v.fail("%d of what was handed over was never answered", n)
	}
	v.Broken = append(append(v.Broken, failed...), a.fleet.crashes...)
	return v, nil
}
