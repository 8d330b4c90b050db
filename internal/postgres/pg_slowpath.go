package postgres

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"time"
)

// A slowPath is a few connections for lone rows, whose statements give up a lock that
// another transaction holds after lockTimeout. There are three, so that none stands in the
// queue of another: submissions that wait for a foreign transaction, moves that do, and
// transactions that write more than a move, which wait for no case.
type slowPath struct {
	db        *sql.DB
	slots     chan struct{}
	waiters   lockWaiters
	busyAfter time.Duration // how long the first of a name may wait before the others are told that it is busy
}

const (
	slowPathConns = 4
	lockTimeout   = 2 * time.Second // also the lock_timeout of its connections

	// submitBusyAfter is longer than the statements of other processes take, which lock an
	// escrow in passing; who holds it for longer is a caller that may hold it for any time.
	submitBusyAfter     = lockTimeout / 2
	transitionBusyAfter = 2 * lockTimeout
)

func newSlowPath(databaseURL, purpose string, idle *idleTimeout, busyAfter time.Duration) (*slowPath, error) {
	settings := map[string]string{"lock_timeout": "2000"}
	for k, v := range plannerSettings {
		settings[k] = v
	}
	db, err := openPool(databaseURL, poolConfig{purpose: purpose, maxConns: slowPathConns, settings: settings, dialer: idle.dialer(batchIdleLimit)})
	return &slowPath{db: db, slots: make(chan struct{}, slowPathConns), busyAfter: busyAfter}, err
}

// acquire waits for room as long as a statement would wait for its lock. It reports
// false when there was none.
func (path *slowPath) acquire(ctx context.Context) bool {
	timer := time.NewTimer(lockTimeout)
	defer timer.Stop()
	select {
	case path.slots <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	case <-timer.C:
		return false
	}
}

func (path *slowPath) release() { <-path.slots }

// noSlotPause is how long a row that finds no room to wait in pauses before it is tried
// again without waiting.
const noSlotPause = 20 * time.Millisecond

// serialize writes a row that another transaction kept out: behind whatever is locked by a
// name. One row of a name waits for the lock, by the statement wait; those that come
// meanwhile are ErrBusy when it does not get through soon, and are tried again when it
// does. Nobody waits for room in the lane: without room a row is tried again as it was,
// so that whoever waits for an open transaction keeps only that one's rows waiting.
//
// lost means to read again, to decide again and to come again.
func (path *slowPath) serialize(ctx context.Context, name string, try, wait func() (result, error)) (v result, err error) {
	own, first := path.waiters.join(name)
	if !first {
		if !own.await(ctx, path.busyAfter) {
			return conflict, ErrBusy
		}
		return try()
	}
	defer func() { path.waiters.finish(own, !errors.Is(err, ErrBusy)) }()
	select {
	case path.slots <- struct{}{}:
		defer path.release()
		return wait()
	default:
	}
	select {
	case <-ctx.Done():
		return conflict, ErrBusy
	case <-time.After(noSlotPause):
		return try()
	}
}

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
