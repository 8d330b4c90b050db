package pg

import (
	"context"
	"database/sql"
	"errors"
	"strconv"
	"sync"
	"time"
)

// A SlowPath is a few connections of one purpose for statements that may wait for a lock, and give
// up after LockTimeout on one that another transaction holds. Purposes that must not queue behind
// each other have one each.
type SlowPath struct {
	DB        *sql.DB
	slots     chan struct{}
	waiters   lockWaiters
	busyAfter time.Duration // how long the first waiter for a lock may wait before the others get errBusy
	errBusy   error         // of a row that was not written, because another transaction holds its lock
}

const (
	SlowPathConns = 4               // of each slow path
	LockTimeout   = 2 * time.Second // also the lock_timeout of its connections
)

// NewSlowPath opens the connections of a slow path. Rows that are not written because another
// transaction holds their lock get errBusy.
func NewSlowPath(databaseURL, purpose string, idle *IdleTimeout, busyAfter time.Duration, errBusy error) (*SlowPath, error) {
	settings := map[string]string{"lock_timeout": strconv.FormatInt(LockTimeout.Milliseconds(), 10)}
	for k, v := range PlannerSettings {
		settings[k] = v
	}
	db, err := OpenPool(databaseURL, PoolConfig{Purpose: purpose, MaxConns: SlowPathConns, Settings: settings, Dialer: idle.Dialer(BatchIdleLimit)})
	return &SlowPath{DB: db, slots: make(chan struct{}, SlowPathConns), busyAfter: busyAfter, errBusy: errBusy}, err
}

// Acquire blocks until a slot is free, for at most LockTimeout. It reports whether it got
// one.
func (path *SlowPath) Acquire(ctx context.Context) bool {
	timer := time.NewTimer(LockTimeout)
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

// Release frees the slot that Acquire took.
func (path *SlowPath) Release() { <-path.slots }

// noSlotPause is the pause of a row that found no free slot, before it is tried again
// without waiting for the lock.
const noSlotPause = 20 * time.Millisecond

// WaitForLock writes a row whose lock another transaction holds. The first row for a lock calls wait, which
// waits for the lock. Rows that arrive meanwhile wait for the first one: they call try once it has got the lock,
// and return errBusy if it does not get it within busyAfter. Unlike Acquire, WaitForLock does not wait for a
// slot. If none is free, the first row calls try after a pause, and the others call it after that, whether or not
// the first one was written: nobody waits for the lock then. So an open transaction delays no row but those that
// need its lock.
func WaitForLock[R any](ctx context.Context, path *SlowPath, lock string, try, wait func() (R, error)) (v R, err error) {
	w, first := path.waiters.join(lock)
	if !first {
		if !w.await(ctx, path.busyAfter) {
			return v, path.errBusy
		}
		return try()
	}
	defer func() { path.waiters.finish(w, !errors.Is(err, path.errBusy)) }()
	select {
	case path.slots <- struct{}{}:
		defer path.Release()
		return wait()
	default:
	}
	select {
	case <-ctx.Done():
		return v, path.errBusy
	case <-time.After(noSlotPause):
		return try()
	}
}

// lockWaiters admits one waiter per lock at a time.
type lockWaiters struct {
	mu     sync.Mutex
	byLock map[string]*lockWaiter
}

// lockWaiter is the wait for one lock.
type lockWaiter struct {
	lock      string
	startedAt time.Time
	done      chan struct{}
	mayTry    bool // the first waiter got the lock, or had no slot and did not wait for it; set before done is closed
}

// join returns the waiter for a lock, and reports true if the caller is the first and has to
// finish it.
func (t *lockWaiters) join(lock string) (*lockWaiter, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if held, ok := t.byLock[lock]; ok {
		return held, false
	}
	if t.byLock == nil {
		t.byLock = map[string]*lockWaiter{}
	}
	w := &lockWaiter{lock: lock, startedAt: time.Now(), done: make(chan struct{})}
	t.byLock[lock] = w
	return w, true
}

func (t *lockWaiters) finish(w *lockWaiter, mayTry bool) {
	t.mu.Lock()
	delete(t.byLock, w.lock)
	t.mu.Unlock()
	w.mayTry = mayTry
	close(w.done)
}

// await blocks until the first waiter has finished, until limit after it started at most. It reports whether the
// caller may try to write its row.
func (t *lockWaiter) await(ctx context.Context, limit time.Duration) bool {
	timer := time.NewTimer(time.Until(t.startedAt.Add(limit)))
	defer timer.Stop()
	select {
	case <-t.done:
		return t.mayTry
	case <-timer.C:
		return false
	case <-ctx.Done():
		return false
	}
}
