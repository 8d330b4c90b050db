package asynqredis

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// countingRedis is a Redis that counts its scripts.
type countingRedis struct {
	redis.UniversalClient
	polls  atomic.Int64
	answer func() error
}

func (a *countingRedis) EvalSha(ctx context.Context, _ string, _ []string, _ ...any) *redis.Cmd {
	a.polls.Add(1)
	return failedCmd(ctx, a.answer())
}

func dequeue(queue string) []string {
	return []string{queue + ":pending", queue + ":paused", queue + ":active", queue + ":lease"}
}

func empty() error { return redis.Nil }
func found() error { return nil }

func TestEmptyQueueIsPolledAgainOnlyAfterAPauseOrAWakeup(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	server := &countingRedis{answer: empty}
	i := NewPollThrottle(server, time.Millisecond, func() time.Time { return now })
	poll := func(want int64, when string) {
		t.Helper()
		if err := i.EvalSha(t.Context(), "", dequeue("a")).Err(); !errors.Is(err, redis.Nil) {
			t.Errorf("%s: %v", when, err)
		}
		if got := server.polls.Load(); got != want {
			t.Errorf("%s: polled %d times, want %d", when, got, want)
		}
	}
	poll(1, "first")
	poll(1, "at once")
	poll(1, "and again")
	i.wake()
	poll(2, "after a wake-up")
	now = now.Add(emptyQueuePolls * time.Millisecond)
	poll(3, "after the pause")
	server.answer = func() error { i.wake(); return redis.Nil }
	now = now.Add(emptyQueuePolls * time.Millisecond)
	poll(4, "a wake-up arrives during the poll")
	poll(5, "right after that")
}

func TestOnlyDequeuesAreHeldBack(t *testing.T) {
	t.Parallel()
	server := &countingRedis{answer: empty}
	i := NewPollThrottle(server, time.Hour, time.Now)
	for range 3 {
		i.EvalSha(t.Context(), "", []string{"a:lease", "b"})
	}
	if got := server.polls.Load(); got != 3 {
		t.Errorf("polled %d times", got)
	}
}

func TestWaitersContinueWhenATaskIsFound(t *testing.T) {
	t.Parallel()
	server := &countingRedis{answer: empty}
	i := NewPollThrottle(server, time.Hour, time.Now)
	i.EvalSha(t.Context(), "", dequeue("a"))
	done := make(chan error, 2)
	for range 2 { // one watches, one only waits
		go func() { done <- i.EvalSha(t.Context(), "", dequeue("a")).Err() }()
	}
	for waiting := 0; waiting < 2; {
		runtime.Gosched()
		i.mu.Lock()
		waiting = i.waiting
		i.mu.Unlock()
	}
	server.answer = found
	if err := i.EvalSha(t.Context(), "", dequeue("b")).Err(); err != nil {
		t.Error(err)
	}
	for range 2 {
		if err := <-done; err != nil {
			t.Error("a queue that may have a task was not polled: ", err)
		}
	}
}

func TestWaitEndsWithItsContext(t *testing.T) {
	t.Parallel()
	i := NewPollThrottle(&countingRedis{answer: empty}, time.Hour, time.Now)
	ctx, cancel := context.WithCancel(t.Context())
	i.EvalSha(ctx, "", dequeue("a"))
	cancel()
	if err := i.EvalSha(ctx, "", dequeue("a")).Err(); !errors.Is(err, redis.Nil) {
		t.Error(err)
	}
}

func TestOnlyADequeueWithoutReplyIsReportedLost(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		answer error
		keys   []string
		lost   bool
	}{
		"a task":                      {nil, dequeue("a"), false},
		"none":                        {redis.Nil, dequeue("a"), false},
		"an error reply":              {redisError("OOM command not allowed"), dequeue("a"), false},
		"the connection broke":        {io.EOF, dequeue("a"), true},
		"no reply in time":            {context.DeadlineExceeded, dequeue("a"), true},
		"another script broke":        {io.EOF, []string{"a:pending"}, false},
		"a wrapped error reply":       {fmt.Errorf("script: %w", redisError("NOSCRIPT")), dequeue("a"), false},
		"a wrapped broken connection": {fmt.Errorf("script: %w", io.EOF), dequeue("a"), true},
	} {
		lost := false
		i := NewPollThrottle(&countingRedis{answer: func() error { return tc.answer }}, time.Millisecond, time.Now)
		i.OnLostReply = func() { lost = true }
		if err := i.EvalSha(t.Context(), "", tc.keys).Err(); !errors.Is(err, tc.answer) || lost != tc.lost {
			t.Errorf("%s: %v, lost %v", name, err, lost)
		}
	}
}

// redisError is an error reply of Redis.
type redisError string

func (p redisError) Error() string { return string(p) }
func (redisError) RedisError()     {}
