package openwop

import (
	"context"
	"sync"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication"
)

// followers wake those who wait for news of runs. All waiting requests of a tenant share one reader of its
// events, so that a request costs no query while nothing happens to its run.
type followers struct {
	service  *postadjudication.Service
	stopping context.Context

	mu       sync.Mutex
	byTenant map[string]*follower
}

// follower reads the events of a tenant while anybody waits for one of its runs.
type follower struct {
	waiting map[background.RunID]map[chan struct{}]bool
	begun   chan struct{} // closed when it is known where the reader begins
	cancel  context.CancelFunc
}

// wait returns a channel that receives after each event of a run that is readable after the call. The
// caller must call done.
func (f *followers) wait(ctx context.Context, tenant string, run background.RunID) (news <-chan struct{}, done func()) {
	c := make(chan struct{}, 1)
	f.mu.Lock()
	of := f.byTenant[tenant]
	if of == nil {
		reading, cancel := context.WithCancel(f.stopping)
		of = &follower{waiting: map[background.RunID]map[chan struct{}]bool{}, begun: make(chan struct{}), cancel: cancel}
		f.byTenant[tenant] = of
		go f.read(reading, tenant, of)
	}
	if of.waiting[run] == nil {
		of.waiting[run] = map[chan struct{}]bool{}
	}
	of.waiting[run][c] = true
	f.mu.Unlock()
	select {
	case <-of.begun:
	case <-ctx.Done():
	}
	return c, func() { f.leave(tenant, run, of, c) }
}

// leave ends the reader if nobody waits any more.
func (f *followers) leave(tenant string, run background.RunID, of *follower, c chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(of.waiting[run], c)
	if len(of.waiting[run]) == 0 {
		delete(of.waiting, run)
	}
	if len(of.waiting) == 0 {
		of.cancel()
		if f.byTenant[tenant] == of {
			delete(f.byTenant, tenant)
		}
	}
}

const (
	followPage = 500
	// followPause is how long the reader waits after an error, such as while Postgres restarts.
	followPause = 500 * time.Millisecond
)

// read wakes those who wait until ctx is done. After an error it begins again at the newest event and wakes
// everybody: they read for themselves what it may have missed.
func (f *followers) read(ctx context.Context, tenant string, of *follower) {
	after, err := f.service.NewestPosition(ctx, tenant)
	reader := f.service.Follow(tenant, after)
	close(of.begun)
	for ctx.Err() == nil {
		var found []postadjudication.Event
		if err == nil {
			found, _, err = reader.Next(ctx, followPage, func(_ context.Context, _ string, read func()) error { read(); return nil })
		}
		if err == nil && len(found) == 1 && found[0].Gap != nil {
			f.wakeAll(of)
			continue
		}
		if err == nil {
			f.wake(of, found)
			continue
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(followPause):
		}
		if after, err = f.service.NewestPosition(ctx, tenant); err == nil {
			reader = f.service.Follow(tenant, after)
			f.wakeAll(of)
		}
	}
}

func (f *followers) wake(of *follower, found []postadjudication.Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, e := range found {
		for c := range of.waiting[e.Run] {
			signal(c)
		}
	}
}

func (f *followers) wakeAll(of *follower) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, all := range of.waiting {
		for c := range all {
			signal(c)
		}
	}
}

// signal wakes a waiter that has not been woken since it last looked.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
