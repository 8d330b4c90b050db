package turns

import (
	"context"
	"runtime"
	"sync"
)

// Turns bounds what is computed at once. It is safe for concurrent use.
type Turns struct{ taken chan struct{} }

// New returns turns of so many at once.
func New(atOnce int) *Turns { return &Turns{make(chan struct{}, atOnce)} }

// OfProcess returns the turns that all of a process share.
var OfProcess = sync.OnceValue(func() *Turns { return New(max(1, runtime.GOMAXPROCS(0)/2)) })

// Do runs f in a turn. It returns the context's error, without running f, when that ends first.
func (t *Turns) Do(ctx context.Context, f func()) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case t.taken <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-t.taken }()
	f()
	return nil
}
