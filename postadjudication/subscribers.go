package postadjudication

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/recourse-dev/recourse/postadjudication/internal/casework"
	"github.com/recourse-dev/recourse/postadjudication/internal/eventlog"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
)

// subscribeTimeout bounds reading the last number when OnDeadLetter is called.
const subscribeTimeout = 2 * time.Second

// OnDeadLetter calls fn for every run that dies from now on, of every tenant and in every
// process, until unsubscribe is called or the service is closed. It reads the order of events,
// not this process' transitions: while subscribed it misses no death and reports none twice,
// and it reports those of one case in order. Of a death whose receipt this process can't read, fn gets
// what the rows of the run and its case state; Stats counts it, and it is logged. A death that was
// committed just before the call may be reported as well. If the journal can't be read at the call,
// deaths since Open are reported.
// Deaths are not kept for a later process: what must survive this one belongs in a LetterHandler.
//
// If the database has lost the end of the order of events (after a failover to a standby that lagged, or a restore), fn gets a
// DeadLetter that has a Gap and nothing else, and then the deaths that are in the order now, from the gap on: some may
// have been reported before, and some that were reported did not happen.
//
// Calls of one fn follow one another, some moments after the commit. They block nothing else: a
// slow fn falls behind, and a panic of fn ends only that call. Both are logged; Stats counts
// panics. unsubscribe cancels the context of a running call and waits until it returns; fn
// itself must not call unsubscribe.
func (s *Service) OnDeadLetter(fn func(ctx context.Context, l DeadLetter)) (unsubscribe func()) {
	return s.subscribers.add(fn)
}

// subscribers delivers deaths to each subscriber at its own pace: each has its own number, up to which it
// has read the order of events, so that nothing is buffered for a slow one.
type subscribers struct {
	journal     *journal.Journal
	log         *zap.Logger
	startNumber int64 // the last number of the order of events when the service was opened

	returned, failed, unreadable atomic.Uint64

	mu     sync.Mutex
	all    map[*subscriber]struct{}
	closed bool
}

func newSubscribers(ctx context.Context, j *journal.Journal, log *zap.Logger) (*subscribers, error) {
	last, err := j.Receipts.LastNumber(ctx)
	return &subscribers{journal: j, log: log, startNumber: last, all: map[*subscriber]struct{}{}}, err
}

func (u *subscribers) add(fn func(context.Context, DeadLetter)) (unsubscribe func()) {
	readCtx, cancel := context.WithTimeout(context.Background(), subscribeTimeout)
	defer cancel()
	last, err := u.journal.Receipts.LastNumber(readCtx)
	if err != nil {
		u.log.Warn("can't read the last number of the order of events, a subscriber receives all dead letters since the start", zap.Error(err))
		last = u.startNumber
	}
	ctx, stop := context.WithCancel(context.Background())
	b := &subscriber{set: u, deliver: fn, after: last, wake: make(chan struct{}, 1), stop: stop, done: make(chan struct{})}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.closed {
		stop()
	}
	u.all[b] = struct{}{}
	go b.run(ctx)
	return func() {
		stop()
		<-b.done
		u.mu.Lock()
		defer u.mu.Unlock()
		delete(u.all, b)
	}
}

// wakeAll wakes the subscribers after a run of this process has died.
func (u *subscribers) wakeAll() {
	u.mu.Lock()
	defer u.mu.Unlock()
	for b := range u.all {
		select {
		case b.wake <- struct{}{}:
		default:
		}
	}
}

func (u *subscribers) count() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return len(u.all)
}

// close ends all subscriptions and waits for running calls, for the grace at most: a call that
// ignores its context is abandoned.
func (u *subscribers) close(grace time.Duration) {
	u.mu.Lock()
	u.closed = true
	var all []*subscriber
	for b := range u.all {
		b.stop()
		all = append(all, b)
	}
	u.mu.Unlock()
	timeout := time.NewTimer(grace)
	defer timeout.Stop()
	for _, b := range all {
		select {
		case <-b.done:
		case <-timeout.C:
			u.log.Warn("a subscriber of dead letters does not return, closing without it")
			return
		}
	}
}

const (
	deathPage     = 100              // rows of the event log whose deaths are read together; a row has the receipts of one tenant that one statement wrote
	slowCallAfter = 10 * time.Second // a call that takes longer is logged
)

// subscriber is one subscription, with the number up to which it has read the order of events.
type subscriber struct {
	set     *subscribers
	deliver func(ctx context.Context, l DeadLetter)
	after   int64
	trace   eventlog.Trace
	begun   bool
	wake    chan struct{} // a run of this process died
	stop    context.CancelFunc
	done    chan struct{}
}

// run delivers deaths until ctx ends.
func (b *subscriber) run(ctx context.Context) {
	defer close(b.done)
	failing := false
	for pause := eventlog.PauseMin; ctx.Err() == nil; {
		found, next, err := b.read(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			if !failing {
				b.set.log.Warn("can't read deaths, retrying", zap.Error(err))
			}
			pause = eventlog.PauseMax
		case next != b.after:
			pause = eventlog.PauseMin
		}
		failing = err != nil
		for _, d := range found {
			if ctx.Err() != nil {
				return
			}
			b.deliverDeath(ctx, d)
		}
		if more := next != b.after; more {
			b.after = next
			continue
		}
		if casework.Sleep(ctx, eventlog.PauseMin, nil) && b.waitWake(ctx, pause) {
			pause = eventlog.PauseMin
			continue
		}
		pause = min(2*pause, eventlog.PauseMax)
	}
}

// read reads the next deaths, and delivers the gap if the database has lost the end of what was read.
func (b *subscriber) read(ctx context.Context) (found []journal.DeathReceipt, next int64, err error) {
	log := b.set.journal.Receipts
	if !b.begun {
		if _, _, err := b.trace.Check(ctx, log, b.after); err != nil {
			return nil, b.after, err
		}
		b.begun = true
	}
	if found, next, err = log.Deaths(ctx, b.after, deathPage); err != nil {
		return nil, b.after, err
	}
	var marks []journal.Mark
	if next > b.after {
		if marks, err = log.Marks(ctx, "", []int64{next}); err != nil {
			return nil, b.after, err
		}
	}
	last, lost, err := b.trace.Check(ctx, log, b.after)
	if err != nil {
		return nil, b.after, err
	}
	if lost {
		gap := &eventlog.Gap{From: Position(last), To: Position(b.after)}
		b.set.log.Error("the end of the order of events was lost, a subscriber of dead letters goes on before it", zap.Int64("from", last), zap.Int64("to", b.after))
		b.deliverOne(ctx, DeadLetter{Gap: gap})
		return nil, last, nil
	}
	for _, m := range marks {
		b.trace.Add(m)
	}
	return found, next, nil
}

// waitWake waits for d at most, and reports whether it was woken.
func (b *subscriber) waitWake(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	case <-b.wake:
		return true
	}
	return false
}

// deliverDeath calls fn for one death.
func (b *subscriber) deliverDeath(ctx context.Context, d journal.DeathReceipt) {
	l, err := deadLetterFromReceipt(d)
	if err != nil {
		b.set.unreadable.Add(1)
		b.set.log.Error("the receipt of a death can't be read, a subscriber gets the death without its particulars", zap.String("receipt", d.ID()), zap.Stringer("run", d.Run), zap.Error(err))
	}
	b.deliverOne(ctx, l)
}

// deliverOne calls fn. It uses a goroutine, so that runtime.Goexit in fn ends only that call.
func (b *subscriber) deliverOne(ctx context.Context, l DeadLetter) {
	slow := time.AfterFunc(slowCallAfter, func() {
		b.set.log.Warn("a subscriber of dead letters is slow, and falls behind", zap.Stringer("run", l.Run))
	})
	defer slow.Stop()
	returned, ended := false, make(chan struct{})
	go func() {
		defer close(ended)
		defer func() {
			if returned {
				b.set.returned.Add(1)
				return
			}
			b.set.failed.Add(1)
			b.set.log.Error("a subscriber of dead letters panicked", zap.Stringer("run", l.Run), zap.Any("panic", recover()), zap.Stack("stack"))
		}()
		b.deliver(ctx, l)
		returned = true
	}()
	<-ended
}
