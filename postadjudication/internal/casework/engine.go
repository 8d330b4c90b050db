package casework

import (
	"context"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/background/lease"
)

// Engine is what decisions about cases use of the background.Manager. Its methods are those of the
// manager, which documents them.
//
// It is an interface so that of the packages of postadjudication only engine compiles what the manager's
// types lead to.
type Engine interface {
	MeasureClock(ctx context.Context) error
	Now() time.Time
	ClockSetBack() time.Time
	ClockUnchangedSince() time.Time

	Queue(family, retryKey string) string
	Queues(family string) []string
	QueueIsPaused(ctx context.Context, queue string) (bool, error)

	Notify(ctx context.Context, r background.Run) error
	NotifyAsync(ctx context.Context, r background.Run)
	Wake(id background.RunID)
	BreakerOpen(r background.Run) bool
	RemoveArchivedTasks(ctx context.Context, letters []background.Run) error
}

// Fetcher gives remote runs to workers and records their answers: background.Fetcher, which documents
// the methods. It is an interface for the same reason.
type Fetcher interface {
	Fetch(ctx context.Context, want lease.Want) ([]background.Claimed, error)
	Finish(ctx context.Context, held lease.Held, res background.Result) (background.Ended, error)
	HandBack(ctx context.Context, held lease.Held, why *background.Failure) (background.Ended, error)
	Extend(ctx context.Context, held []lease.Held, length time.Duration) ([]lease.Lease, error)
	Expire(ctx context.Context, run background.Run) (background.Run, error)
}

// NotifyRuns notifies workers of runs that were just committed, in the background. The sweeper notifies again of
// runs whose notification is lost.
func (c *Applier) NotifyRuns(ctx context.Context, created ...*background.Run) {
	if c.WithoutRedis {
		return
	}
	for _, r := range created {
		c.Engine.NotifyAsync(ctx, *r)
	}
}
