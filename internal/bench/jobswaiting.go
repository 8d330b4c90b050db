package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// waitingTurns is how often each of the two servers takes its turn.
	waitingTurns = 5
	// waitingTurnJobs bounds the jobs that workers take in a turn.
	waitingTurnJobs = 4000
	waitingQueue    = "settlement"
	// pollEvery is how often each worker of an idle server asks for a job. They do not ask at the same time.
	pollEvery = time.Second
)

// queueServer is a server of jobs with its database.
type queueServer struct {
	job     job
	server  *serverProcess
	speed   []float64 // jobs per second, of each turn
	medians []float64 // milliseconds of its fetches, of each turn
	fetches []time.Duration
}

// jobsWaiting measures how workers take jobs from a queue in which as many more as there are tasks wait,
// half of them due tomorrow, and from one in which none do: by two servers with a database each, in turns.
// It ends with the server of the full queue idle.
func (j job) jobsWaiting(ctx context.Context) (m metrics, err error) {
	other, drop, err := j.secondDatabase(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, drop()) }()
	if err := prepareRecourse(ctx, other.OwnerURL); err != nil {
		return nil, err
	}
	turn := min(waitingTurnJobs, max(1, j.Tasks/5))
	m = metrics{}
	sides := []*queueServer{{job: j}, {job: other}}
	for i, waiting := range []int{j.Tasks, 0} {
		w := sides[i]
		if w.server, err = w.job.startServer(ctx); err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, w.server.stop()) }()
		began := time.Now()
		if err := w.fill(ctx, waiting, turn*waitingTurns); err != nil {
			return nil, err
		}
		if waiting > 0 {
			m[submittedSeconds] = time.Since(began).Seconds()
		}
	}
	for turns := range waitingTurns {
		for i := range sides {
			w := sides[(i+turns)%len(sides)] // none always goes first
			if err := w.take(ctx, turn); err != nil {
				return nil, err
			}
		}
	}
	compareWaiting(sides[0], sides[1], m)
	if err := sides[0].measureServer(ctx, m); err != nil {
		return nil, err
	}
	for _, w := range sides {
		if err := w.verify(ctx, turn*waitingTurns); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// fill adds jobs: half of those that wait are due tomorrow, the others are due as the ones to take are.
func (w *queueServer) fill(ctx context.Context, waiting, taken int) error {
	due, err := w.server.client.enqueue(ctx, fmt.Appendf(nil, `{"type":"escrow.release","queue":%q,"args":["txr_1"]}`, waitingQueue))
	if err != nil {
		return err
	}
	copies := []jobCopies{{of: due, count: taken + waiting - waiting/2 - 1, step: time.Millisecond}}
	if waiting/2 > 0 {
		tomorrow := time.Now().Add(24 * time.Hour).UTC().Format(time.RFC3339)
		later, err := w.server.client.enqueue(ctx, fmt.Appendf(nil, `{"type":"escrow.release","queue":%q,"args":["txr_1"],"scheduled_at":%q}`, waitingQueue, tomorrow))
		if err != nil {
			return err
		}
		copies = append(copies, jobCopies{of: later, count: waiting/2 - 1, step: time.Millisecond})
	}
	return copyJobs(ctx, w.job.OwnerURL, copies...)
}

// take has workers fetch and acknowledge jobs, each alone, and keeps the times of the fetches.
func (w *queueServer) take(ctx context.Context, jobs int) error {
	var next atomic.Int64
	failures, fetches := make([]error, remoteWorkers), make([][]time.Duration, remoteWorkers)
	var all sync.WaitGroup
	began := time.Now()
	for worker := range remoteWorkers {
		all.Go(func() {
			for next.Add(1) <= int64(jobs) && failures[worker] == nil {
				asked := time.Now()
				got, err := w.server.client.fetch(ctx, wantOne(waitingQueue, worker))
				fetches[worker] = append(fetches[worker], time.Since(asked))
				if err == nil {
					err = equal("fetched jobs", len(got), 1)
				}
				if err == nil {
					err = w.server.client.ack(ctx, got[0].ID, worker)
				}
				failures[worker] = err
			}
		})
	}
	all.Wait()
	w.speed = append(w.speed, float64(jobs)/time.Since(began).Seconds())
	turn := slices.Concat(fetches...)
	w.medians, w.fetches = append(w.medians, milliseconds(percentile(turn, .5))), append(w.fetches, turn...)
	return errors.Join(failures...)
}

// compareWaiting compares turns: the ratios are the medians of how many times slower the full queue was in a
// turn.
func compareWaiting(full, few *queueServer, m metrics) {
	m[perSecond], m[fewPerSecond] = median(full.speed), median(few.speed)
	m[latencyP50], m[latencyP99] = milliseconds(percentile(full.fetches, .5)), milliseconds(percentile(full.fetches, .99))
	m[fewP50], m[fewP99] = milliseconds(percentile(few.fetches, .5)), milliseconds(percentile(few.fetches, .99))
	var slower, longer []float64
	for i := range full.speed {
		slower, longer = append(slower, few.speed[i]/full.speed[i]), append(longer, full.medians[i]/few.medians[i])
	}
	m[waitingRatio], m[waitingLatencyRatio] = median(slower), median(longer)
}

// measureServer reads what memory the server took at full rate, then has workers poll an empty queue once
// a second, and reads its CPU and its memory at rest.
func (w *queueServer) measureServer(ctx context.Context, m metrics) error {
	_, peak, err := resident(w.server.PID())
	if err != nil {
		return err
	}
	polling, stop := context.WithCancel(ctx)
	defer stop()
	var all sync.WaitGroup
	for worker := range remoteWorkers {
		all.Go(func() {
			for pause := time.Duration(worker) * pollEvery / remoteWorkers; sleep(polling, pause) == nil; pause = pollEvery {
				_, _ = w.server.client.fetch(polling, wantOne("nothing", worker)) // what fails shows in the CPU alone
			}
		})
	}
	if err := sleep(ctx, max(warmUp, w.job.Quiet)); err != nil { // until it has seen that it is idle
		return err
	}
	before, err := cpuOf(w.server.PID())
	if err != nil {
		return err
	}
	began := time.Now()
	if err := sleep(ctx, w.job.Quiet); err != nil {
		return err
	}
	after, err := cpuOf(w.server.PID())
	m[clientShare] = 100 * (after - before).Seconds() / time.Since(began).Seconds()
	stop()
	all.Wait()
	now, _, err2 := resident(w.server.PID())
	m[residentMB], m[peakMB] = float64(now)/(1<<20), float64(peak)/(1<<20)
	return errors.Join(err, err2)
}

// verify checks that as many jobs are done as workers took, and that each was taken once.
func (w *queueServer) verify(ctx context.Context, taken int) (err error) {
	db, err := sql.Open("postgres", w.job.OwnerURL)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	var succeeded, attempts, leases int
	err = db.QueryRowContext(ctx, `SELECT count(*) FILTER (WHERE state = 'succeeded'), coalesce(sum(attempt_count), 0), (SELECT count(*) FROM recourse.leases) FROM recourse.runs`).Scan(&succeeded, &attempts, &leases)
	return errors.Join(err, equal("done jobs", succeeded, taken), equal("attempts", attempts, taken), equal("leases left", leases, 0), auditSample(ctx, w.job, db))
}
