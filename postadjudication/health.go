package postadjudication

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/schema"
	"github.com/recourse-dev/recourse/postadjudication/deadletter"
	"github.com/recourse-dev/recourse/postadjudication/internal/casework"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/pg"
	"github.com/recourse-dev/recourse/postadjudication/replay"
	"github.com/recourse-dev/recourse/postadjudication/retention"
	"github.com/recourse-dev/recourse/postadjudication/webhooks"
)

// Stats are counters of one process. They need no query.
type Stats struct {
	background.Stats
	Transitions Batches // transitions of existing cases that shared commits
	NewCases    Batches // new cases that shared commits

	// Unreadable counts the runs of newer versions that this process met within ten minutes and
	// can't read: they wait for a process that can. It also counts those that it could not change, as in Health.Blocked.
	Unreadable int

	Subscribers          int    // current subscribers of OnDeadLetter
	SubscriberCalls      uint64 // calls that returned, since the start
	SubscriberPanics     uint64 // calls that panicked, since the start
	SubscriberUnreadable uint64 // calls without the particulars of the death, because its receipt could not be read, since the start

	Retention retention.Stats
	Rules     replay.Stats
	Lookups   casework.LookupStats
	Webhooks  webhooks.Stats
}

// Batches counts batches, each one commit, by how many rows they had, with the bounds of BatchBounds.
type Batches = pg.BatchStats

// BatchBounds are the upper bounds of Batches, in rows, ascending.
var BatchBounds = pg.BatchSizeBuckets

// Levels measures the work that is waiting, in all processes and of all tenants.
type Levels = journal.Levels

// Health reports how this process and its servers are.
type Health struct{ s *Service }

// Health returns what this process knows of its own health and of its servers.
func (s *Service) Health() *Health { return &Health{s} }

// Stats returns the counters of this process.
func (h *Health) Stats() Stats {
	out := Stats{Stats: h.s.engine.Stats()}
	out.Transitions, out.NewCases = h.s.journal.BatchStats()
	out.Subscribers, out.SubscriberCalls, out.SubscriberPanics = h.s.subscribers.count(), h.s.subscribers.returned.Load(), h.s.subscribers.failed.Load()
	out.SubscriberUnreadable = h.s.subscribers.unreadable.Load()
	out.Retention = h.s.keeper.Stats()
	out.Unreadable = h.s.journal.UnreadableSeen()
	out.Rules, out.Lookups, out.Webhooks = h.s.rules.Stats(), h.s.lookups.Stats(), h.s.webhooks.Stats()
	return out
}

// LevelParts are the names of the parts of Levels that fail alone.
var LevelParts = []string{"runs", "dead_letters", "without_letter", "held", "break_glass", "plans_waiting", "unknown", "escrow_deltas", "breaches", "unserved", "uncalled", "expiring"}

// Levels measures the work that is waiting. It reads every live run and open letter: call it
// a few times a minute at most. Each of LevelParts fails alone: the error joins those of the parts in
// Levels.Failed, and the others are as they were read.
func (h *Health) Levels(ctx context.Context) (Levels, error) {
	l := h.s.journal.Levels.Read(ctx, h.s.now())
	l.ReadPart(ctx, "unserved", func(ctx context.Context) error {
		unserved, err := h.Unserved(ctx)
		for _, u := range unserved {
			l.Unserved += u.Runs
		}
		return err
	})
	l.ReadPart(ctx, "uncalled", func(ctx context.Context) error {
		uncalled, err := h.Uncalled(ctx)
		for _, u := range uncalled {
			l.Uncalled += u.Runs + u.Letters
		}
		return err
	})
	l.ReadPart(ctx, "expiring", func(ctx context.Context) (err error) {
		l.Expiring, err = h.s.keeper.Expiring(ctx, deadletter.ExpiresSoon)
		return err
	})
	return l, l.Err()
}

// Paused returns the queues that were paused in asynq when last seen: their runs
// wait until a person unpauses them.
func (h *Health) Paused() []string { return h.s.engine.PausedQueues() }

// Unready is a reason why a process does no work.
type Unready = background.Unready

// Check returns everything that keeps this process from working, joined; nil if nothing
// does. Each error is an *Unready.
func (h *Health) Check(ctx context.Context) error {
	var database, redis error
	var pings sync.WaitGroup // concurrent: a database that hangs must not use up the time for Redis
	pings.Go(func() { database = h.s.journal.Ping(ctx) })
	pings.Go(func() { redis = h.s.engine.Ping(ctx) })
	pings.Wait()
	errs := []error{h.s.engine.Healthy()}
	if database != nil {
		errs = append(errs, &Unready{Reason: "the database can't be reached", Err: fmt.Errorf("the journal cannot be reached: %w", database)})
	}
	if redis != nil {
		errs = append(errs, &Unready{Reason: "Redis can't be reached", Err: fmt.Errorf("redis cannot be reached: %w", redis)})
	}
	return errors.Join(errs...)
}

// Unreadable counts the live runs and open letters of all tenants that this program can't
// read because a newer version wrote them: they wait for a program that can.
func (h *Health) Unreadable(ctx context.Context) (int64, error) {
	return h.s.journal.Cases.CountUnreadable(ctx)
}

// Blocked counts the live runs and open letters of all tenants whose next receipt can't be recorded, because somebody
// wrote one beyond the head of their case by hand: they wait until the owner of the schema has removed it.
func (h *Health) Blocked(ctx context.Context) (int64, error) {
	return h.s.journal.Cases.CountBlocked(ctx)
}

// Webhooks counts the webhooks of all tenants, and those that need a person.
func (h *Health) Webhooks(ctx context.Context) (webhooks.Health, error) {
	return h.s.webhooks.Health(ctx)
}

// CanSendWebhooks reports whether this process has a key that decrypts the secrets of webhooks. Without
// one it never sends, and leaves it to other processes.
func (h *Health) CanSendWebhooks() bool { return h.s.webhooks.HasKeys() }

// Unserved is the number of live runs in a queue that no process serves.
type Unserved = journal.Unserved

// Unserved returns the queues of live runs of all tenants that no running process serves: their
// runs wait until one does. It reads every live run.
func (h *Health) Unserved(ctx context.Context) ([]Unserved, error) {
	if err := h.s.engine.MeasureClock(ctx); err != nil {
		return nil, err
	}
	return h.s.journal.Levels.Unserved(ctx, h.s.now().Add(-casework.SessionTimeout))
}

// TryWrite writes to the database what a change of a case writes, and rolls it back. Its error is an *Unready.
func (h *Health) TryWrite(ctx context.Context) error {
	if err := schema.TryWrite(ctx, h.s.journal.Reads()); err != nil {
		return &Unready{Reason: "the journal cannot be written", Err: err}
	}
	return nil
}

// CheckRedis returns an error that wraps ErrRedis if this process could not work with its
// Redis. It changes nothing. A Redis that can't be reached is no error.
func (h *Health) CheckRedis(ctx context.Context) error {
	if h.s.withoutRedis {
		return nil
	}
	return h.s.engine.CheckRedis(ctx, false)
}

// DatabaseRole is the role that a process connects to the database as.
type DatabaseRole = schema.Role

// DatabaseRole returns the role that this service connects as, with its privileges.
func (h *Health) DatabaseRole(ctx context.Context) (DatabaseRole, error) {
	return schema.ReadRole(ctx, h.s.journal.Reads())
}
