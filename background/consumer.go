package background

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hibiken/asynq"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/recourse-dev/recourse/receipts"
)

const (
	// forwardEvery is how often asynq forwards tasks that are due: only those that dueTimers did
	// not enqueue in time.
	forwardEvery = 500 * time.Millisecond
	// recordGrace is the time that deliveries get after the grace to record that their attempts
	// were interrupted.
	recordGrace = 5 * time.Second
	// busyDelay is the delay between deliveries of a run that is in flight in this process. It
	// does not grow: another process may be waiting to continue the run.
	busyDelay = time.Second
	// unavailableDelayMax bounds the delay between deliveries while the journal cannot be
	// written.
	unavailableDelayMax = 8 * time.Second
)

// consumer runs the asynq servers and processes the tasks that they dequeue.
type consumer struct{ m *Manager }

// start starts the servers. On an error it returns those that run.
func (c *consumer) start() ([]*asynq.Server, error) {
	cfg := c.serverConfig(c.m.queues.configured())
	servers := make([]*asynq.Server, 0, c.m.cfg.Servers)
	for range c.m.cfg.Servers {
		s := asynq.NewServerFromRedisClient(c.m.redis, cfg)
		if err := s.Start(asynq.HandlerFunc(c.process)); err != nil {
			return servers, fmt.Errorf("background: start a server: %w", err)
		}
		servers = append(servers, s)
	}
	return servers, nil
}

func (c *consumer) serverConfig(queues map[string]int) asynq.Config {
	level := asynq.ErrorLevel // asynq formats messages before it checks whether they are logged
	if c.m.log.Core().Enabled(zapcore.DebugLevel) {
		level = asynq.DebugLevel
	}
	return asynq.Config{
		Concurrency:              (c.m.cfg.Deliveries + c.m.cfg.Servers - 1) / c.m.cfg.Servers,
		Queues:                   queues,
		TaskCheckInterval:        c.m.cfg.Poll,
		DelayedTaskCheckInterval: forwardEvery,
		RetryDelayFunc:           c.redeliverIn,
		ErrorHandler:             asynq.ErrorHandlerFunc(c.scheduleRedelivery),
		ShutdownTimeout:          c.m.cfg.Grace + recordGrace,
		Logger:                   asynqLog{c.m.log.Sugar()},
		LogLevel:                 level,
	}
}

// stop shuts the servers down and returns when none holds a delivery. It does not close their
// shared client.
func (c *consumer) stop(servers []*asynq.Server) {
	var all sync.WaitGroup
	for _, s := range append(servers, c.m.queues.stop()...) {
		all.Go(s.Shutdown)
	}
	all.Wait()
}

// process is asynq's handler. A task's payload is a run id and nothing else.
func (c *consumer) process(ctx context.Context, task *asynq.Task) error {
	id, err := receipts.ParseRunID(string(task.Payload()))
	if err != nil {
		return fmt.Errorf("background: task payload is no run id: %w: %w", err, asynq.SkipRetry)
	}
	family := c.m.families[task.Type()]
	if family == nil {
		return fmt.Errorf("%w: %q: %w", ErrUnknownFamily, task.Type(), asynq.SkipRetry)
	}
	name, _ := asynq.GetTaskID(ctx)
	notificationNumber := notificationNumberOf(name)
	inFlight, first := c.m.inFlight.acquire(id, notificationNumber)
	if !first {
		// Handed off: asynq was told to deliver that run again, and this task may be the one. Newer: other
		// processes would send the newest notification again if it were acknowledged.
		if inFlight.isHandedOff() || notificationNumber > inFlight.notificationNumber {
			return errInFlight
		}
		return nil
	}
	traceCtx, span := c.m.tracing.delivery(context.WithoutCancel(ctx), task, id)
	return c.deliver(ctx, id, &delivery{
		m: c.m, traceCtx: traceCtx, span: span, family: family, run: Run{ID: id, Family: family.Name()}, notificationNumber: notificationNumber,
		inFlight: inFlight, claimTimeout: make(chan struct{}),
	})
}

// deliver runs the delivery. The delivery continues when asynq's context ends, because Redis
// was unreachable or an operator cancelled the task: asynq must not end a handler call.
func (c *consumer) deliver(ctx context.Context, id RunID, d *delivery) error {
	answer := make(chan error, 1)
	c.m.work.Add(1)
	c.m.workers.do(func() {
		defer c.m.work.Done()
		err := d.process()
		d.span.End()
		c.m.inFlight.release(id) // first: asynq may deliver the task again after the answer
		answer <- err
	})
	select {
	case err := <-answer:
		return err
	case <-d.claimTimeout:
		d.inFlight.handOff()
		return errUnavailable
	case <-ctx.Done():
		d.inFlight.handOff()
		return ctx.Err()
	}
}

// redeliverIn returns the delay after which asynq delivers a task again that was not
// acknowledged.
func (c *consumer) redeliverIn(deliveries int, cause error, _ *asynq.Task) time.Duration {
	var redelivery *redeliverAt
	switch {
	case errors.As(cause, &redelivery):
		return max(0, redelivery.at.Sub(c.m.now())) + asynqDelayMargin
	case errors.Is(cause, errInFlight):
		return busyDelay
	case errors.Is(cause, errUnavailable):
		return min(time.Second<<min(deliveries, 3), unavailableDelayMax)
	}
	return 0 // the lease of a lost worker expired: the claim decides
}

// scheduleRedelivery sets a timer for a task that asynq is about to put back.
func (c *consumer) scheduleRedelivery(ctx context.Context, _ *asynq.Task, cause error) {
	var redelivery *redeliverAt
	if !errors.As(cause, &redelivery) {
		return
	}
	id, okID := asynq.GetTaskID(ctx)
	queue, okQueue := asynq.GetQueueName(ctx)
	if okID && okQueue {
		c.m.dueTimers.schedule(queue, id, redelivery.at)
	}
}

// asynqLog writes asynq's log to ours at lower levels: asynq warns about usual answers, and its
// fatal errors are not fatal to the process.
type asynqLog struct{ log *zap.SugaredLogger }

func (l asynqLog) Debug(args ...any) { l.log.Debug(args...) }
func (l asynqLog) Info(args ...any)  { l.log.Debug(args...) }
func (l asynqLog) Warn(args ...any)  { l.log.Debug(args...) }
func (l asynqLog) Error(args ...any) { l.log.Warn(args...) }
func (l asynqLog) Fatal(args ...any) { l.log.Error(args...) }
