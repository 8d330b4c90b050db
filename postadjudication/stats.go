package postadjudication

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/postgres"
)

// Stats are counts of one process. They cost nothing.
type Stats struct {
	background.Stats
	Transitions Batches // moves of existing cases that shared commits
	NewCases    Batches // new cases that shared commits

	// Unreadable are the runs met within ten minutes that this process can't read, as those of
	// a newer version: they wait for one that can.
	Unreadable int

	Subscribers      int    // of OnDeadLetter, now
	SubscriberCalls  uint64 // calls of theirs that returned, since the start
	SubscriberPanics uint64 // calls of theirs that panicked, since the start

	Retention RetentionStats
	Rules     RuleStats
	Lookups   LookupStats
}

// Batches tells how many rows shared a commit, by the bounds of BatchBounds.
type Batches = postgres.BatchStats

// BatchBounds are the upper bounds of Batches, in rows, ascending.
var BatchBounds = postgres.BatchSizeBuckets

// Levels are how much there is to do, in all processes and of all tenants.
type Levels = postgres.Gauges

// Stats counts what this process did and does.
func (s *Service) Stats() Stats {
	out := Stats{Stats: s.manager.Stats()}
	out.Transitions, out.NewCases = s.journal.BatchStats()
	out.Subscribers, out.SubscriberCalls, out.SubscriberPanics = s.subscribers.count(), s.subscribers.returned.Load(), s.subscribers.failed.Load()
	out.Retention = s.pruneCounts.read()
	out.Unreadable = s.journal.UnreadableSeen()
	out.Rules, out.Lookups = s.rules.stats(), s.lookups.stats()
	return out
}

// Levels measures how much there is to do. It reads every live run and open
// letter, so that it should be asked a few times a minute, not a second.
func (s *Service) Levels(ctx context.Context) (l Levels, err error) {
	if l, err = s.journal.Gauges(ctx, s.now()); err != nil {
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

// Paused names the queues that somebody paused in asynq, as last seen: their runs
// wait until they go on. It is no fault, but a person should know.
func (s *Service) Paused() []string { return s.manager.PausedQueues() }

// Unready is why a process does no work.
type Unready = background.Unready

// Healthy tells everything that keeps this process from its work; nil when nothing
// does. Each of the errors that are joined is an *Unready.
func (s *Service) Healthy(ctx context.Context) error {
	var database, redis error
	var pings sync.WaitGroup // both at once: a database that hangs takes no time from Redis, which would be blamed too
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

// UnreadableRuns counts the live runs and open letters of all tenants that this program
// can't read, as those of a newer version: they wait for a program that can.
func (s *Service) UnreadableRuns(ctx context.Context) (int64, error) {
	return s.journal.CountUnreadable(ctx)
}
