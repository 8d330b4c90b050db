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

	// sequenceCostFactor bounds what a step may cost: the pause after it is this many
	// times its length, also when dead rows that can't be vacuumed slow it down.
	sequenceCostFactor = 4
)

// sequencer gives committed receipts their places in the order of events, as long
// as no other process does. It looks every second when nothing happens, and soon
// after this process has committed something.
type sequencer struct {
	journal *postgres.Journal
	signals *eventSignals
	log     *zap.Logger
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
		q.signals.broadcast(step.Tenants)
		if step.More {
			continue
		}
		if !q.wait(ctx, max(sequencePauseMin, sequenceCostFactor*took), pause, step.Holds) {
			return
		}
	}
}

// wait pauses for at least the first time, and for the second unless this process
// has committed something that it may number. It reports false when ctx ends.
func (q sequencer) wait(ctx context.Context, least, most time.Duration, holds bool) bool {
	if !sleepOr(ctx, least, nil) {
		return false
	}
	var committed <-chan struct{}
	if holds {
		committed = q.journal.Committed()
	}
	return most <= least || sleepOr(ctx, most-least, committed)
}

// sleepOr lets a time pass, or less when something arrives. It reports false when ctx
// ends.
func sleepOr(ctx context.Context, d time.Duration, wake <-chan struct{}) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-wake:
	case <-timer.C:
	}
	return true
}

// eventSignals tells readers of this process that a tenant has new events.
type eventSignals struct {
	mu      sync.Mutex
	waiting map[string]chan struct{}
}

// wait is closed when the tenant has events that are numbered after the call.
func (a *eventSignals) wait(tenant string) <-chan struct{} {
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

func (a *eventSignals) broadcast(tenants []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, t := range tenants {
		if c, ok := a.waiting[t]; ok {
			close(c)
			delete(a.waiting, t)
		}
	}
}
