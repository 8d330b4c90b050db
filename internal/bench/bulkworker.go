package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"time"

	"github.com/hibiken/asynq"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/escrowhttp"
)

// bulkWorker is the job of a process that works until it is killed, or its input ends.
const bulkWorker = "bulk-worker"

// workerProcess is such a process.
type workerProcess struct {
	cmd *exec.Cmd
	in  io.Closer
}

func (j job) startWorker(ctx context.Context) (*workerProcess, error) {
	j.Workload = bulkWorker
	text, err := json.Marshal(j)
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := exec.CommandContext(ctx, self)
	c.Env, c.Stderr = append(os.Environ(), jobVariable+"="+string(text)), os.Stderr
	in, err := c.StdinPipe()
	if err != nil {
		return nil, err
	}
	return &workerProcess{c, in}, c.Start()
}

// kill ends the process with SIGKILL, and returns when it has ended.
func (w *workerProcess) kill() {
	_ = w.cmd.Process.Kill()
	_ = w.cmd.Wait()
}

// runWorker executes what is due, and pays.
func (j job) runWorker(ctx context.Context) (err error) {
	var e escrow.Executor = payingExecutor{}
	if j.EscrowURL != "" {
		if e, err = escrowhttp.New(escrowhttp.Config{BaseURL: j.EscrowURL, KeyLifetime: escrow.Forever}); err != nil {
			return err
		}
	}
	s, err := j.openWith(ctx, e, nil)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	go func() {
		defer stop()
		_, _ = io.Copy(io.Discard, os.Stdin) // it ends when the parent process has ended
	}()
	return errors.Join(s.Run(ctx), s.Close())
}

func (j job) openWith(ctx context.Context, e escrow.Executor, onTransition func(background.Transition, background.Run)) (*postadjudication.Service, error) {
	redis, err := asynq.ParseRedisURI(j.RedisURL)
	if err != nil {
		return nil, err
	}
	return postadjudication.Open(ctx, postadjudication.Config{
		DatabaseURL: j.DatabaseURL, Redis: redis, Slots: j.Slots, Servers: j.Servers, Poll: j.Poll, Executor: e, OnTransition: onTransition,
		Breaker: postadjudication.BreakerRule{Disabled: true},
	})
}

// endAll submits all tasks to a system on a service, and executes each to its end.
func (j job) endAll(ctx context.Context, e escrow.Executor, on func(*postadjudication.Service, *record) system) (err error) {
	r := newRecord(j.Tasks)
	s, err := j.openWith(ctx, e, func(m background.Transition, after background.Run) { recordEnd(r, m, after) })
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	working, stop := context.WithCancel(ctx)
	worked := make(chan error, 1)
	go func() { worked <- s.Run(working) }()
	err = submitAll(ctx, on(s, r), r, preloaders)
	if err == nil {
		err = (&measurement{job: j, record: r}).await(ctx, worked)
	}
	stop()
	return errors.Join(err, <-worked)
}

type payingExecutor struct{}

func (payingExecutor) KeyLifetime() time.Duration { return escrow.Forever }

func (payingExecutor) Execute(_ context.Context, c escrow.Call) escrow.Answer {
	return escrow.Answer{Class: escrow.Executed, Moved: c.Amount.Minor, Reference: "pay_" + c.Run.String()}
}

type refusingExecutor struct{}

func (refusingExecutor) KeyLifetime() time.Duration { return escrow.Forever }

func (refusingExecutor) Execute(context.Context, escrow.Call) escrow.Answer {
	return escrow.Answer{Class: escrow.NotExecuted, Type: "http.refused", Code: "422", Message: "account closed"}
}
