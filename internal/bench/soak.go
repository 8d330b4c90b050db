package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/recourse-dev/recourse/internal/fakeescrow"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/escrowhttp"
)

const (
	soakWorkers = 2
	// killEvery is the mean time between two kills.
	killEvery = 5 * time.Second
	// soakSeed is the seed of the kills.
	soakSeed = 1
)

// soak submits all tasks while the workers that execute them are killed with SIGKILL at
// random, and compares the escrow service's own ledger with the submissions. The ledger is
// in this process, which is not killed.
func (j job) soak(ctx context.Context) (m metrics, err error) {
	service, err := fakeescrow.Start(fakeescrow.Config{})
	if err != nil {
		return nil, err
	}
	defer service.Close()
	j.EscrowURL = service.URL()
	r := newRecord(j.Tasks)
	e, err := escrowhttp.New(escrowhttp.Config{BaseURL: j.EscrowURL, KeyLifetime: escrow.Forever})
	if err != nil {
		return nil, err
	}
	s, err := j.openWith(ctx, e, nil)
	if err != nil {
		return nil, err
	}
	db, err := sql.Open("postgres", j.DatabaseURL)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close(), db.Close()) }()
	m = metrics{}
	killCtx, stopKilling := context.WithCancel(ctx)
	var kills int
	killer := make(chan error, 1)
	go func() { killer <- j.killAtRandom(killCtx, &kills) }()
	begun := time.Now()
	err = submitAll(ctx, &recourseSystem{s, r}, r, j.Submitters)
	m[submittedSeconds] = time.Since(begun).Seconds()
	if err == nil {
		err = j.untilSettled(ctx, db, begun, m)
	}
	stopKilling()
	if err = errors.Join(err, <-killer); err != nil {
		return nil, err
	}
	m[killCount], m[perSecond] = float64(kills), float64(j.Tasks)/m[settledSeconds]
	paid := service.Totals()
	m[duplicates] = float64(service.DoubleEffects())
	return m, errors.Join(equal("effects", paid.Effects, j.Tasks), equal("double effects", int(m[duplicates]), 0))
}

// killAtRandom keeps the workers running and kills one after the other until ctx ends. Then
// it ends all of them.
func (j job) killAtRandom(ctx context.Context, kills *int) error {
	rng := rand.New(rand.NewPCG(soakSeed, uint64(j.Tasks)))
	workers := make([]*workerProcess, soakWorkers)
	defer func() {
		for _, w := range workers {
			if w != nil {
				w.kill()
			}
		}
	}()
	alive := context.WithoutCancel(ctx)
	for i := range workers {
		var err error
		if workers[i], err = j.startWorker(alive); err != nil {
			return err
		}
	}
	for {
		if sleep(ctx, killEvery/2+time.Duration(rng.Int64N(int64(killEvery)))) != nil {
			return nil
		}
		i := rng.IntN(soakWorkers)
		workers[i].kill()
		*kills++
		var err error
		if workers[i], err = j.startWorker(alive); err != nil {
			return err
		}
	}
}

// verifySoak counts the rows that must exist when nothing was lost.
func verifySoak(ctx context.Context, db *sql.DB, j job) error {
	var runs, succeeded, settled, paid int
	err := db.QueryRowContext(ctx, `SELECT count(*), count(*) FILTER (WHERE state = 'succeeded'),
		(SELECT count(*) FROM recourse.cases WHERE progression = 'settled'), (SELECT count(*) FROM recourse.escrows WHERE committed = held) FROM recourse.runs`).
		Scan(&runs, &succeeded, &settled, &paid)
	if err != nil {
		return fmt.Errorf("counting runs: %w", err)
	}
	return errors.Join(equal("runs", runs, j.Tasks), equal("succeeded runs", succeeded, j.Tasks), equal("settled cases", settled, j.Tasks),
		equal("escrows that are paid out", paid, j.Tasks), checkAudit(ctx, j))
}
