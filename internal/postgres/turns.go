package postgres

import (
	"context"
	"sync"
	"time"
)

// turns lets one of each name wait at a time.
type turns struct {
	mu   sync.Mutex
	held map[string]*turn
}

// turn is that of the one who waits for a name.
type turn struct {
	name  string
	began time.Time
	over  chan struct{}
	got   bool // it got through; set before over is closed
}

// take begins the turn of a name and reports true, or gives the one that is held.
func (t *turns) take(name string) (*turn, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if held, ok := t.held[name]; ok {
		return held, false
	}
	if t.held == nil {
		t.held = map[string]*turn{}
	}
	mine := &turn{name: name, began: time.Now(), over: make(chan struct{})}
	t.held[name] = mine
	return mine, true
}

func (t *turns) end(mine *turn, got bool) {
	t.mu.Lock()
	delete(t.held, mine.name)
	t.mu.Unlock()
	mine.got = got
	close(mine.over)
}

// await reports whether the one who waits got through within a time of its turn.
func (t *turn) await(ctx context.Context, patience time.Duration) bool {
	timer := time.NewTimer(time.Until(t.began.Add(patience)))
	defer timer.Stop()
	select {
	case <-t.over:
		return t.got
	case <-timer.C:
		return false
	case <-ctx.Done():
		return false
	}
}
