package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/pprof"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// preloaders is how many goroutines preload.
const preloaders = 256

// do opens the system and preloads or measures it.
func (j job) do(ctx context.Context) (m metrics, err error) {
	if j.Workload == lettersWorkload {
		return j.letters(ctx)
	}
	r := newRecord(j.trackedTasks())
	s, err := systemKinds[j.System].open(ctx, j, r)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	if j.Preload {
		return nil, submitAll(ctx, s, r, preloaders)
	}
	options, err := redis.ParseURL(j.RedisURL)
	if err != nil {
		return nil, err
	}
	client := redis.NewClient(options)
	defer func() { err = errors.Join(err, client.Close()) }()
	stop, err := startProfile(j.Profile)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	w := &measurement{job: j, system: s, record: r, meter: meter{client, j.RedisPID, j.PostgresPID}, metrics: metrics{}}
	err = w.run(ctx)
	return w.metrics, err
}

func startProfile(file string) (stop func() error, err error) {
	if file == "" {
		return func() error { return nil }, nil
	}
	f, err := os.Create(file)
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() error {
		pprof.StopCPUProfile()
		return f.Close()
	}, nil
}

// trackedTasks is how many tasks this process records: not those that only wait during the
// measurement, because the record would take more memory than the worker.
func (j job) trackedTasks() int {
	if !j.Preload && (j.Workload == memoryWorkload || j.Workload == flushWorkload) {
		return 0
	}
	return j.Tasks
}

// measurement is one measurement.
type measurement struct {
	job     job
	system  system
	record  *record
	meter   meter
	metrics metrics
}

// run runs the workers and the workload at the same time.
func (w *measurement) run(ctx context.Context) error {
	working, stop := context.WithCancel(ctx)
	worked := make(chan error, 1)
	before, err := w.meter.read(ctx, w.record)
	if err != nil {
		stop()
		return err
	}
	go func() { worked <- w.system.work(working) }()
	switch w.job.Workload {
	case idleWorkload:
		err = w.measureIdle(ctx)
	case flushWorkload:
		err = w.measureFlush(ctx)
	case memoryWorkload:
		err = sleep(ctx, w.job.Quiet)
	default:
		err = w.measureRun(ctx, before, worked)
	}
	err = errors.Join(err, w.measureMemory())
	stop()
	if err := errors.Join(err, <-worked); err != nil {
		return err
	}
	return equal("attempts or ends too many", int(w.record.extraAttempts.Load()), 0)
}

// measureRun measures the time from the start of the workers to the last end.
func (w *measurement) measureRun(ctx context.Context, before cost, worked chan error) error {
	var err error
	switch w.job.Workload {
	case precisionWorkload:
		err = submitPaced(ctx, w.system, w.record, 10)
	case drainWorkload, jobsWorkload, jobs10Workload:
	default:
		err = submitAll(ctx, w.system, w.record, w.job.Submitters)
	}
	if err == nil {
		err = w.await(ctx, worked)
	}
	if err != nil {
		return err
	}
	after, err := w.meter.read(ctx, w.record)
	if err != nil {
		return err
	}
	spent := after.since(before)
	w.metrics[perSecond] = float64(w.job.Tasks) / spent.at.Seconds()
	spent.perTask(w.job.Tasks, w.metrics)
	l := w.record.latencies(before.at)
	w.metrics[latencyP50], w.metrics[latencyP99] = milliseconds(percentile(l, .5)), milliseconds(percentile(l, .99))
	if gaps, early := w.record.gaps(); len(gaps) > 0 {
		w.metrics[gapP50], w.metrics[gapP99] = milliseconds(percentile(gaps, .5)), milliseconds(percentile(gaps, .99))
		w.metrics[earlyAttempts] = float64(early)
	}
	return nil
}

func (w *measurement) await(ctx context.Context, worked chan error) error {
	select {
	case <-w.record.done:
		return nil
	case err := <-worked:
		worked <- nil // the error is reported here
		return errors.Join(errors.New("the workers ended before their tasks"), err)
	case <-ctx.Done():
		return fmt.Errorf("%d of %d tasks never ended: %w", w.record.left.Load(), w.job.Tasks, ctx.Err())
	}
}

// warmUp is how long a system may start before it is measured idle.
const warmUp = 2 * time.Second

// measureIdle measures an idle system, then how fast single tasks are picked up.
func (w *measurement) measureIdle(ctx context.Context) error {
	if err := sleep(ctx, warmUp); err != nil {
		return err
	}
	before, err := w.meter.read(ctx, w.record)
	if err != nil {
		return err
	}
	if err := sleep(ctx, w.job.Quiet); err != nil {
		return err
	}
	after, err := w.meter.read(ctx, w.record)
	if err != nil {
		return err
	}
	after.since(before).shares(w.metrics)
	if err := submitPaced(ctx, w.system, w.record, 5); err != nil {
		return err
	}
	if err := w.await(ctx, make(chan error, 1)); err != nil {
		return err
	}
	p := w.record.pickups()
	w.metrics[pickupP50], w.metrics[pickupP99] = milliseconds(percentile(p, .5)), milliseconds(percentile(p, .99))
	return nil
}

func (w *measurement) measureMemory() error {
	now, peak, err := resident(os.Getpid())
	own, err2 := anonymous(os.Getpid())
	w.metrics[residentMB], w.metrics[peakMB] = float64(now)/(1<<20), float64(peak)/(1<<20)
	w.metrics[anonymousMB] = float64(own) / (1 << 20)
	return errors.Join(err, err2)
}

// submitAll submits every task of the record, several at once.
func submitAll(ctx context.Context, s system, r *record, goroutines int) error {
	var next atomic.Int64
	failures := make([]error, goroutines)
	var all sync.WaitGroup
	for g := range goroutines {
		all.Go(func() {
			for i := int(next.Add(1)) - 1; i < len(r.tasks) && failures[g] == nil; i = int(next.Add(1)) - 1 {
				r.submitting(i)
				failures[g] = s.submit(ctx, i)
			}
		})
	}
	all.Wait()
	return errors.Join(failures...)
}

// submitPaced submits every task of the record, at a rate per second.
func submitPaced(ctx context.Context, s system, r *record, perSecond int) error {
	began := time.Now()
	for i := range r.tasks {
		at := began.Add(time.Duration(i+1) * time.Second / time.Duration(perSecond))
		if err := sleep(ctx, time.Until(at)); err != nil {
			return err
		}
		r.submitting(i)
		if err := s.submit(ctx, i); err != nil {
			return err
		}
	}
	return nil
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// flushPoll is how often the notifications are counted.
const flushPoll = 10 * time.Millisecond

// measureFlush empties Redis under waiting runs, and measures the time until each has a
// notification again. Runs that workers hold need none.
func (w *measurement) measureFlush(ctx context.Context) error {
	if err := sleep(ctx, warmUp); err != nil {
		return err
	}
	inWorkers := max(400, 4*w.job.Slots) // the deliveries that a process of recourse holds
	wanted := int64(w.job.Tasks - inWorkers)
	if wanted <= 0 {
		return fmt.Errorf("flush needs more pending runs than the %d that a worker holds", inWorkers)
	}
	begun := time.Now()
	if err := w.meter.redis.FlushAll(ctx).Err(); err != nil {
		return err
	}
	for {
		notifications, err := w.countNotifications(ctx)
		if err != nil {
			return err
		}
		if notifications >= wanted {
			w.metrics[renotifiedSeconds] = time.Since(begun).Seconds()
			return nil
		}
		if err := sleep(ctx, flushPoll); err != nil {
			return err
		}
	}
}

// countNotifications counts the tasks that asynq will deliver or is delivering.
func (w *measurement) countNotifications(ctx context.Context) (n int64, err error) {
	queues, err := w.meter.redis.SMembers(ctx, "asynq:queues").Result()
	if err != nil {
		return 0, err
	}
	for _, q := range queues {
		for _, list := range strings.Fields("pending active") {
			some, err := w.meter.redis.LLen(ctx, "asynq:{"+q+"}:"+list).Result()
			if err != nil {
				return 0, err
			}
			n += some
		}
	}
	return n, nil
}
