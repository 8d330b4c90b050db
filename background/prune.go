package background

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"
)

const (
	// asynq trims its archive when it archives, beyond 10,000 tasks or 90 days, in one
	// script that fails for good when too many are trimmed together. These bounds
	// keep it from ever having anything to trim.
	maxArchivedTasks  = 5000
	archiveRetention  = 80 * 24 * time.Hour
	archivePause      = 20 * time.Millisecond // between pages
	deleteConcurrency = 16
	// startPruneTimeout bounds what a start waits for it: no death must meet an archive
	// that is over asynq's own bounds.
	startPruneTimeout = 15 * time.Second
)

// prunedKey is where all processes are told until which death the mirrors of a queue
// were pruned, so that none takes them for somebody else's doing.
func prunedKey(queue string) string { return "recourse:pruned:{" + queue + "}" }

// recordPrunedScript tells of a pruning, unless one that went further was told of. A script
// that has written is let write by a full Redis, so it deletes first.
//
//	KEYS prunedKey · ARGV the second of the last death whose mirror goes
var recordPrunedScript = redis.NewScript(`
local told = tonumber(redis.call("GET", KEYS[1]) or 0)
redis.call("DEL", KEYS[1])
redis.call("SET", KEYS[1], math.max(told, tonumber(ARGV[1])))
return 1`)

// pruneAtStart prunes before the first delivery, for as long as a start may wait.
func (k *taskArchive) pruneAtStart(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, startPruneTimeout)
	defer cancel()
	for _, queue := range k.m.servedQueues() {
		if err := k.prune(ctx, queue); err != nil {
			k.m.log.Warn("mirrors were not pruned at the start", zap.String("queue", queue), zap.Error(err))
			return
		}
	}
}

// prune removes the oldest mirrors while there are too many or they are too old.
func (k *taskArchive) prune(ctx context.Context, queue string) error {
	for {
		pipe := k.m.redis.Pipeline()
		count := pipe.ZCard(ctx, queueKey(queue, "archived"))
		oldest := pipe.ZRangeWithScores(ctx, queueKey(queue, "archived"), 0, archivePage-1)
		if _, err := pipe.Exec(ctx); err != nil {
			return fmt.Errorf("background: look at the mirrors of %s: %w", queue, err)
		}
		excess, cutoff := int(count.Val())-maxArchivedTasks, k.m.now().Add(-archiveRetention)
		var remove []string
		var until int64
		for i, z := range oldest.Val() {
			if i < excess || timeOfScore(z.Score).Before(cutoff) {
				remove, until = append(remove, fmt.Sprint(z.Member)), int64(z.Score)
			}
		}
		if len(remove) == 0 {
			return nil
		}
		if err := recordPrunedScript.Run(ctx, k.m.redis, []string{prunedKey(queue)}, until).Err(); err != nil {
			return fmt.Errorf("background: tell how far the mirrors of %s are pruned: %w", queue, err)
		}
		if err := k.remove(ctx, queue, remove); err != nil {
			return err
		}
		if !sleep(ctx, archivePause) {
			return ctx.Err()
		}
	}
}

// remove deletes mirrors, and the places in the archive of those that are gone
// already, as a failed trim of asynq's leaves them.
func (k *taskArchive) remove(ctx context.Context, queue string, ids []string) error {
	var (
		all    sync.WaitGroup
		failed atomic.Pointer[error]
		next   atomic.Int64
	)
	for range min(deleteConcurrency, len(ids)) {
		all.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(ids)); i = next.Add(1) - 1 {
				if err := k.m.inspector.DeleteTask(queue, ids[i]); err != nil && !isTaskError(err) {
					failed.Store(&err)
					return
				}
			}
		})
	}
	all.Wait()
	if err := failed.Load(); err != nil {
		return fmt.Errorf("background: remove mirrors of %s: %w", queue, *err)
	}
	members := make([]any, len(ids))
	for i, id := range ids {
		members[i] = id
	}
	if err := k.m.redis.ZRem(ctx, queueKey(queue, "archived"), members...).Err(); err != nil {
		return fmt.Errorf("background: remove mirrors of %s: %w", queue, err)
	}
	k.removed.Add(uint64(len(ids)))
	return nil
}

// isTaskError reports whether asynq answered about the task itself: that it is not there,
// or that it counts as active after a trim that failed half way.
func isTaskError(err error) bool {
	return errors.Is(err, asynq.ErrTaskNotFound) || errors.Is(err, asynq.ErrQueueNotFound) || strings.Contains(err.Error(), "active state")
}
