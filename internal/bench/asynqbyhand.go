package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/hibiken/asynq"
)

// peerConnections bounds the connections to Postgres of each peer.
const peerConnections = 20

// byHandSystem is the system asynq: asynq's own retries, and evidence in one
// transaction of prepared statements at every step.
type byHandSystem struct {
	db                     *sql.DB
	settle, prove, advance *sql.Stmt
	client                 *asynq.Client
	redis                  asynq.RedisClientOpt
	record                 *record
	job                    job
}

func prepareByHand(ctx context.Context, ownerURL string) error {
	if err := prepareEvidence(ctx, ownerURL); err != nil {
		return err
	}
	return execute(ctx, ownerURL, grantSQL)
}

func verifyByHand(ctx context.Context, j job) error { return verifyEvidence(ctx, j) }

func openByHand(ctx context.Context, j job, r *record) (system, error) {
	parsed, err := asynq.ParseRedisURI(j.RedisURL)
	if err != nil {
		return nil, err
	}
	redis, ok := parsed.(asynq.RedisClientOpt)
	if !ok {
		return nil, fmt.Errorf("%s is not the address of a single Redis", j.RedisURL)
	}
	redis.PoolSize = j.Slots + j.Submitters
	h := &byHandSystem{redis: redis, record: r, job: j}
	if h.db, err = sql.Open("postgres", j.DatabaseURL); err != nil {
		return nil, err
	}
	h.db.SetMaxOpenConns(peerConnections)
	h.db.SetMaxIdleConns(peerConnections)
	for text, stmt := range map[string]**sql.Stmt{insertSettlement: &h.settle, insertEvidence: &h.prove, updateSettlement: &h.advance} {
		if *stmt, err = h.db.PrepareContext(ctx, text); err != nil {
			return nil, errors.Join(err, h.db.Close())
		}
	}
	h.client = asynq.NewClient(redis)
	return h, nil
}

func (h *byHandSystem) close() error { return errors.Join(h.client.Close(), h.db.Close()) }

func (h *byHandSystem) submit(ctx context.Context, i int) error {
	a := assign(i)
	evidence, err := submittedPayload(i)
	if err != nil {
		return err
	}
	payload, err := json.Marshal(a)
	if err != nil {
		return err
	}
	now := time.Now()
	err = h.transact(ctx, func(tx *sql.Tx) error {
		if _, err := tx.StmtContext(ctx, h.settle).ExecContext(ctx, a.Settlement, "esc_"+a.Settlement, i+1, now); err != nil {
			return err
		}
		_, err := tx.StmtContext(ctx, h.prove).ExecContext(ctx, a.Settlement, "execution", "submitted", "bench", now, string(evidence))
		return err
	})
	if err != nil {
		return err
	}
	_, err = h.client.EnqueueContext(ctx, asynq.NewTask(a.Kind(), payload), asynq.TaskID(a.Settlement), asynq.MaxRetry(maxAttempts-1))
	return err
}

func (h *byHandSystem) work(ctx context.Context) error {
	s := asynq.NewServer(h.redis, asynq.Config{
		Concurrency: h.job.Slots, TaskCheckInterval: h.job.Poll, DelayedTaskCheckInterval: h.job.Poll, LogLevel: asynq.FatalLevel,
		RetryDelayFunc: func(retried int, _ error, _ *asynq.Task) time.Duration { return delayAfter(retried + 1) },
	})
	if err := s.Start(asynq.HandlerFunc(h.handle)); err != nil {
		return err
	}
	<-ctx.Done()
	s.Shutdown()
	return nil
}

func (h *byHandSystem) handle(ctx context.Context, t *asynq.Task) error {
	var a assignment
	if err := json.Unmarshal(t.Payload(), &a); err != nil {
		return err
	}
	retried, _ := asynq.GetRetryCount(ctx)
	attempt := retried + 1
	h.record.began(a.Index, attempt)
	var failure error
	if allFail(h.job.Workload) {
		failure = errBusy
	}
	h.record.returned(a.Index, attempt)
	now := time.Now()
	s, err := stepAfter(attempt, failure, now)
	if err != nil {
		return err
	}
	if err := h.transact(ctx, func(tx *sql.Tx) error { return h.write(ctx, tx, a, attempt, s, now) }); err != nil {
		h.record.extraAttempts.Add(1)
		return err
	}
	if s.last {
		h.record.ended(a.Index)
	}
	return failure
}

func (h *byHandSystem) write(ctx context.Context, tx *sql.Tx, a assignment, attempt int, s step, now time.Time) error {
	moved, err := tx.StmtContext(ctx, h.advance).ExecContext(ctx, a.Settlement, s.state, s.lifecycle, s.reason, attempt, now)
	if err != nil {
		return err
	}
	if n, err := moved.RowsAffected(); err != nil || n != 1 {
		return errors.Join(errExtraAttempt, err)
	}
	_, err = tx.StmtContext(ctx, h.prove).ExecContext(ctx, a.Settlement, "retry", s.subtype, "worker", now, string(s.payload))
	return err
}

func (h *byHandSystem) transact(ctx context.Context, do func(*sql.Tx) error) error {
	tx, err := h.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if err := do(tx); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}
