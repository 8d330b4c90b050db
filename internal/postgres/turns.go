package postgres

import (
	"context"
	"sync"
	"time"
)

// lockWaiters lets one of each name wait at a time.
type lockWaiters struct {
	mu     sync.Mutex
	byName map[string]*lockWaiter
}

// lockWaiter is that of the one who waits for a name.
type lockWaiter struct {
	name      string
	startedAt time.Time
	done      chan struct{}
	succeeded bool // it got through; set before over is closed
}

// join begins the turn of a name and reports true, or gives the one that is held.
func (t *lockWaiters) join(name string) (*lockWaiter, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if held, ok := t.byName[name]; ok {
		return held, false
	}
	if t.byName == nil {
		t.byName = map[string]*lockWaiter{}
	}
	own := &lockWaiter{name: name, startedAt: time.Now(), done: make(chan struct{})}
	t.byName[name] = own
	return own, true
}

func (t *lockWaiters) finish(own *lockWaiter, succeeded bool) {
	t.mu.Lock()
	delete(t.byName, own.name)
	t.mu.Unlock()
	own.succeeded = succeeded
	close(own.done)
}

// await reports whether the one who waits got through within a time of its turn.
func (t *lockWaiter) await(ctx context.Context, limit time.Duration) bool {
	timer := time.NewTimer(time.Until(t.startedAt.Add(limit)))
	defer timer.Stop()
	select {
	case <-t.done:
		return t.succeeded
	case <-timer.C:
		return false
	case <-ctx.Done():
		return false
	}
}
