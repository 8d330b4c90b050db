package background

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

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
	seen, server := s.m.readMarker(ctx, pipe)
	listed := pipe.SAdd(ctx, queuesKey, queues...)
	owner := s.m.redisOwner.ask(ctx, pipe)
	_, err = pipe.Exec(ctx)
	if owner != nil && errors.Is(owner.Err(), redis.Nil) && errors.Is(err, redis.Nil) {
		err = nil // it is nobody's
	}
	err = but(err, server, set, seen, listed)
	s.m.redisOwner.saw(seen.Val(), owner, err)
	if err != nil {
		return false, fmt.Errorf("background: look at the marker in Redis: %w", err)
	}
	value := memory(seen, server)
	emptied, s.memory = value != s.memory, value
	return emptied, nil
}

// remembers reports whether Redis has kept its memory since the look before the sweep.
func (s *sweeper) remembers(ctx context.Context) (bool, error) {
	pipe := s.m.redis.Pipeline()
	seen, server := s.m.readMarker(ctx, pipe)
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

// readMarker asks for what memory needs. Of a Cluster it is the masters that may have
// lost something, each by itself.
func (m *Manager) readMarker(ctx context.Context, pipe redis.Pipeliner) (marker, server *redis.StringCmd) {
	if m.nodes != nil {
		return pipe.Get(ctx, markerKey), masters(ctx, m.nodes)
	}
	return pipe.Get(ctx, markerKey), pipe.Info(ctx, "server")
}

// masters is what the servers of a Cluster that hold something tell of themselves.
func masters(ctx context.Context, cluster *redis.ClusterClient) *redis.StringCmd {
	var mu sync.Mutex
	var runs []string
	err := cluster.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
		about, err := node.Info(ctx, "server").Result()
		mu.Lock()
		defer mu.Unlock()
		runs = append(runs, runOfServer(about))
		return err
	})
	slices.Sort(runs)
	cmd := redis.NewStringCmd(ctx)
	cmd.SetVal("\nrun_id:" + strings.Join(runs, "+"))
	cmd.SetErr(err)
	return cmd
}

// runOfServer is the id of the run of a server, of what it tells of itself.
func runOfServer(about string) string {
	_, after, _ := strings.Cut(about, "\nrun_id:")
	run, _, _ := strings.Cut(after, "\r")
	return run
}

// memory names what Redis remembers: as long as it is the same, what was there and is
// gone was removed. A server that was started anew, or another that took over, may
// remember an older time, the marker included.
func memory(marker, server *redis.StringCmd) string {
	return marker.Val() + " " + runOfServer(server.Val())
}
