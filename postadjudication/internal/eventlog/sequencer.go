package eventlog

import (
	"context"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/recourse-dev/recourse/postadjudication/internal/casework"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
)

// Times of the sequencer. Steps are at least sequencePauseMin apart, so that one step numbers
// the receipts of many commits.
const (
	sequencePauseMin = 20 * time.Millisecond
	sequencePauseMax = time.Second

	// sequenceCostFactor limits the cost of steps: the pause after a step is this many times
	// its duration, also when dead rows that can't be vacuumed slow it down.
	sequenceCostFactor = 4

	// sequenceCostMax bounds that pause. The server ends a session that is idle for longer than
	// journal.SequencerIdle, and the lock with it.
	sequenceCostMax = journal.SequencerIdle / 2
)

// pauseAfter returns the shortest pause after a step.
func pauseAfter(took time.Duration) time.Duration {
	return min(max(sequencePauseMin, sequenceCostFactor*took), sequenceCostMax)
}

// sequencer gives committed receipts their numbers in the order of events, in one process at a time. It runs
// every second when idle, and soon after a commit of this process.
type sequencer struct {
	journal *journal.Journal
	signals *signals
	log     *zap.Logger
}

// Sequence gives committed receipts their numbers until ctx is done.
func (l *Log) Sequence(ctx context.Context, log *zap.Logger) {
	sequencer{l.journal, &l.signals, log}.run(ctx)
}

func (q sequencer) run(ctx context.Context) {
	s := q.journal.Outbox.Sequencer()
	defer func() {
		if err := s.Release(); err != nil {
			q.log.Warn("could not release the connection of the sequencer; the database ends it when it is idle", zap.Error(err))
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
				q.log.Error("could not number events, retrying", zap.Error(err))
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
		if !q.wait(ctx, pauseAfter(took), pause, step.Holds) {
			return
		}
	}
}

// wait pauses for least, then up to most unless this process commits something that it may
// number. It reports false if ctx is done.
func (q sequencer) wait(ctx context.Context, least, most time.Duration, holds bool) bool {
	if !casework.Sleep(ctx, least, nil) {
		return false
	}
	var committed <-chan struct{}
	if holds {
		committed = q.journal.Committed()
	}
	return most <= least || casework.Sleep(ctx, most-least, committed)
}

// signals wakes readers in this process when a tenant has new events.
type signals struct {
	mu      sync.Mutex
	waiting map[string]chan struct{}
}

// wait returns a channel that is closed when events of the tenant are numbered after the call.
func (s *signals) wait(tenant string) <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.waiting == nil {
		s.waiting = map[string]chan struct{}{}
	}
	c, ok := s.waiting[tenant]
	if !ok {
		c = make(chan struct{})
		s.waiting[tenant] = c
	}
	return c
}

func (s *signals) broadcast(tenants []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range tenants {
		if c, ok := s.waiting[t]; ok {
			close(c)
			delete(s.waiting, t)
		}
	}
}
