package background_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/background/internal/asynqredis"
	"github.com/recourse-dev/recourse/internal/localredis"
)

// Redis returns a task and the reply is lost. go-redis retries and gets an empty queue.
func TestATaskWhoseReplyWasLostIsResentAtOnce(t *testing.T) {
	t.Parallel()
	for name, broken := range map[string]error{
		"no reply in time": os.ErrDeadlineExceeded, "the connection broke": &net.OpError{Op: "read", Err: syscall.ECONNRESET}, "it ended": io.EOF,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newFixture(t, func(context.Context, background.Attempt) background.Result { return paid })
			lossy := &lossyRedis{redis: h.redis, broken: broken}
			w := h.start(func(c *background.Config) { c.Redis, c.SweepEvery = lossy, 500*time.Millisecond })
			enqueuer, err := background.New(h.config())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = enqueuer.Close() }()
			r := h.journal.Submit(background.Run{Family: family, RetryKey: "tx:release", Queue: w.Queue(family, "tx:release"), NotificationNumber: 1})
			task := []byte(r.ID.String())
			lossy.loseReplyTo.Store(&task)
			if err := enqueuer.Notify(t.Context(), r); err != nil {
				t.Fatal(err)
			}
			// Without the search for lost deliveries the run waits for longer than awaitState does. A slow delivery may be resent more than once.
			if done := h.awaitState(r.ID, background.Succeeded); done.NotificationNumber < 2 || lossy.loseReplyTo.Load() != nil {
				t.Errorf("it was done by notification %d, reply lost before: %v", done.NotificationNumber, lossy.loseReplyTo.Load() == nil)
			}
		})
	}
}

// A listener that receives nothing has lost no reply.
func TestAListenersTimeoutIsNoLostReply(t *testing.T) {
	t.Parallel()
	h := newFixture(t, func(context.Context, background.Attempt) background.Result { return paid })
	var lost atomic.Int64
	client := redis.NewClient(&redis.Options{Addr: h.redis.Addr(), Password: h.redis.Password(), ReadTimeout: time.Second, MaxRetries: -1})
	defer func() { _ = client.Close() }()
	client.AddHook(asynqredis.LostReplyHook{OnLost: func() { lost.Add(1) }})
	subscription := client.Subscribe(asynqredis.WithListenOnly(t.Context()), "nothing")
	defer func() { _ = subscription.Close() }()
	if _, err := subscription.ReceiveTimeout(t.Context(), time.Minute); err != nil {
		t.Fatal(err)
	}
	if message, err := subscription.ReceiveTimeout(t.Context(), 10*time.Millisecond); err == nil {
		t.Errorf("received %v", message)
	}
	if lost.Load() != 0 {
		t.Errorf("a listener reports %d lost replies", lost.Load())
	}
	if err := client.Do(t.Context(), "client", "pause", 10_000, "all").Err(); err != nil {
		t.Fatal(err)
	}
	if err := client.Get(t.Context(), "nothing").Err(); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("replied in time: %v", err)
	}
	if lost.Load() == 0 {
		t.Error("a command without reply in time is not reported")
	}
}

// A connection that the pool closes while a reply is awaited, as at a failover, loses the
// reply; one that is idle does not.
func TestAConnectionClosedBeforeItsReplyLosesIt(t *testing.T) {
	t.Parallel()
	server, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = server.Close() }()
	for name, tc := range map[string]struct {
		asked, answered bool
		lost            int64
	}{"never asked": {}, "asked and answered": {true, true, 0}, "asked": {true, false, 1}} {
		var lost atomic.Int64
		dial := asynqredis.LostReplyHook{OnLost: func() { lost.Add(1) }}.DialHook(func(_ context.Context, network, addr string) (net.Conn, error) {
			return net.Dial(network, addr)
		})
		conn, err := dial(t.Context(), "tcp", server.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		other, err := server.Accept()
		if err != nil {
			t.Fatal(err)
		}
		if tc.asked {
			_, err = conn.Write([]byte("?"))
		}
		if tc.answered && err == nil {
			if _, err = other.Write([]byte("!")); err == nil {
				_, err = conn.Read(make([]byte, 1))
			}
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := conn.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) || lost.Load() != tc.lost {
			t.Errorf("%s: %v, %d lost", name, err, lost.Load())
		}
		_ = other.Close()
	}
}

// lossyRedis makes clients that lose the first reply that names a task.
type lossyRedis struct {
	redis       *localredis.Server
	broken      error
	loseReplyTo atomic.Pointer[[]byte]
}

var _ asynq.RedisConnOpt = (*lossyRedis)(nil)

func (l *lossyRedis) MakeRedisClient() any {
	return redis.NewClient(&redis.Options{Addr: l.redis.Addr(), Password: l.redis.Password(), Dialer: func(_ context.Context, network, addr string) (net.Conn, error) {
		conn, err := net.Dial(network, addr)
		return lossyConn{conn, l}, err
	}})
}

type lossyConn struct {
	net.Conn
	of *lossyRedis
}

func (c lossyConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if task := c.of.loseReplyTo.Load(); task != nil && bytes.Contains(b[:n], *task) && c.of.loseReplyTo.CompareAndSwap(task, nil) {
		return 0, c.of.broken
	}
	return n, err
}

// A dequeue whose caller gave up, and that a stalled network delivers to Redis later, takes its
// task: the task is active, and no process holds it.
func TestATaskTakenByAnAbandonedDequeueIsResent(t *testing.T) {
	t.Parallel()
	h := newFixture(t, func(context.Context, background.Attempt) background.Result { return paid })
	hook := &stallingHook{abandoned: make(chan []any), released: make(chan struct{})}
	w := h.start(func(c *background.Config) {
		c.Redis, c.Shards, c.SweepEvery = hookedRedis{c.Redis, hook}, 1, 50*time.Millisecond
		c.Servers = 1 // each server blocks one dequeue, so one of two pipelines is left for the sweeper
	})
	end := sync.OnceFunc(func() { close(hook.released) })
	t.Cleanup(end)                                     // before the worker is stopped, which waits for its dequeues
	h.awaitState(h.submit(w).ID, background.Succeeded) // Redis has asynq's script then
	hook.begun.Store(true)
	dequeued := <-hook.abandoned
	enqueuer, err := background.New(h.config())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = enqueuer.Close() }()
	r := h.submit(&worker{Manager: enqueuer}, func(r *background.Run) { r.Queue = w.Queue(family, r.RetryKey) })
	for range 5 {
		h.awaitSweep(r.Queue) // until the worker has searched for lost deliveries and found none
	}
	client := redis.NewClient(&redis.Options{Addr: h.redis.Addr(), Password: h.redis.Password()})
	defer func() { _ = client.Close() }()
	if err := client.Do(t.Context(), dequeued...).Err(); err != nil {
		t.Fatalf("the late dequeue took no task: %v", err)
	}
	end()
	if done := h.awaitState(r.ID, background.Succeeded); done.NotificationNumber < 2 {
		t.Errorf("it was done by notification %d", done.NotificationNumber)
	}
}

// stallingHook abandons the first dequeue that has begun, and blocks every other one until it
// is over.
type stallingHook struct {
	begun     atomic.Bool
	abandoned chan []any // the abandoned dequeue
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

// dequeue returns asynq's dequeue command: evalsha, the script, four keys, the last of which is
// the leases.
func dequeue(cmds []redis.Cmder) []any {
	for _, cmd := range cmds {
		if args := cmd.Args(); len(args) > 6 && args[0] == "evalsha" && args[2] == 4 {
			return args
		}
	}
	return nil
}
