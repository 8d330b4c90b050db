package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	riverqueue "github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
	"github.com/riverqueue/river/rivertype"
)

// riverSystem is the system river: the same evidence as asynq's by hand, in the
// transaction that inserts or completes the job.
type riverSystem struct {
	job    job
	record *record
	pool   *pgxpool.Pool
	client *riverqueue.Client[pgx.Tx]
}

func prepareRiver(ctx context.Context, ownerURL string) error {
	if err := prepareEvidence(ctx, ownerURL); err != nil {
		return err
	}
	pool, err := pgxpool.New(ctx, ownerURL)
	if err != nil {
		return err
	}
	defer pool.Close()
	m, err := rivermigrate.New(riverpgxv5.New(pool), &rivermigrate.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	if _, err := m.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return err
	}
	return execute(ctx, ownerURL, grantSQL)
}

func openRiver(ctx context.Context, j job, r *record) (system, error) {
	c, err := pgxpool.ParseConfig(j.DatabaseURL)
	if err != nil {
		return nil, err
	}
	c.MaxConns = peerConnections
	pool, err := pgxpool.NewWithConfig(ctx, c)
	if err != nil {
		return nil, err
	}
	workers := riverqueue.NewWorkers()
	riverqueue.AddWorker(workers, &riverWorker{pool: pool, record: r, fails: allFail(j.Workload)})
	client, err := riverqueue.NewClient(riverpgxv5.New(pool), &riverqueue.Config{
		Queues:  map[string]riverqueue.QueueConfig{riverqueue.QueueDefault: {MaxWorkers: j.Slots}},
		Workers: workers, FetchCooldown: j.Poll, FetchPollInterval: j.Poll, MaxAttempts: maxAttempts,
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		pool.Close()
		return nil, err
	}
	return &riverSystem{job: j, record: r, pool: pool, client: client}, nil
}

func (r *riverSystem) submit(ctx context.Context, i int) error {
	a := assign(i)
	evidence, err := submittedPayload(i)
	if err != nil {
		return err
	}
	now := time.Now()
	err = pgx.BeginFunc(ctx, r.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, insertSettlement, a.Settlement, "esc_"+a.Settlement, i+1, now); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, insertEvidence, a.Settlement, "execution", "submitted", "bench", now, evidence); err != nil {
			return err
		}
		_, err := r.client.InsertTx(ctx, tx, a, nil)
		return err
	})
	if err == nil && r.job.Workload == enqueueWorkload {
		r.record.ended(i)
	}
	return err
}

// stopTimeout bounds the stop of River's client.
const stopTimeout = 30 * time.Second

func (r *riverSystem) work(ctx context.Context) error {
	if r.job.Workload == enqueueWorkload {
		<-ctx.Done()
		return nil
	}
	if err := r.client.Start(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	<-ctx.Done()
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	return r.client.Stop(stopping)
}

func (r *riverSystem) close() error {
	r.pool.Close()
	return nil
}

// riverWorker is River's worker.
type riverWorker struct {
	riverqueue.WorkerDefaults[assignment]
	pool   *pgxpool.Pool
	record *record
	fails  bool
}

// NextRetry returns the same schedule as the other systems.
func (s *riverWorker) NextRetry(j *riverqueue.Job[assignment]) time.Time {
	return time.Now().Add(delayAfter(j.Attempt))
}

// Work makes one attempt.
func (s *riverWorker) Work(ctx context.Context, j *riverqueue.Job[assignment]) error {
	s.record.began(j.Args.Index, j.Attempt)
	var failure error
	if s.fails {
		failure = errBusy
	}
	s.record.returned(j.Args.Index, j.Attempt)
	now := time.Now()
	next, err := stepAfter(j.Attempt, failure, now)
	if err != nil {
		return err
	}
	if err := pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error { return s.write(ctx, tx, j, next, now) }); err != nil {
		s.record.extraAttempts.Add(1)
		return err
	}
	if next.last {
		s.record.ended(j.Args.Index)
	}
	return failure
}

// write records a step; a success completes the job in the same transaction. River
// has no such call for a failure.
func (s *riverWorker) write(ctx context.Context, tx pgx.Tx, j *riverqueue.Job[assignment], next step, now time.Time) error {
	moved, err := tx.Exec(ctx, updateSettlement, j.Args.Settlement, next.state, next.lifecycle, next.reason, j.Attempt, now)
	if err != nil {
		return err
	}
	if moved.RowsAffected() != 1 {
		return errExtraAttempt
	}
	if _, err := tx.Exec(ctx, insertEvidence, j.Args.Settlement, "retry", next.subtype, "worker", now, next.payload); err != nil || s.fails {
		return err
	}
	_, err = riverqueue.JobCompleteTx[*riverpgxv5.Driver](ctx, tx, j)
	return err
}

// verifyRiver verifies the evidence, and counts the jobs.
func verifyRiver(ctx context.Context, j job) (err error) {
	db, err := sql.Open("postgres", j.DatabaseURL)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	if j.Workload == enqueueWorkload {
		var jobs int
		err := db.QueryRowContext(ctx, `SELECT count(*) FROM river_job`).Scan(&jobs)
		return errors.Join(err, equal("jobs", jobs, j.Tasks))
	}
	end := rivertype.JobStateCompleted
	if allFail(j.Workload) {
		end = rivertype.JobStateDiscarded
	}
	var jobs int
	if err := db.QueryRowContext(ctx, `SELECT count(*) FROM river_job WHERE state = $1`, string(end)).Scan(&jobs); err != nil {
		return err
	}
	return errors.Join(equal(fmt.Sprintf("jobs %s", end), jobs, j.Tasks), verifyEvidence(ctx, j))
}
