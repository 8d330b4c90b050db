package background

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"
)

const (
	// markerKey holds a random value for as long as Redis keeps its memory.
	markerKey = "recourse:marker"
	// queuesKey is where asynq lists its queues. A client adds a queue once and then
	// believes that it is there; without it nobody can promote or inspect a task.
	queuesKey = "asynq:queues"
)

// lookAtMarker reports whether Redis may have lost what it held since the last
// look: the marker is gone or another, or was never seen by this process.
func (s *sweeper) lookAtMarker(ctx context.Context) (emptied bool, err error) {
	fresh := s.m.cfg.NewID().String()
	queues := make([]any, 0)
	for name := range s.m.queues() {
		queues = append(queues, name)
	}
	pipe := s.m.redis.Pipeline()
	pipe.SetNX(ctx, markerKey, fresh, 0)
	seen := pipe.Get(ctx, markerKey)
	pipe.SAdd(ctx, queuesKey, queues...)
	if _, err := pipe.Exec(ctx); err != nil && !errors.Is(err, redis.Nil) {
		return false, fmt.Errorf("background: look at the marker in Redis: %w", err)
	}
	value, err := seen.Result()
	if err != nil {
		return false, fmt.Errorf("background: read the marker in Redis: %w", err)
	}
	emptied, s.marker = value != s.marker, value
	return emptied, nil
}
