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
