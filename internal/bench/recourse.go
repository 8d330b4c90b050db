package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/hibiken/asynq"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/localpg"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/audit"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/settlement"
)

// recourseSystem is the system recourse.
type recourseSystem struct {
	*postadjudication.Service
	record *record
}

func prepareRecourse(ctx context.Context, ownerURL string) error {
	_, err := postadjudication.Migration{DatabaseURL: ownerURL, AppRole: localpg.AppRole}.Run(ctx)
	return err
}

func openRecourse(ctx context.Context, j job, r *record) (system, error) {
	if ofJobs(j.Workload) {
		return openJobServer(ctx, j, r)
	}
	redis, err := asynq.ParseRedisURI(j.RedisURL)
	if err != nil {
		return nil, err
	}
	c := postadjudication.Config{
		DatabaseURL: j.DatabaseURL, Redis: redis, Slots: j.Slots, Servers: j.Servers, Poll: j.Poll,
		Executor:     &instantExecutor{record: r, fails: allFail(j.Workload)},
		OnTransition: func(m background.Transition, after background.Run) { recordEnd(r, m, after) },
		Breaker:      postadjudication.BreakerRule{Disabled: allFail(j.Workload)}, // in workloads where every call fails on purpose
	}
	if j.Workload == memoryWorkload || j.Workload == flushWorkload {
		c.Executor, c.OnTransition = closedEscrow{}, nil
		c.TimeLimit, c.Grace = time.Hour, time.Millisecond
	}
	s, err := postadjudication.Open(ctx, c)
	if err != nil {
		return nil, err
	}
	return &recourseSystem{Service: s, record: r}, nil
}

// recordEnd is called after each commit. A transition of an unknown task counts as an extra attempt.
func recordEnd(r *record, m background.Transition, after background.Run) {
	if m.Subtype != receipts.AttemptSucceeded && m.Subtype != receipts.DeadLettered {
		return
	}
	transaction, _, _ := strings.Cut(after.RetryKey, ":")
	i, err := strconv.Atoi(strings.TrimPrefix(transaction, "txr_"))
	if err != nil {
		r.extraAttempts.Add(1)
		return
	}
	r.ended(i)
}

func (p *recourseSystem) submit(ctx context.Context, i int) error {
	amount := settlement.Money{Minor: int64(i) + 1, Currency: "EUR"} // the escrow service identifies the task by it
	id := strconv.Itoa(i)
	s, err := p.Submit(ctx, postadjudication.Adjudication{Instruction: settlement.Instruction{
		Tenant: "bench", TransactionReceiptID: "txr_" + id, SubmissionReceiptID: "sub_" + id, AdjudicationID: "adj_" + id,
		EscrowReference: "esc_" + id, Outcome: settlement.Release, Generation: 1, Amount: amount, Held: amount,
	}})
	if err != nil {
		return err
	}
	if s.Reply != postadjudication.Created {
		return fmt.Errorf("task %d was answered %q", i, s.Reply)
	}
	return nil
}

func (p *recourseSystem) work(ctx context.Context) error { return p.Run(ctx) }
func (p *recourseSystem) close() error                   { return p.Close() }

// instantExecutor answers at once.
type instantExecutor struct {
	record *record
	fails  bool
}

func (e *instantExecutor) KeyLifetime() time.Duration { return escrow.Forever }

func (e *instantExecutor) Execute(_ context.Context, c escrow.Call) escrow.Answer {
	i := int(c.Amount.Minor) - 1
	e.record.began(i, c.Attempt)
	defer e.record.returned(i, c.Attempt)
	if e.fails {
		return escrow.Answer{Class: escrow.NotExecuted, Retry: true, Type: "escrow.busy", Code: "429", Message: errBusy.Error()}
	}
	return escrow.Answer{Class: escrow.Executed, Moved: c.Amount.Minor, Reference: "pay_" + strconv.Itoa(i)}
}

// closedEscrow blocks until the worker stops.
type closedEscrow struct{}

func (closedEscrow) KeyLifetime() time.Duration { return escrow.Forever }

func (closedEscrow) Execute(ctx context.Context, _ escrow.Call) escrow.Answer {
	<-ctx.Done()
	return escrow.Answer{Class: escrow.NotExecuted, Retry: true, Type: "escrow.closed", Message: "the worker stops"}
}

// verifyRecourse counts rows, and runs the product's audit.
func verifyRecourse(ctx context.Context, j job) (err error) {
	db, err := sql.Open("postgres", j.DatabaseURL)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	if ofJobs(j.Workload) {
		return verifyJobs(ctx, j, db)
	}
	var runs, succeeded, died, disputes, settled, trail int
	err = db.QueryRowContext(ctx, `SELECT count(*), count(*) FILTER (WHERE state = 'succeeded'), count(*) FILTER (WHERE letter = 'open'),
		(SELECT count(*) FROM recourse.cases WHERE progression = 'dispute-ready'), (SELECT count(*) FROM recourse.cases WHERE progression = 'settled'),
		(SELECT count(*) FROM recourse.receipts) FROM recourse.runs`).Scan(&runs, &succeeded, &died, &disputes, &settled, &trail)
	if err != nil {
		return err
	}
	switch j.Workload {
	case memoryWorkload, flushWorkload:
		return equal("runs", runs, j.Tasks)
	case lettersWorkload:
		return errors.Join(equal("runs", runs, j.Tasks), verifyLetters(ctx, db))
	}
	wantDead, wantSettled, wantTrail := 0, j.Tasks, 3*j.Tasks
	if allFail(j.Workload) {
		wantDead, wantSettled, wantTrail = j.Tasks, 0, 7*j.Tasks
	}
	return errors.Join(
		equal("runs", runs, j.Tasks), equal("settled cases", settled, wantSettled), equal("succeeded runs", succeeded, wantSettled),
		equal("open letters", died, wantDead), equal("dispute-ready cases", disputes, wantDead), equal("receipts", trail, wantTrail), checkAudit(ctx, j),
	)
}

func checkAudit(ctx context.Context, j job) (err error) {
	db, err := audit.Open(ctx, j.DatabaseURL)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	a, err := audit.Run(ctx, db, audit.Query{})
	if err != nil {
		return err
	}
	if !a.OK() {
		return fmt.Errorf("the audit found broken: %v", a.Broken)
	}
	return errors.Join(equal("verified chains", a.Chains, j.Tasks), equal("early attempts", a.EarlyAttempts, 0))
}

func equal(what string, got, want int) error {
	if got != want {
		return fmt.Errorf("%d %s, want %d", got, what, want)
	}
	return nil
}
