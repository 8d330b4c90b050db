package postadjudication

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/recourse-dev/recourse/internal/postgres"
)

// subscribeTimeout is how long the journal may take when somebody subscribes.
const subscribeTimeout = 2 * time.Second

// OnDeadLetter calls fn for every run that dies from now on, of every tenant and in
// every process, until unsubscribe is called or the service is closed. It reads the
// order of events, not this process' own moves, so that while subscribed it misses
// no death and tells of none twice; those of one case come in the order in which they
// happened. A death that was committed just before the call may be told as well; and
// when the journal can't be reached at the call, those since Open are. What is to
// survive this process is a LetterHandler's, not fn's.
//
// Calls of one subscriber come one after the other, some moments after the commit.
// They block nobody else: a subscriber that is slow only falls behind, and one that
// panics is told of the next death all the same; both are logged, and the latter
// counted (Stats). unsubscribe ends the context of a running call and waits until it
// has returned; it must not be called by fn itself.
func (s *Service) OnDeadLetter(fn func(ctx context.Context, l DeadLetter)) (unsubscribe func()) {
	return s.subscribers.add(fn)
}

// subscribers are told of deaths, each at its own pace: each has a place of its own in
// the order of events, so that nothing is kept for a slow one.
type subscribers struct {
	journal     *postgres.Journal
	log         *zap.Logger
	startNumber int64 // the last number when the service was opened

	returned, failed atomic.Uint64

	mu     sync.Mutex
	all    map[*subscriber]struct{}
	closed bool
}

func newSubscribers(ctx context.Context, j *postgres.Journal, log *zap.Logger) (*subscribers, error) {
	last, err := j.LastPosition(ctx)
	return &subscribers{journal: j, log: log, startNumber: last, all: map[*subscriber]struct{}{}}, err
}

func (u *subscribers) add(fn func(context.Context, DeadLetter)) (unsubscribe func()) {
	readCtx, cancel := context.WithTimeout(context.Background(), subscribeTimeout)
	defer cancel()
	last, err := u.journal.LastPosition(readCtx)
	if err != nil {
		u.log.Warn("a subscriber is told of the dead letters since the start", zap.Error(err))
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

// wakeAll wakes the subscribers: a run of this process has died.
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

// close ends all subscriptions and waits for running calls, but not for longer than
// the grace: one that ignores its context is left behind.
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
			u.log.Warn("a subscriber of dead letters does not return, and is left behind")
			return
		}
	}
}

const (
	deathPage     = 100              // statements' receipts looked through at once
	slowCallAfter = 10 * time.Second // a call that takes longer is told of in the log
)

// subscriber is one of those who are told of deaths, with its place in the order of
// events.
type subscriber struct {
	set     *subscribers
	deliver func(ctx context.Context, l DeadLetter)
	after   int64
	wake    chan struct{} // somebody died in this process
	stop    context.CancelFunc
	done    chan struct{}
}

// run tells until ctx ends.
func (b *subscriber) run(ctx context.Context) {
	defer close(b.done)
	failing := false
	for pause := eventsPauseMin; ctx.Err() == nil; {
		found, next, err := b.set.journal.Deaths(ctx, b.after, deathPage)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			if !failing {
				b.set.log.Warn("deaths can't be read, trying on", zap.Error(err))
			}
			pause = eventsPauseMax
		case next > b.after:
			pause = eventsPauseMin
		}
		failing = err != nil
		for _, d := range found {
			if ctx.Err() != nil {
				return
			}
			b.deliverOne(ctx, d)
		}
		if more := next > b.after; more {
			b.after = next
			continue
		}
		if sleepOr(ctx, eventsPauseMin, nil) && b.waitWake(ctx, pause) {
			pause = eventsPauseMin
			continue
		}
		pause = min(2*pause, eventsPauseMax)
	}
}

// waitWake pauses, and reports whether it was woken.
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

// deliverOne tells of one death, on a goroutine of its own: one that ends its goroutine ends
// no more than that call.
func (b *subscriber) deliverOne(ctx context.Context, d postgres.DeathEvent) {
	l, err := deadLetterFromReceipt(d)
	if err != nil {
		b.set.failed.Add(1)
		b.set.log.Error("a death can't be told of", zap.String("receipt", d.ID()), zap.Error(err))
		return
	}
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
