package asynqredis

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"github.com/recourse-dev/recourse/internal/localredis"
)

// startWakeups starts a process that only polls and wakes.
func startWakeups(t *testing.T, name string, r *localredis.Server) (*Wakeups, *countingRedis) {
	t.Helper()
	c := redis.NewClient(&redis.Options{Addr: r.Addr(), Password: r.Password()})
	queues := &countingRedis{answer: empty}
	w := NewWakeups(c, name, NewPollThrottle(queues, time.Hour, time.Now), zap.NewNop())
	ctx, leave := context.WithCancel(context.Background())
	var all sync.WaitGroup
	all.Go(func() { w.Run(ctx) })
	t.Cleanup(func() {
		leave()
		all.Wait()
		w.Close()
		_ = c.Close()
	})
	return w, queues
}

// awaitWakeups returns when the process has received n wake-ups and changes of its connection.
func (i *PollThrottle) awaitWakeups(t *testing.T, n int) {
	t.Helper()
	for end := time.After(30 * time.Second); ; {
		i.mu.Lock()
		wakeupsSeen, changed := i.wakeups, i.changed
		i.waiting++ // so that the next one closes changed
		i.mu.Unlock()
		if wakeupsSeen >= n {
			return
		}
		select {
		case <-changed:
		case <-end:
			t.Fatalf("received %d, want %d", wakeupsSeen, n)
		}
	}
}

// Nothing is found by polling again here: a blocked server continues because another process
// published, or never.
func TestANotificationWakesTheServersOfOtherProcesses(t *testing.T) {
	t.Parallel()
	r, err := localredis.Start(t.Context(), localredis.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Stop() })
	here, _ := startWakeups(t, "here", r)
	there, theirs := startWakeups(t, "there", r)
	for _, w := range []*Wakeups{here, there} {
		w.polls.awaitWakeups(t, 1) // subscribed
	}
	poll := func() { there.polls.EvalSha(context.Background(), "", dequeue("a")) }
	poll()
	asked := theirs.polls.Load()
	woken := make(chan struct{})
	go func() {
		for theirs.polls.Load() == asked {
			poll() // blocks, then polls
		}
		close(woken)
	}()
	here.Wake()
	<-woken
}

// A process that loses Redis polls often, and receives wake-ups again when Redis is back.
func TestADisconnectedProcessPollsOften(t *testing.T) {
	t.Parallel()
	r, err := localredis.Start(t.Context(), localredis.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Stop() })
	w, _ := startWakeups(t, "here", r)
	w.polls.mu.Lock()
	w.polls.poll = time.Millisecond
	w.polls.mu.Unlock()
	w.polls.awaitWakeups(t, 1)
	pause := func() time.Duration {
		w.polls.mu.Lock()
		defer w.polls.mu.Unlock()
		return w.polls.pause
	}
	if got := pause(); got < emptyQueuePause {
		t.Errorf("pause %s while subscribed", got)
	}
	if err := r.Kill(); err != nil {
		t.Fatal(err)
	}
	w.polls.awaitWakeups(t, 2)
	if got := pause(); got != emptyQueuePolls*time.Millisecond {
		t.Errorf("pause %s while not subscribed", got)
	}
	if err := r.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	for n := 3; pause() < emptyQueuePause; n++ {
		w.polls.awaitWakeups(t, n)
	}
}
