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

	"github.com/recourse-dev/recourse/internal/every"
)

const (
	archivePage          = 500
	sweepsPerArchiveScan = 10 // sweeps between two archive scans
)

// taskArchive keeps asynq's archive equal to the newest open dead letters: it removes archived
// tasks that are too old, too many, or no longer of an open dead letter. No decision depends on
// the archive, so several processes may prune it at once, and removed tasks are not created
// again.
type taskArchive struct {
	m            *Manager
	removed      atomic.Uint64
	scans        atomic.Uint64            // completed scans
	pausedQueues atomic.Pointer[[]string] // queues that are paused in asynq

	// Used by the goroutine of run only:
	snapshots map[string]archiveSnapshot // by queue
}

// archiveSnapshot is the content of one queue's archive at one scan.
type archiveSnapshot struct {
	generation   string
	taskIDs      []string // oldest first
	diedAt       map[string]time.Time
	newestNumber map[RunID]int // the highest notification number archived for each run
	prunedUntil  time.Time     // tasks that died until then were pruned
	nextPage     int           // start of the next page to check
}

func newTaskArchive(m *Manager) *taskArchive {
	k := &taskArchive{m: m, snapshots: map[string]archiveSnapshot{}}
	k.pausedQueues.Store(&[]string{})
	return k
}

func (k *taskArchive) run(ctx context.Context) {
	failures := every.Failures{Log: k.m.log, Failed: "archive scan failed", Again: "archive scan succeeded again"}
	every.Loop{Interval: sweepsPerArchiveScan * k.m.cfg.SweepEvery, Failures: failures}.Run(ctx, k.scan)
}

func (k *taskArchive) scan(ctx context.Context) error {
	var paused []string
	for _, queue := range k.m.queues.served() {
		if err := k.prune(ctx, queue); err != nil {
			return err
		}
		now, stopped, err := k.read(ctx, queue)
		if err != nil {
			return err
		}
		if stopped {
			paused = append(paused, queue)
		}
		before := k.snapshots[queue]
		if before.generation == now.generation {
			k.detectRemoved(ctx, queue, before, now)
			now.nextPage = before.nextPage
		}
		if err := k.removeStale(ctx, queue, &now); err != nil {
			return err
		}
		k.snapshots[queue] = now
	}
	k.logPaused(paused)
	k.scans.Add(1)
	return nil
}

// read lists the archive of a queue, and reports whether the queue is paused in asynq.
func (k *taskArchive) read(ctx context.Context, queue string) (archiveSnapshot, bool, error) {
	pipe := k.m.redis.Pipeline()
	all := pipe.ZRangeWithScores(ctx, queueKey(queue, "archived"), 0, -1)
	pruned := pipe.Get(ctx, prunedKey(queue)) // after the list: a prune is recorded before it removes
	marker, server := k.m.redisOwner.readGeneration(ctx, pipe)
	paused := pipe.Exists(ctx, queueKey(queue, "paused"))
	_, err := pipe.Exec(ctx)
	if err := ignoreInfoRefused(err, server, all, paused, pruned); err != nil && !errors.Is(err, redis.Nil) {
		return archiveSnapshot{}, false, fmt.Errorf("background: list the archived tasks of %s: %w", queue, err)
	}
	until, err := pruned.Float64()
	if err != nil && !errors.Is(err, redis.Nil) {
		return archiveSnapshot{}, false, fmt.Errorf("background: read until when the archived tasks of %s are pruned: %w", queue, err)
	}
	now := archiveSnapshot{
		generation: redisGeneration(marker, server), prunedUntil: timeOfScore(until),
		diedAt: make(map[string]time.Time, len(all.Val())), newestNumber: make(map[RunID]int, len(all.Val())),
	}
	for _, z := range all.Val() {
		id := fmt.Sprint(z.Member)
		now.taskIDs, now.diedAt[id] = append(now.taskIDs, id), timeOfScore(z.Score)
		if run := runIDOf(id); !run.IsZero() {
			now.newestNumber[run] = max(now.newestNumber[run], notificationNumberOf(id))
		}
	}
	return now, paused.Val() > 0, nil
}

// removeStale removes the archived tasks of dead letters that are no longer open, and all but
// the newest task of each run, one page per scan.
func (k *taskArchive) removeStale(ctx context.Context, queue string, now *archiveSnapshot) error {
	if now.nextPage >= len(now.taskIDs) {
		now.nextPage = 0
	}
	page := now.taskIDs[now.nextPage:min(now.nextPage+archivePage, len(now.taskIDs))]
	now.nextPage += len(page)
	statuses, err := k.runStatuses(ctx, page)
	if err != nil {
		return err
	}
	var stale []string
	for _, id := range page {
		run, ok := statuses[runIDOf(id)]
		if ok && !run.State.Live() && (run.Letter != LetterOpen || notificationNumberOf(id) < now.newestNumber[run.ID]) {
			stale = append(stale, id)
		}
	}
	if len(stale) == 0 {
		return nil
	}
	for _, id := range stale {
		delete(now.diedAt, id) // removed by us, so not tampering
	}
	return k.remove(ctx, queue, stale)
}

func (k *taskArchive) runStatuses(ctx context.Context, tasks []string) (map[RunID]Run, error) {
	ids := make([]RunID, 0, len(tasks))
	for _, id := range tasks {
		if run := runIDOf(id); !run.IsZero() {
			ids = append(ids, run)
		}
	}
	out := make(map[RunID]Run, len(ids))
	if len(ids) == 0 {
		return out, nil
	}
	runs, err := k.m.cfg.Store.RunStatuses(ctx, ids)
	if err != nil {
		return nil, fmt.Errorf("background: read the runs of archived tasks: %w", err)
	}
	for _, r := range runs {
		out[r.ID] = r
	}
	return out, nil
}

// logPaused logs each pause and its end once.
func (k *taskArchive) logPaused(now []string) {
	was := *k.pausedQueues.Swap(&now)
	for _, queue := range difference(now, was) {
		k.m.log.Warn("queue is paused in asynq, its runs are not delivered until it is unpaused", zap.String("queue", queue))
	}
	for _, queue := range difference(was, now) {
		k.m.log.Info("queue is no longer paused", zap.String("queue", queue))
	}
}

func difference(all, these []string) (rest []string) {
	gone := make(map[string]bool, len(these))
	for _, s := range these {
		gone[s] = true
	}
	for _, s := range all {
		if !gone[s] {
			rest = append(rest, s)
		}
	}
	return rest
}

// timeOfScore converts the score of asynq's archive, in whole seconds, to a time.
func timeOfScore(score float64) time.Time { return time.Unix(int64(score), 0).UTC() }

const (
	// asynq trims its archive when it archives, beyond 10,000 tasks or 90 days, in one script
	// that fails for good when it trims too many at once. These bounds leave it nothing to trim.
	maxArchivedTasks  = 5000
	archiveRetention  = 80 * 24 * time.Hour
	archivePause      = 20 * time.Millisecond // between pages
	deleteConcurrency = 16
	// startPruneTimeout bounds how long a start waits for the first prune: no task should be
	// archived while the archive exceeds asynq's own bounds.
	startPruneTimeout = 15 * time.Second
)

// prunedKey is the key that tells all processes until which time of death the archived tasks of
// a queue were pruned, so that none reports them as removed by tampering.
func prunedKey(queue string) string { return "recourse:pruned:{" + queue + "}" }

// recordPrunedScript records a prune, unless a later time is recorded. A full Redis allows
// writes of a script that has already written, so it deletes first.
//
//	KEYS prunedKey · ARGV second of death of the newest task to remove
var recordPrunedScript = redis.NewScript(`
local told = tonumber(redis.call("GET", KEYS[1]) or 0)
redis.call("DEL", KEYS[1])
redis.call("SET", KEYS[1], math.max(told, tonumber(ARGV[1])))
return 1`)

// pruneAtStart prunes before the first delivery, for at most startPruneTimeout.
func (k *taskArchive) pruneAtStart(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, startPruneTimeout)
	defer cancel()
	for _, queue := range k.m.queues.served() {
		if err := k.prune(ctx, queue); err != nil {
			k.m.log.Warn("archived tasks were not pruned at start", zap.String("queue", queue), zap.Error(err))
			return
		}
	}
}

// prune removes the oldest archived tasks while there are too many or they are too old.
func (k *taskArchive) prune(ctx context.Context, queue string) error {
	for {
		pipe := k.m.redis.Pipeline()
		count := pipe.ZCard(ctx, queueKey(queue, "archived"))
		oldest := pipe.ZRangeWithScores(ctx, queueKey(queue, "archived"), 0, archivePage-1)
		if _, err := pipe.Exec(ctx); err != nil {
			return fmt.Errorf("background: list the oldest archived tasks of %s: %w", queue, err)
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
			return fmt.Errorf("background: record until when the archived tasks of %s are pruned: %w", queue, err)
		}
		if err := k.remove(ctx, queue, remove); err != nil {
			return err
		}
		if !sleep(ctx, archivePause) {
			return ctx.Err()
		}
	}
}

// remove deletes archived tasks. It also deletes archive entries without a task, as a failed
// trim of asynq leaves them.
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
		return fmt.Errorf("background: remove archived tasks of %s: %w", queue, *err)
	}
	members := make([]any, len(ids))
	for i, id := range ids {
		members[i] = id
	}
	if err := k.m.redis.ZRem(ctx, queueKey(queue, "archived"), members...).Err(); err != nil {
		return fmt.Errorf("background: remove archived tasks of %s: %w", queue, err)
	}
	k.removed.Add(uint64(len(ids)))
	return nil
}

// isTaskError reports whether asynq's answer is about the task itself: it does not exist, or it
// counts as active after a trim that failed half way.
func isTaskError(err error) bool {
	return errors.Is(err, asynq.ErrTaskNotFound) || errors.Is(err, asynq.ErrQueueNotFound) || strings.Contains(err.Error(), "active state")
}

// archivedNumbersBack is how many notification numbers of a run are tried to find its archived
// task.
const archivedNumbersBack = 8

// RemoveArchivedTasks removes the archived tasks of closed dead letters from asynq's archive at
// once. It tries the newest notification numbers of each run, because a resent notification may
// not have been delivered yet when the run died. The archive scan removes what is left, one
// page at a time.
func (m *Manager) RemoveArchivedTasks(ctx context.Context, letters []Run) error {
	byQueue := map[string][]string{}
	for _, r := range letters {
		for first := max(0, r.NotificationNumber-archivedNumbersBack+1); r.NotificationNumber >= first; r.NotificationNumber-- {
			byQueue[m.taskQueue(r)] = append(byQueue[m.taskQueue(r)], taskID(r))
		}
	}
	var errs []error
	for queue, ids := range byQueue {
		errs = append(errs, m.archive.remove(ctx, queue, ids))
	}
	return errors.Join(errs...)
}
