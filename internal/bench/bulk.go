package main

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/hibiken/asynq"

	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/bulk"
)

// bulkWorkerKills is how often the process that works on the plan is killed, evenly spread
// over the plan.
const bulkWorkerKills = 2

// bulk lets all tasks die, or forks them all by a plan whose worker is killed with
// SIGKILL again and again.
func (j job) bulk(ctx context.Context) (m metrics, err error) {
	if j.Preload {
		return nil, j.endAll(ctx, refusingExecutor{}, func(s *postadjudication.Service, r *record) system { return &recourseSystem{s, r} }) // each dies of its first attempt
	}
	redis, err := asynq.ParseRedisURI(j.RedisURL)
	if err != nil {
		return nil, err
	}
	s, err := postadjudication.Open(ctx, postadjudication.Config{DatabaseURL: j.DatabaseURL, Redis: redis})
	if err != nil {
		return nil, err
	}
	db, err := sql.Open("postgres", j.DatabaseURL)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close(), db.Close()) }()
	m = metrics{}
	begun := time.Now()
	plan, err := s.As("bench", "user:ada").Bulk.Plan(ctx, bulk.Request{
		All: true, Action: bulk.Fork, Reason: "the escrow service was mended",
	})
	if err == nil {
		err = equal("letters of the plan", int(plan.Ready), j.Tasks)
	}
	if err != nil {
		return nil, err
	}
	m[planSeconds] = time.Since(begun).Seconds()
	begun = time.Now()
	if _, err := s.As("bench", "user:bob").Bulk.Run(ctx, plan.ID, plan.Hash); err != nil {
		return nil, err
	}
	if err := j.forkUnderKills(ctx, s, plan, db, begun, m); err != nil {
		return nil, err
	}
	var twice int
	err = db.QueryRowContext(ctx, duplicatesSQL).Scan(&twice)
	m[duplicates] = float64(twice)
	return m, errors.Join(err, equal("duplicates", twice, 0))
}

// duplicatesSQL counts letters that were forked more than once, and cases that were
// paid more than once.
const duplicatesSQL = `SELECT (SELECT count(parent_id) - count(DISTINCT parent_id) FROM recourse.runs)
	+ (SELECT count(*) FROM (SELECT FROM recourse.receipts WHERE subtype = 'attempt-succeeded' GROUP BY case_id HAVING count(*) > 1) d)`

// forkUnderKills runs workers until the plan is done and the forks have settled, and kills
// them.
func (j job) forkUnderKills(ctx context.Context, s *postadjudication.Service, plan bulk.Plan, db *sql.DB, begun time.Time, m metrics) error {
	w, err := j.startWorker(ctx)
	if err != nil {
		return err
	}
	stop, err := underKills(ctx, s, plan, begun, w, func() (killable, error) { return j.startWorker(ctx) }, m)
	defer stop()
	if err != nil {
		return err
	}
	return j.untilSettled(ctx, db, begun, m)
}

// killable is a process that works on a plan.
type killable interface {
	kill() // with SIGKILL; it returns when the process has ended
}

// underKills waits until a plan is done, and kills the process that works on it bulkWorkerKills times, each
// time starting another. stop ends the last one.
func underKills(ctx context.Context, s *postadjudication.Service, plan bulk.Plan, begun time.Time, w killable, start func() (killable, error), m metrics) (stop func(), err error) {
	stop = func() { w.kill() }
	for {
		b, err := s.As("bench", "").Bulk.Get(ctx, plan.ID)
		switch {
		case err != nil:
			return stop, err
		case b.State == bulk.Done:
			took := time.Since(begun)
			m[bulkSeconds], m[perSecond] = took.Seconds(), float64(plan.Items)/took.Seconds()
			return stop, equal("kills", int(m[killCount]), bulkWorkerKills)
		case m[killCount] < bulkWorkerKills && float64(b.Progress.Done) >= float64(plan.Items)*(m[killCount]+1)/(bulkWorkerKills+1):
			w.kill()
			m[killCount]++
			next, err := start()
			if err != nil {
				return stop, err
			}
			w = next
		}
		if err := sleep(ctx, 5*time.Millisecond); err != nil {
			return stop, err
		}
	}
}

func (j job) untilSettled(ctx context.Context, db *sql.DB, begun time.Time, m metrics) error {
	if err := untilNone(ctx, db, `SELECT EXISTS (SELECT FROM recourse.runs WHERE live)`); err != nil {
		return err
	}
	m[settledSeconds] = time.Since(begun).Seconds()
	return nil
}

// verifyBulk counts the rows that the plan must have left.
func verifyBulk(ctx context.Context, db *sql.DB, j job) error {
	var forked, forks, settled, done int
	err := db.QueryRowContext(ctx, `SELECT count(*) FILTER (WHERE letter = 'forked'), count(*) FILTER (WHERE parent_id IS NOT NULL AND state = 'succeeded'),
		(SELECT count(*) FROM recourse.cases WHERE progression = 'settled'), (SELECT count(*) FROM recourse.bulk_items WHERE outcome = 'done') FROM recourse.runs`).
		Scan(&forked, &forks, &settled, &done)
	j.Tasks++ // the operation log of plans has a chain too
	return errors.Join(err, equal("forked letters", forked, j.Tasks-1), equal("forks that succeeded", forks, j.Tasks-1),
		equal("settled cases", settled, j.Tasks-1), equal("items that are done", done, j.Tasks-1), checkAudit(ctx, j))
}
