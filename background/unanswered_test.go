package background_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/localredis"
)

// Redis gives a task away, and the answer is lost. go-redis asks again and is told
// that there is none.
func TestATaskWhoseReplyWasLostIsResentAtOnce(t *testing.T) {
	t.Parallel()
	for name, broken := range map[string]error{
		"no answer in time": os.ErrDeadlineExceeded, "the connection broke": &net.OpError{Op: "read", Err: syscall.ECONNRESET}, "it ended": io.EOF,
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
			if done := h.awaitState(r.ID, background.Succeeded); done.NotificationNumber != 2 || lossy.loseReplyTo.Load() != nil {
				t.Errorf("it was done by bell %d, swallowed before: %v", done.NotificationNumber, lossy.loseReplyTo.Load() == nil)
			}
		})
	}
}

// A listener that hears nothing has lost nothing.
func TestAListenersTimeoutIsNoLostReply(t *testing.T) {
	t.Parallel()
	h := newFixture(t, func(context.Context, background.Attempt) background.Result { return paid })
	var lost atomic.Int64
	client := redis.NewClient(&redis.Options{Addr: h.redis.Addr(), Password: h.redis.Password(), ReadTimeout: time.Second, MaxRetries: -1})
	defer func() { _ = client.Close() }()
	client.AddHook(background.NewLostReplyHook(func() { lost.Add(1) }))
	subscription := client.Subscribe(background.WithListenOnly(t.Context()), "nothing")
	defer func() { _ = subscription.Close() }()
	if _, err := subscription.ReceiveTimeout(t.Context(), time.Minute); err != nil {
		t.Fatal(err)
	}
	if message, err := subscription.ReceiveTimeout(t.Context(), 10*time.Millisecond); err == nil {
		t.Errorf("heard %v", message)
	}
	if lost.Load() != 0 {
		t.Errorf("%d answers are said to be lost by who only listens", lost.Load())
	}
	if err := client.Do(t.Context(), "client", "pause", 10_000, "all").Err(); err != nil {
		t.Fatal(err)
	}
	if err := client.Get(t.Context(), "nothing").Err(); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("answered within its time: %v", err)
	}
	if lost.Load() == 0 {
		t.Error("a question without an answer in time is not noticed")
	}
}

// A connection that the pool closes while it is asked, as at a failover, loses an
// answer; one that is closed when all is answered does not.
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
		dial := background.NewLostReplyHook(func() { lost.Add(1) }).DialHook(func(_ context.Context, network, addr string) (net.Conn, error) {
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

// lossyRedis makes clients of a Redis whose first answer that names a task is lost.
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
