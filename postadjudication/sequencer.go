package postadjudication

import (
	"context"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/recourse-dev/recourse/internal/postgres"
)

// Times of the sequencer. Steps are at least sequencePauseMin apart, so that one
// step takes what many commits left.
const (
	sequencePauseMin = 20 * time.Millisecond
	sequencePauseMax = time.Second

	// sequenceShare bounds what a step may cost: the pause after it is this many
	// times its length, also when dead rows that can't be vacuumed slow it down.
	sequenceShare = 4
)

// sequencer gives committed receipts their places in the order of events, as long
// as no other process does. It looks every second when nothing happens, and soon
// after this process has committed something.
type sequencer struct {
	journal  *postgres.Journal
	arrivals *arrivals
	log      *zap.Logger
}

// run works until ctx ends.
func (q sequencer) run(ctx context.Context) {
	s := q.journal.Sequencer()
	defer func() {
		if err := s.Release(); err != nil {
			q.log.Warn("the sequencer's connection did not end well; the server ends it when it stands still", zap.Error(err))
		}
	}()
	pause, failing := sequencePauseMin, false
	for {
		begin := time.Now()
		step, err := s.Step(ctx)
		took := time.Since(begin)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			if !failing {
				q.log.Error("events can't be numbered, trying on", zap.Error(err))
			}
			pause = sequencePauseMax
		case !step.Holds:
			pause = sequencePauseMax
		case step.Rows == 0:
			pause = min(2*pause, sequencePauseMax)
		default:
			pause = sequencePauseMin
		}
		failing = err != nil
		q.arrivals.ring(step.Tenants)
		if step.More {
			continue
		}
		if !q.wait(ctx, max(sequencePauseMin, sequenceShare*took), pause, step.Holds) {
			return
		}
	}
}

// wait pauses for at least the first time, and for the second unless this process
// has committed something that it may number. It reports false when ctx ends.
func (q sequencer) wait(ctx context.Context, least, most time.Duration, holds bool) bool {
	if !pass(ctx, least, nil) {
		return false
	}
	var hurry <-chan struct{}
	if holds {
		hurry = q.journal.Committed()
	}
	return most <= least || pass(ctx, most-least, hurry)
}

// pass lets a time pass, or less when something arrives. It reports false when ctx
// ends.
func pass(ctx context.Context, d time.Duration, arrived <-chan struct{}) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-arrived:
	case <-timer.C:
	}
	return true
}

// arrivals tells readers of this process that a tenant has new events.
type arrivals struct {
	mu      sync.Mutex
	waiting map[string]chan struct{}
}

// next is closed when the tenant has events that are numbered after the call.
func (a *arrivals) next(tenant string) <-chan struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.waiting == nil {
		a.waiting = map[string]chan struct{}{}
	}
	c, ok := a.waiting[tenant]
	if !ok {
		c = make(chan struct{})
		a.waiting[tenant] = c
	}
	return c
}

func (a *arrivals) ring(tenants []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, t := range tenants {
		if c, ok := a.waiting[t]; ok {
			close(c)
			delete(a.waiting, t)
		}
	}
}
