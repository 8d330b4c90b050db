package background

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

// answering is a Redis that counts what it is asked.
type answering struct {
	redis.UniversalClient
	asked  atomic.Int64
	answer func() error
}

func (a *answering) EvalSha(ctx context.Context, _ string, _ []string, _ ...any) *redis.Cmd {
	a.asked.Add(1)
	return failedCmd(ctx, a.answer())
}

func dequeue(queue string) []string {
	return []string{queue + ":pending", queue + ":paused", queue + ":active", queue + ":lease"}
}

func empty() error { return redis.Nil }
func found() error { return nil }

func TestEmptyQueueIsAskedAgainOnlyAfterAPauseOrABell(t *testing.T) {
	t.Parallel()
	now := noon
	server := &answering{answer: empty}
	i := newIdle(server, time.Millisecond, func() time.Time { return now })
	ask := func(want int64, when string) {
		t.Helper()
		if err := i.EvalSha(t.Context(), "", dequeue("a")).Err(); !errors.Is(err, redis.Nil) {
			t.Errorf("%s: %v", when, err)
		}
		if got := server.asked.Load(); got != want {
			t.Errorf("%s: asked %d times, want %d", when, got, want)
		}
	}
	ask(1, "first")
	ask(1, "at once")
	ask(1, "and again")
	i.ring()
	ask(2, "after a bell")
	now = now.Add(idlePolls * time.Millisecond)
	ask(3, "after the pause")
	server.answer = func() error { i.ring(); return redis.Nil }
	now = now.Add(idlePolls * time.Millisecond)
	ask(4, "a bell rings while it is asked")
	ask(5, "right after that")
}

func TestOnlyDequeuesAreHeldBack(t *testing.T) {
	t.Parallel()
	server := &answering{answer: empty}
	i := newIdle(server, time.Hour, time.Now)
	for range 3 {
		i.EvalSha(t.Context(), "", []string{"a:lease", "b"})
	}
	if got := server.asked.Load(); got != 3 {
		t.Errorf("asked %d times", got)
	}
}

func TestWhoWaitsGoesOnWhenATaskIsFound(t *testing.T) {
	t.Parallel()
	server := &answering{answer: empty}
	i := newIdle(server, time.Hour, time.Now)
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
			t.Error("a queue that may have a task was not asked: ", err)
		}
	}
}

func TestWaitEndsWithItsContext(t *testing.T) {
	t.Parallel()
	i := newIdle(&answering{answer: empty}, time.Hour, time.Now)
	ctx, cancel := context.WithCancel(t.Context())
	i.EvalSha(ctx, "", dequeue("a"))
	cancel()
	if err := i.EvalSha(ctx, "", dequeue("a")).Err(); !errors.Is(err, redis.Nil) {
		t.Error(err)
	}
}

func TestADequeueWithoutAnAnswerIsToldAndNoOther(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		answer error
		keys   []string
		lost   bool
	}{
		"a task":                      {nil, dequeue("a"), false},
		"none":                        {redis.Nil, dequeue("a"), false},
		"a refusal":                   {proto("OOM command not allowed"), dequeue("a"), false},
		"the connection broke":        {io.EOF, dequeue("a"), true},
		"no answer in time":           {context.DeadlineExceeded, dequeue("a"), true},
		"another script broke":        {io.EOF, []string{"a:pending"}, false},
		"a refusal that was wrapped":  {fmt.Errorf("script: %w", proto("NOSCRIPT")), dequeue("a"), false},
		"a broken connection wrapped": {fmt.Errorf("script: %w", io.EOF), dequeue("a"), true},
	} {
		lost := false
		i := newIdle(&answering{answer: func() error { return tc.answer }}, time.Millisecond, time.Now)
		i.lost = func() { lost = true }
		if err := i.EvalSha(t.Context(), "", tc.keys).Err(); !errors.Is(err, tc.answer) || lost != tc.lost {
			t.Errorf("%s: %v, lost %v", name, err, lost)
		}
	}
}

// proto is an answer of Redis that is an error.
type proto string

func (p proto) Error() string { return string(p) }
func (proto) RedisError()     {}
