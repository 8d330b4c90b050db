package cpulimit

import (
	"context"
	"io"
	"runtime"
	"slices"
	"sync"
)

// Limit limits how many functions run at the same time. It is safe for concurrent use.
type Limit struct {
	mu      sync.Mutex
	free    int
	waiting map[string][]chan struct{} // by tenant, in order of arrival; closed when the waiter gets its slot
	tenants []string                   // waiting tenants, the next one first
}

// New returns a Limit of atOnce functions.
func New(atOnce int) *Limit {
	return &Limit{free: atOnce, waiting: map[string][]chan struct{}{}}
}

// OfProcess returns the limit that the whole process shares: half of the processors, and at
// least one.
var OfProcess = sync.OnceValue(func() *Limit { return New(max(1, runtime.GOMAXPROCS(0)/2)) })

// Do waits for a slot and runs f. Waiting tenants take turns; the calls of one tenant run in
// order of arrival. If the context ends first, Do returns its error without running f.
func (l *Limit) Do(ctx context.Context, tenant string, f func()) error {
	if err := l.acquire(ctx, tenant); err != nil {
		return err
	}
	defer l.release()
	f()
	return nil
}

// DoReading is Do for a function that reads. While a read waits for in, the slot is free for
// others. After the end of the context, reads return its error.
func (l *Limit) DoReading(ctx context.Context, tenant string, in io.Reader, f func(io.Reader)) error {
	if err := l.acquire(ctx, tenant); err != nil {
		return err
	}
	r := &reader{limit: l, ctx: ctx, tenant: tenant, in: in}
	defer func() {
		if r.ended == nil {
			l.release()
		}
	}()
	f(r)
	return nil
}

// reader gives its slot up during each read.
type reader struct {
	limit  *Limit
	ctx    context.Context
	tenant string
	in     io.Reader
	ended  error // set once the slot could not be taken again
}

func (r *reader) Read(p []byte) (int, error) {
	if r.ended != nil {
		return 0, r.ended
	}
	r.limit.release()
	n, err := r.in.Read(p)
	if r.ended = r.limit.acquire(r.ctx, r.tenant); r.ended != nil {
		return n, r.ended
	}
	return n, err
}

func (l *Limit) acquire(ctx context.Context, tenant string) error {
	l.mu.Lock()
	if err := ctx.Err(); err != nil || l.free > 0 {
		defer l.mu.Unlock()
		if err == nil {
			l.free--
		}
		return err
	}
	given := make(chan struct{})
	if len(l.waiting[tenant]) == 0 {
		l.tenants = append(l.tenants, tenant)
	}
	l.waiting[tenant] = append(l.waiting[tenant], given)
	l.mu.Unlock()
	select {
	case <-given:
		return nil
	case <-ctx.Done():
	}
	if !l.leave(tenant, given) {
		l.release() // the slot was given in the meantime
	}
	return ctx.Err()
}

// leave ends a wait. It returns false if the slot was already given.
func (l *Limit) leave(tenant string, given chan struct{}) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := slices.Index(l.waiting[tenant], given)
	if at < 0 {
		return false
	}
	if l.waiting[tenant] = slices.Delete(l.waiting[tenant], at, at+1); len(l.waiting[tenant]) == 0 {
		delete(l.waiting, tenant)
		l.tenants = slices.DeleteFunc(l.tenants, func(t string) bool { return t == tenant })
	}
	return true
}

// release gives the slot to the first waiter of the next tenant.
func (l *Limit) release() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.tenants) == 0 {
		l.free++
		return
	}
	tenant := l.tenants[0]
	l.tenants = slices.Delete(l.tenants, 0, 1)
	given := l.waiting[tenant][0]
	if left := slices.Delete(l.waiting[tenant], 0, 1); len(left) > 0 {
		l.waiting[tenant], l.tenants = left, append(l.tenants, tenant)
	} else {
		delete(l.waiting, tenant)
	}
	close(given)
}
