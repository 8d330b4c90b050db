package postadjudication

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/pg"
)

// Stats are counters of one process. They need no query.
type Stats struct {
	background.Stats
	Transitions Batches // transitions of existing cases that shared commits
	NewCases    Batches // new cases that shared commits

	// Unreadable counts the runs of newer versions that this process met within ten minutes and
	// can't read: they wait for a process that can.
	Unreadable int

	Subscribers      int    // current subscribers of OnDeadLetter
	SubscriberCalls  uint64 // calls that returned, since the start
	SubscriberPanics uint64 // calls that panicked, since the start

	Retention RetentionStats
	Rules     RuleStats
	Lookups   LookupStats
}

// Batches counts commits by how many rows they shared, with the bounds of BatchBounds.
type Batches = pg.BatchStats

// BatchBounds are the upper bounds of Batches, in rows, ascending.
var BatchBounds = pg.BatchSizeBuckets

// Levels measures the work that is waiting, in all processes and of all tenants.
type Levels = journal.Gauges

// Stats returns the counters of this process.
func (s *Service) Stats() Stats {
	out := Stats{Stats: s.manager.Stats()}
	out.Transitions, out.NewCases = s.journal.BatchStats()
	out.Subscribers, out.SubscriberCalls, out.SubscriberPanics = s.subscribers.count(), s.subscribers.returned.Load(), s.subscribers.failed.Load()
	out.Retention = s.pruneCounts.read()
	out.Unreadable = s.journal.UnreadableSeen()
	out.Rules, out.Lookups = s.rules.stats(), s.lookups.stats()
	return out
}

// Levels measures the work that is waiting. It reads every live run and open letter: call it
// a few times a minute at most.
func (s *Service) Levels(ctx context.Context) (l Levels, err error) {
	if l, err = s.journal.Metrics.Gauges(ctx, s.now()); err != nil {
		return l, err
	}
	unserved, err := s.Unserved(ctx)
	if err != nil {
		return l, err
	}
	for _, u := range unserved {
		l.Unserved += u.Runs
	}
	uncalled, err := s.Uncalled(ctx)
	if err != nil {
		return l, err
	}
	for _, u := range uncalled {
		l.Uncalled += u.Runs + u.Letters
	}
	l.Expiring, err = s.Expiring(ctx, expiryNotice)
	return l, err
}

// Paused returns the queues that were paused in asynq when last seen: their runs
// wait until a person unpauses them.
func (s *Service) Paused() []string { return s.manager.PausedQueues() }

// Unready is a reason why a process does no work.
type Unready = background.Unready

// Healthy returns everything that keeps this process from working, joined; nil if nothing
// does. Each error is an *Unready.
func (s *Service) Healthy(ctx context.Context) error {
	var database, redis error
	var pings sync.WaitGroup // concurrent: a database that hangs must not use up the time for Redis
	pings.Go(func() { database = s.journal.Ping(ctx) })
	pings.Go(func() { redis = s.manager.Ping(ctx) })
	pings.Wait()
	errs := []error{s.manager.Healthy()}
	if database != nil {
		errs = append(errs, &Unready{Reason: "the database can't be reached", Err: fmt.Errorf("the journal cannot be reached: %w", database)})
	}
	if redis != nil {
		errs = append(errs, &Unready{Reason: "Redis can't be reached", Err: fmt.Errorf("redis cannot be reached: %w", redis)})
	}
	return errors.Join(errs...)
}

// UnreadableRuns counts the live runs and open letters of all tenants that this program can't
// read because a newer version wrote them: they wait for a program that can.
func (s *Service) UnreadableRuns(ctx context.Context) (int64, error) {
	return s.journal.Cases.CountUnreadable(ctx)
}
