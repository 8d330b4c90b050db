package cpulimit

import (
	"context"
	"runtime"
	"sync"

	"golang.org/x/sync/semaphore"
)

// Limit bounds what is computed at the same time. It is safe for concurrent use.
type Limit struct{ running *semaphore.Weighted }

// New returns a limit of so many at once.
func New(atOnce int) *Limit { return &Limit{semaphore.NewWeighted(int64(atOnce))} }

// OfProcess returns the limit that all of a process share: half of the processors, and at
// least one.
var OfProcess = sync.OnceValue(func() *Limit { return New(max(1, runtime.GOMAXPROCS(0)/2)) })

// Do runs f when fewer than the limit run, first come, first served. It returns the context's
// error, without running f, when that ends first.
func (l *Limit) Do(ctx context.Context, f func()) error {
	if err := l.running.Acquire(ctx, 1); err != nil {
		return err
	}
	defer l.running.Release(1)
	f()
	return nil
}
