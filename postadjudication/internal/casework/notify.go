package casework

import (
	"context"

	"github.com/google/uuid"

	"github.com/recourse-dev/recourse/background"
)

// NotifyRuns notifies workers of runs that were just committed.
func (c *Applier) NotifyRuns(ctx context.Context, created ...*background.Run) {
	if c.WithoutRedis {
		return
	}
	for _, r := range created {
		c.Manager.NotifyAsync(ctx, *r)
	}
}

// NewID returns an id that is greater than those before.
func NewID() uuid.UUID { return uuid.Must(uuid.NewV7()) }
