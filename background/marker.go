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

// checkGeneration reports whether Redis may have lost what it held since the last
// look: the marker is gone or another, or was never seen by this process, or the
// server was started anew.
func (s *sweeper) checkGeneration(ctx context.Context) (dataLost bool, err error) {
	fresh := s.m.cfg.NewID().String()
	queues := make([]any, 0)
	for _, name := range s.m.servedQueues() {
		queues = append(queues, name)
	}
	pipe := s.m.redis.Pipeline()
	set := pipe.SetNX(ctx, markerKey, fresh, 0)
	seen, server := s.m.readGeneration(ctx, pipe)
	listed := pipe.SAdd(ctx, queuesKey, queues...)
	owner := s.m.redisOwner.readOwner(ctx, pipe)
	_, err = pipe.Exec(ctx)
	if owner != nil && errors.Is(owner.Err(), redis.Nil) && errors.Is(err, redis.Nil) {
		err = nil // it is nobody's
	}
	err = ignoreInfoRefused(err, server, set, seen, listed)
	s.m.redisOwner.observe(seen.Val(), owner, err)
	if err != nil {
		return false, fmt.Errorf("background: look at the marker in Redis: %w", err)
	}
	value := redisGeneration(seen, server)
	dataLost, s.generation = value != s.generation, value
	return dataLost, nil
}

// sameGeneration reports whether Redis has kept its memory since the look before the sweep.
func (s *sweeper) sameGeneration(ctx context.Context) (bool, error) {
	pipe := s.m.redis.Pipeline()
	seen, server := s.m.readGeneration(ctx, pipe)
	_, err := pipe.Exec(ctx)
	if err := ignoreInfoRefused(err, server); err != nil && !errors.Is(err, redis.Nil) {
		return false, fmt.Errorf("background: look at the marker in Redis again: %w", err)
	}
	return redisGeneration(seen, server) == s.generation, nil
}

// ignoreInfoRefused is the error of a pipeline, but for that a server may refuse to tell of itself.
// go-redis sets it on no command when it can't dial.
func ignoreInfoRefused(err error, server *redis.StringCmd, others ...redis.Cmder) error {
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

// readGeneration asks for what memory needs. Of a Cluster it is the masters that may have
// lost something, each by itself.
func (m *Manager) readGeneration(ctx context.Context, pipe redis.Pipeliner) (marker, server *redis.StringCmd) {
	if m.nodes != nil {
		return pipe.Get(ctx, markerKey), masterRunIDs(ctx, m.nodes)
	}
	return pipe.Get(ctx, markerKey), pipe.Info(ctx, "server")
}

// masterRunIDs is what the servers of a Cluster that hold something tell of themselves.
func masterRunIDs(ctx context.Context, cluster *redis.ClusterClient) *redis.StringCmd {
	var mu sync.Mutex
	var runs []string
	err := cluster.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
		info, err := node.Info(ctx, "server").Result()
		mu.Lock()
		defer mu.Unlock()
		runs = append(runs, serverRunID(info))
		return err
	})
	slices.Sort(runs)
	cmd := redis.NewStringCmd(ctx)
	cmd.SetVal("\nrun_id:" + strings.Join(runs, "+"))
	cmd.SetErr(err)
	return cmd
}

// serverRunID is the id of the run of a server, of what it tells of itself.
func serverRunID(info string) string {
	_, after, _ := strings.Cut(info, "\nrun_id:")
	run, _, _ := strings.Cut(after, "\r")
	return run
}

// redisGeneration names what Redis remembers: as long as it is the same, what was there and is
// gone was removed. A server that was started anew, or another that took over, may
// remember an older time, the marker included.
func redisGeneration(marker, server *redis.StringCmd) string {
	return marker.Val() + " " + serverRunID(server.Val())
}
