package tenantlimit

import (
	"context"
	"errors"
	"io"
	"runtime"
	"slices"
	"sync"
)

// Limit limits how many functions run at the same time. It is safe for concurrent use.
type Limit struct {
	ofTenant int
	yields   bool // after each function, to others that wait for the processor

	mu      sync.Mutex
	free    int
	running map[string]int             // by tenant
	waiting map[string][]chan struct{} // by tenant, in order of arrival; closed when the waiter gets its slot
	tenants []string                   // waiting tenants, the next one first
}

// New returns a Limit of atOnce functions, and of ofTenant functions of one tenant.
func New(atOnce, ofTenant int) *Limit {
	return &Limit{ofTenant: ofTenant, free: atOnce, running: map[string]int{}, waiting: map[string][]chan struct{}{}}
}

// Processors returns the limit of what computes in this process: half of the processors, and at
// least one. One tenant may use all of them while no other waits.
var Processors = sync.OnceValue(func() *Limit {
	half := max(1, runtime.GOMAXPROCS(0)/2)
	l := New(half, half)
	l.yields = true
	return l
})

// longText is the length of a text in bytes from which InTurn waits for a slot: to read or search a shorter one takes
// less time than to wait.
const longText = 1 << 10

// InTurn runs f, which reads or searches a text of so many bytes: for a long one in a slot of Processors, so that long
// texts of one tenant do not block other tenants. Its error is that of the context, if that ends before f runs.
func InTurn(ctx context.Context, tenant string, length int, f func()) error {
	if length < longText {
		f()
		return nil
	}
	return Processors().Do(ctx, tenant, f)
}

// Do waits for a slot and runs f. Waiting tenants take turns; the calls of one tenant run in
// order of arrival. If the context ends first, Do returns its error without running f.
func (l *Limit) Do(ctx context.Context, tenant string, f func()) error {
	if err := l.acquire(ctx, tenant); err != nil {
		return err
	}
	defer l.end(tenant)
	f()
	return nil
}

// end releases the slot of a function that computed. Before, it lets others run, since Go preempts a
// goroutine after 10 ms only. The slot is held meanwhile: else the next function would run first,
// and all that wait for the slot would pass the processor among themselves.
func (l *Limit) end(tenant string) {
	if l.yields {
		Yield()
	}
	l.release(tenant)
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
			l.release(tenant)
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
	ended  error // set while the slot is not held, and once it could not be taken again
}

// errReading ends a reader whose source panicked.
var errReading = errors.New("tenantlimit: the source of a reader panicked")

func (r *reader) Read(p []byte) (int, error) {
	if r.ended != nil {
		return 0, r.ended
	}
	r.limit.end(r.tenant)
	r.ended = errReading // if in.Read panics, the slot is not released again
	n, err := r.in.Read(p)
	if r.ended = r.limit.acquire(r.ctx, r.tenant); r.ended != nil {
		return n, r.ended
	}
	return n, err
}

func (l *Limit) acquire(ctx context.Context, tenant string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	l.mu.Lock()
	if l.free > 0 && l.running[tenant] < l.ofTenant { // no other waits for this slot
		l.take(tenant)
		l.mu.Unlock()
		return nil
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
		l.release(tenant) // the slot was given in the meantime
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

// take counts a function that runs; l.mu is held.
func (l *Limit) take(tenant string) {
	l.free--
	l.running[tenant]++
}

// release gives the slot to the first waiter of the next tenant that may run one more.
func (l *Limit) release(tenant string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.free++
	if l.running[tenant]--; l.running[tenant] == 0 {
		delete(l.running, tenant)
	}
	at := slices.IndexFunc(l.tenants, func(t string) bool { return l.running[t] < l.ofTenant })
	if at < 0 {
		return
	}
	next := l.tenants[at]
	l.tenants = slices.Delete(l.tenants, at, at+1)
	given := l.waiting[next][0]
	if left := slices.Delete(l.waiting[next], 0, 1); len(left) > 0 {
		l.waiting[next], l.tenants = left, append(l.tenants, next)
	} else {
		delete(l.waiting, next)
	}
	l.take(next)
	close(given)
}
