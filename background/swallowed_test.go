package background_test

import (
	"context"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/recourse-dev/recourse/background"
)

// A question for the next task that was given up, and that a stalled network hands to
// Redis after all, takes its task along: the task is active, and nobody's.
func TestATaskTakenByAnAbandonedDequeueIsResent(t *testing.T) {
	t.Parallel()
	h := newFixture(t, func(context.Context, background.Attempt) background.Result { return paid })
	hook := &stallingHook{abandoned: make(chan []any), released: make(chan struct{})}
	w := h.start(func(c *background.Config) {
		c.Redis, c.Shards, c.SweepEvery = hookedRedis{c.Redis, hook}, 1, 50*time.Millisecond
		c.Servers = 1 // so that one of two pipelines is left to the sweeper: each server holds a question back
	})
	end := sync.OnceFunc(func() { close(hook.released) })
	t.Cleanup(end)                                     // before the worker is stopped, which waits for its questions
	h.awaitState(h.submit(w).ID, background.Succeeded) // and Redis knows asynq's script
	hook.begun.Store(true)
	dequeued := <-hook.abandoned
	enqueuer, err := background.New(h.config())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = enqueuer.Close() }()
	r := h.submit(&worker{Manager: enqueuer}, func(r *background.Run) { r.Queue = w.Queue(family, r.RetryKey) })
	for range 5 {
		h.awaitSweep(r.Queue) // until the worker has looked for lost tasks, and found none
	}
	client := redis.NewClient(&redis.Options{Addr: h.redis.Addr(), Password: h.redis.Password()})
	defer func() { _ = client.Close() }()
	if err := client.Do(t.Context(), dequeued...).Err(); err != nil {
		t.Fatalf("the late question took no task: %v", err)
	}
	end()
	if done := h.awaitState(r.ID, background.Succeeded); done.NotificationNumber != 2 {
		t.Errorf("it was done by bell %d", done.NotificationNumber)
	}
}

// stallingHook gives the first question for a task up, once it has begun, and holds every
// other back until it is over.
type stallingHook struct {
	begun     atomic.Bool
	abandoned chan []any // the question that was given up
	released  chan struct{}
}

func (s *stallingHook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (s *stallingHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (s *stallingHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		question := dequeue(cmds)
		if question == nil || !s.begun.Load() {
			return next(ctx, cmds)
		}
		select {
		case s.abandoned <- question:
			for _, cmd := range cmds {
				cmd.SetErr(os.ErrDeadlineExceeded)
			}
			return os.ErrDeadlineExceeded
		case <-s.released:
			return next(ctx, cmds)
		}
	}
}

// dequeue finds asynq's question for a task among commands: evalsha, its name, four
// keys, the last of which is of the leases.
func dequeue(cmds []redis.Cmder) []any {
	for _, cmd := range cmds {
		if args := cmd.Args(); len(args) > 6 && args[0] == "evalsha" && args[2] == 4 {
			return args
		}
	}
	return nil
}
