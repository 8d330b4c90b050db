package background

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"github.com/recourse-dev/recourse/internal/localredis"
)

// office is a process that only asks and wakes.
func office(t *testing.T, name string, r *localredis.Server) (*waker, *answering) {
	t.Helper()
	c := redis.NewClient(&redis.Options{Addr: r.Addr(), Password: r.Password()})
	queues := &answering{answer: empty}
	w := newWaker(c, name, newIdle(queues, time.Hour, time.Now), zap.NewNop())
	ctx, leave := context.WithCancel(context.Background())
	var all sync.WaitGroup
	all.Go(func() { w.hear(ctx) })
	t.Cleanup(func() {
		leave()
		all.Wait()
		w.close()
		_ = c.Close()
	})
	return w, queues
}

// heard returns when the process has heard so many bells and changes.
func (i *idle) heard(t *testing.T, n int) {
	t.Helper()
	for end := time.After(30 * time.Second); ; {
		i.mu.Lock()
		rung, changed := i.rung, i.changed
		i.waiting++ // so that the next one lets us know
		i.mu.Unlock()
		if rung >= n {
			return
		}
		select {
		case <-changed:
		case <-end:
			t.Fatalf("heard %d, want %d", rung, n)
		}
	}
}

// Nothing is ever found by asking again here: a server that waits goes on because
// another process rang, or never.
func TestABellWakesTheServersOfOtherProcesses(t *testing.T) {
	t.Parallel()
	r, err := localredis.Start(t.Context(), localredis.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Stop() })
	here, _ := office(t, "here", r)
	there, theirs := office(t, "there", r)
	for _, w := range []*waker{here, there} {
		w.idle.heard(t, 1) // connected
	}
	ask := func() { there.idle.EvalSha(context.Background(), "", dequeue("a")) }
	ask()
	asked := theirs.asked.Load()
	woken := make(chan struct{})
	go func() {
		for theirs.asked.Load() == asked {
			ask() // waits, then asks
		}
		close(woken)
	}()
	here.ring()
	<-woken
}

// A process that loses Redis asks often, and hears again when Redis is back.
func TestAProcessThatCannotHearAsksOften(t *testing.T) {
	t.Parallel()
	r, err := localredis.Start(t.Context(), localredis.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Stop() })
	w, _ := office(t, "here", r)
	w.idle.poll = time.Millisecond
	w.idle.heard(t, 1)
	pause := func() time.Duration {
		w.idle.mu.Lock()
		defer w.idle.mu.Unlock()
		return w.idle.pause
	}
	if got := pause(); got < idlePause {
		t.Errorf("pause %s while it hears", got)
	}
	if err := r.Kill(); err != nil {
		t.Fatal(err)
	}
	w.idle.heard(t, 2)
	if got := pause(); got != idlePolls*time.Millisecond {
		t.Errorf("pause %s while it does not hear", got)
	}
	if err := r.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	for n := 3; pause() < idlePause; n++ {
		w.idle.heard(t, n)
	}
}
