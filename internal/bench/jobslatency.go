package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

const (
	offeredPerSecond = 500 // jobs, while fetches and events are measured
	offerers         = 64  // requests of them at once
	latencyWorkers   = 16
	workerPoll       = 10 * time.Millisecond // after a fetch without a job, and after a page with the newest event

	timedPerSecond = 50 // jobs that are due later, and then retried
	timedJobs      = 500
	timedWait      = time.Second            // until a job is due
	retryWait      = 500 * time.Millisecond // until its retry is

	leasedJobs      = 100
	leasedPerSecond = 10
	leaseLength     = time.Second
)

// jobsLatency measures how long workers and readers wait at a server that has time to spare: for the answer
// of a fetch, for a job that is due at a time, for the job of a lease that ended, for an event.
func (j job) jobsLatency(ctx context.Context) (m metrics, err error) {
	server, err := j.startServer(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, server.stop()) }()
	m = metrics{}
	timed := min(timedJobs, j.Tasks)
	leased := min(leasedJobs, j.Tasks)
	for _, measure := range []func() error{
		func() error { return measureOffered(ctx, server.client, j.Tasks, m) },
		func() error { return measureTimed(ctx, server.client, timed, m) },
		func() error { return measureLeaseEnds(ctx, server.client, leased, m) },
	} {
		if err := measure(); err != nil {
			return nil, err
		}
	}
	return m, j.verifyLatency(ctx, j.Tasks+timed+leased, j.Tasks+2*timed+2*leased, m)
}

// earlyFetchesSQL counts attempts that began before the time that the receipt before them names.
const earlyFetchesSQL = `SELECT count(*) FROM recourse.receipts s JOIN recourse.receipts a ON a.case_id = s.case_id AND a.seq = s.seq + 1 AND a.subtype = 'attempt-started'
WHERE s.subtype IN ('submitted', 'retry-scheduled') AND a.at < (s.body::jsonb #>> '{payload,next_retry_at}')::timestamptz`

func (j job) verifyLatency(ctx context.Context, jobs, attempts int, m metrics) (err error) {
	db, err := sql.Open("postgres", j.OwnerURL)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	var early, succeeded, made int
	err = errors.Join(
		db.QueryRowContext(ctx, earlyFetchesSQL).Scan(&early),
		db.QueryRowContext(ctx, `SELECT count(*) FILTER (WHERE state = 'succeeded'), coalesce(sum(attempt_count), 0) FROM recourse.runs`).Scan(&succeeded, &made),
	)
	m[earlyAttempts] = float64(early)
	return errors.Join(err, equal("fetches before their time", early, 0), equal("done jobs", succeeded, jobs), equal("attempts", made, attempts), auditSample(ctx, j, db))
}

// measureOffered offers jobs at a rate, has workers take them, and follows the events.
func measureOffered(ctx context.Context, c jobClient, jobs int, m metrics) error {
	enqueued, fetches, read := make([]time.Time, jobs), make([][]time.Duration, latencyWorkers), make([]time.Time, jobs)
	var places sync.Map // the place of each job, by its id
	var left atomic.Int64
	left.Store(int64(jobs))
	working, stop := context.WithCancel(ctx)
	defer stop()
	began := time.Now()
	err := together(
		func() error {
			return offer(ctx, jobs, offeredPerSecond, offerers, func(i int) error {
				id, err := c.enqueue(ctx, fmt.Appendf(nil, `{"type":"escrow.release","queue":"offered","args":[%d]}`, i))
				enqueued[i] = time.Now()
				places.Store(id, i)
				if i == jobs-1 {
					m[perSecond] = float64(jobs) / time.Since(began).Seconds()
				}
				return err
			})
		},
		func() error {
			return workAll(working, c, "offered", func(worker int, asked time.Time, one fetchedJob) error {
				fetches[worker] = append(fetches[worker], time.Since(asked))
				err := c.ack(ctx, one.ID, worker)
				if left.Add(-1) == 0 {
					stop()
				}
				return err
			})
		},
		func() error {
			return followEvents(ctx, c, jobs, func(id string) error {
				for {
					if i, known := places.Load(id); known {
						read[i.(int)] = time.Now()
						return nil
					}
					if err := sleep(ctx, time.Millisecond); err != nil { // its answer is still on its way
						return err
					}
				}
			})
		},
	)
	if err != nil {
		return err
	}
	var all, waited []time.Duration
	for _, some := range fetches {
		all = append(all, some...)
	}
	for i := range read {
		waited = append(waited, max(0, read[i].Sub(enqueued[i])))
	}
	m[latencyP50], m[latencyP99] = milliseconds(percentile(all, .5)), milliseconds(percentile(all, .99))
	m[eventP50], m[eventP99] = milliseconds(percentile(waited, .5)), milliseconds(percentile(waited, .99))
	return nil
}

// together runs functions at the same time.
func together(all ...func() error) error {
	failures := make([]error, len(all))
	var running sync.WaitGroup
	for i, f := range all {
		running.Go(func() { failures[i] = f() })
	}
	running.Wait()
	return errors.Join(failures...)
}

// workAll has workers fetch jobs of a queue until ctx ends, and calls do for each with the time when its
// fetch began.
func workAll(ctx context.Context, c jobClient, queue string, do func(worker int, asked time.Time, one fetchedJob) error) error {
	failures := make([]error, latencyWorkers)
	var all sync.WaitGroup
	for worker := range latencyWorkers {
		all.Go(func() {
			for failures[worker] == nil && ctx.Err() == nil {
				asked := time.Now()
				got, err := c.fetch(context.WithoutCancel(ctx), wantOne(queue, worker))
				switch {
				case err != nil:
					failures[worker] = err
				case len(got) == 0:
					_ = sleep(ctx, workerPoll) // the loop sees that ctx has ended
				default:
					failures[worker] = do(worker, asked, got[0])
				}
			}
		})
	}
	all.Wait()
	return errors.Join(failures...)
}

// followEvents reads the events of a tenant until as many jobs were enqueued, and calls seen for each.
func followEvents(ctx context.Context, c jobClient, jobs int, seen func(id string) error) error {
	for after := ""; jobs > 0; {
		var page struct {
			Events []struct {
				Subject string `json:"subject"`
			} `json:"events"`
			Cursor  string `json:"cursor"`
			HasMore bool   `json:"has_more"`
		}
		if err := c.get(ctx, "/events?types=job.enqueued&limit=1000"+after, &page); err != nil {
			return err
		}
		for _, e := range page.Events {
			if err := seen(e.Subject); err != nil {
				return err
			}
			jobs--
		}
		if page.Cursor != "" {
			after = "&after=" + page.Cursor
		}
		if !page.HasMore {
			if err := sleep(ctx, workerPoll); err != nil {
				return err
			}
		}
	}
	return nil
}

// measureTimed measures how late workers get jobs that are due at a time, and those that are due again a
// while after they failed.
func measureTimed(ctx context.Context, c jobClient, jobs int, m metrics) error {
	var mu sync.Mutex
	due := make([]time.Time, jobs)
	var scheduled, retried []time.Duration
	working, stop := context.WithCancel(ctx)
	defer stop()
	err := together(
		func() error {
			return offer(ctx, jobs, timedPerSecond, offerers, func(i int) error {
				at := time.Now().Add(timedWait).UTC().Truncate(time.Microsecond)
				mu.Lock()
				due[i] = at
				mu.Unlock()
				_, err := c.enqueue(ctx, fmt.Appendf(nil, `{"type":"escrow.release","queue":"timed","args":[%d],"scheduled_at":%q,"retry":{"initial_interval":"PT%gS","jitter":false}}`, i, at.Format(time.RFC3339Nano), retryWait.Seconds()))
				return err
			})
		},
		func() error {
			return workAll(working, c, "timed", func(worker int, _ time.Time, one fetchedJob) error {
				now := time.Now()
				i, err := strconv.Atoi(string(one.Args[0]))
				if err != nil {
					return err
				}
				mu.Lock()
				late := now.Sub(due[i])
				if one.Attempt > 1 {
					retried = append(retried, late)
				} else {
					scheduled = append(scheduled, late)
				}
				done := len(retried) == jobs
				mu.Unlock()
				if one.Attempt > 1 {
					err = c.ack(ctx, one.ID, worker)
				} else {
					var next time.Time
					next, err = c.nack(ctx, one.ID, worker, `{"code":"busy","message":"try again"}`)
					mu.Lock()
					due[i] = next
					mu.Unlock()
				}
				if done {
					stop()
				}
				return err
			})
		},
	)
	m[scheduledP50], m[scheduledP99] = milliseconds(percentile(scheduled, .5)), milliseconds(percentile(scheduled, .99))
	m[gapP50], m[gapP99] = milliseconds(percentile(retried, .5)), milliseconds(percentile(retried, .99))
	return err
}

// measureLeaseEnds has workers take jobs and say nothing of them, each from a queue of its own, and measures
// how long after the end of its lease each gets the job again.
func measureLeaseEnds(ctx context.Context, c jobClient, jobs int, m metrics) error {
	late := make([]time.Duration, jobs)
	err := offer(ctx, jobs, leasedPerSecond, latencyWorkers, func(i int) error {
		queue := fmt.Sprintf("leased-%d", i)
		id, err := c.enqueue(ctx, fmt.Appendf(nil, `{"type":"escrow.release","queue":%q,"args":[%d]}`, queue, i))
		if err != nil {
			return err
		}
		want := fmt.Appendf(nil, `{"queues":[%q],"count":1,"worker_id":"w0","visibility_timeout_ms":%d}`, queue, leaseLength.Milliseconds())
		asked := time.Now()
		for attempt := 1; attempt <= 2; {
			got, err := c.fetch(ctx, want)
			switch {
			case err != nil:
				return err
			case len(got) == 0:
				err = sleep(ctx, workerPoll)
			case got[0].Attempt != attempt:
				err = equal("the attempt of a lease", got[0].Attempt, attempt)
			case attempt == 1:
				err = sleep(ctx, time.Until(asked.Add(leaseLength)))
				attempt++
			default:
				late[i] = time.Since(asked.Add(leaseLength))
				attempt++
			}
			if err != nil {
				return err
			}
		}
		return c.ack(ctx, id, 0)
	})
	m[leaseEndP50], m[leaseEndP99] = milliseconds(percentile(late, .5)), milliseconds(percentile(late, .99))
	return err
}
