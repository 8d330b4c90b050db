package background

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// orphanedAfter is more than asynq is ever asked to hold the task of a due run back,
// and how often stranded tasks are looked for: where clocks differ by more, the same
// run is found again and again.
const orphanedAfter = 2 * time.Minute

// orphanedTasks tells of which runs the task says that it waits, and stands where nothing
// brings it: its queue is gone, or it waits for a time that the clock of another
// machine named. Of a queue that was lost and has new tasks it tells when those are
// through. Only runs are looked at that have been due for long: most are on their way.
// A task that is moved between two looks may be taken for stranded, and is rung twice.
func (s *sweeper) orphanedTasks(ctx context.Context, due []Run, states []*redis.StringCmd, now time.Time) (map[int]bool, error) {
	pipe := s.m.redis.Pipeline()
	queued, held := map[string]*redis.IntCmd{}, map[int]*redis.FloatCmd{}
	for i, r := range due {
		if now.Sub(r.DueAt) < deadWorkerTimeout {
			continue
		}
		switch state := states[i].Val(); state {
		case "pending":
			if key := queueKey(r.Queue, state); queued[key] == nil {
				queued[key] = pipe.LLen(ctx, key)
			}
		case "retry", "scheduled":
			held[i] = pipe.ZScore(ctx, queueKey(r.Queue, state), taskID(r))
		}
	}
	if pipe.Len() == 0 {
		return nil, nil
	}
	answers, err := pipe.Exec(ctx)
	for _, a := range answers {
		if err == nil || errors.Is(err, redis.Nil) {
			err = a.Err()
		}
	}
	if err != nil && !errors.Is(err, redis.Nil) {
		return nil, fmt.Errorf("background: look for stranded tasks: %w", err)
	}
	orphaned := map[int]bool{}
	for i, r := range due {
		if at := held[i]; at != nil {
			orphaned[i] = at.Err() != nil || time.Unix(int64(at.Val()), 0).Sub(now) > orphanedAfter
		} else if n := queued[queueKey(r.Queue, "pending")]; n != nil && states[i].Val() == "pending" {
			orphaned[i] = n.Val() == 0 && now.Sub(r.DueAt) >= deadWorkerTimeout
		}
	}
	return orphaned, nil
}
