package background

import (
	"context"
	"errors"
	"fmt"
	"strings"

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
// look: the marker is gone or another, or was never seen by this process, or the
// server was started anew.
func (s *sweeper) lookAtMarker(ctx context.Context) (emptied bool, err error) {
	fresh := s.m.cfg.NewID().String()
	queues := make([]any, 0)
	for _, name := range s.m.served() {
		queues = append(queues, name)
	}
	pipe := s.m.redis.Pipeline()
	set := pipe.SetNX(ctx, markerKey, fresh, 0)
	seen, server := readMarker(ctx, pipe)
	listed := pipe.SAdd(ctx, queuesKey, queues...)
	_, err = pipe.Exec(ctx)
	if err := but(err, server, set, seen, listed); err != nil {
		return false, fmt.Errorf("background: look at the marker in Redis: %w", err)
	}
	value := memory(seen, server)
	emptied, s.memory = value != s.memory, value
	return emptied, nil
}

// remembers reports whether Redis has kept its memory since the look before the sweep.
func (s *sweeper) remembers(ctx context.Context) (bool, error) {
	pipe := s.m.redis.Pipeline()
	seen, server := readMarker(ctx, pipe)
	_, err := pipe.Exec(ctx)
	if err := but(err, server); err != nil && !errors.Is(err, redis.Nil) {
		return false, fmt.Errorf("background: look at the marker in Redis again: %w", err)
	}
	return memory(seen, server) == s.memory, nil
}

// but is the error of a pipeline, but for that a server may refuse to tell of itself.
// go-redis sets it on no command when it can't dial.
func but(err error, server *redis.StringCmd, others ...redis.Cmder) error {
	for _, c := range others {
		if err := c.Err(); err != nil {
			return err
		}
	}
	var refusal redis.Error
	if errors.As(server.Err(), &refusal) {
		return nil
	}
	return err
}

// readMarker asks for what memory needs.
func readMarker(ctx context.Context, pipe redis.Pipeliner) (marker, server *redis.StringCmd) {
	return pipe.Get(ctx, markerKey), pipe.Info(ctx, "server")
}

// memory names what Redis remembers: as long as it is the same, what was there and is
// gone was removed. A server that was started anew, or another that took over, may
// remember an older time, the marker included.
func memory(marker, server *redis.StringCmd) string {
	_, after, _ := strings.Cut(server.Val(), "\nrun_id:")
	run, _, _ := strings.Cut(after, "\r")
	return marker.Val() + " " + run
}
