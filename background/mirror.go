package background

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"
)

const (
	archivePage          = 500
	sweepsPerArchiveScan = 10 // sweeps from one look at the mirrors to the next
)

// ArchiveStore is what the journal tells about mirrors.
type ArchiveStore interface {
	// RunStatuses reads id, family, queue, state, letter, attempt and bell of runs. Runs
	// that do not exist are left out.
	RunStatuses(ctx context.Context, ids []RunID) ([]Run, error)
}

// taskArchive keeps asynq's archive a picture of the newest open letters: it removes
// what is old, what is too much, and what is no longer an open letter. Nothing is
// decided by what the archive holds, so several processes may do it at once, and
// what is removed is not built again.
type taskArchive struct {
	m            *Manager
	removed      atomic.Uint64
	scans        atomic.Uint64            // that were carried through
	pausedQueues atomic.Pointer[[]string] // queues that somebody paused

	// Of the organ's goroutine alone:
	snapshots map[string]archiveSnapshot // by queue
	failing   bool
}

// archiveSnapshot is what one queue's archive held at one look.
type archiveSnapshot struct {
	generation   string
	taskIDs      []string // oldest first
	diedAt       map[string]time.Time
	newestNumber map[RunID]int // the highest bell of each run that has a mirror
	prunedUntil  time.Time     // nothing that died until then is missed
	nextPage     int           // where the next page of letters to be examined begins
}

func newTaskArchive(m *Manager) *taskArchive {
	k := &taskArchive{m: m, snapshots: map[string]archiveSnapshot{}}
	k.pausedQueues.Store(&[]string{})
	return k
}

func (k *taskArchive) run(ctx context.Context) {
	tick := time.NewTicker(sweepsPerArchiveScan * k.m.cfg.SweepEvery)
	defer tick.Stop()
	for {
		err := k.scan(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil && !k.failing:
			k.m.log.Error("mirrors cannot be kept", zap.Error(err))
		}
		k.failing = err != nil
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

func (k *taskArchive) scan(ctx context.Context) error {
	var paused []string
	for _, queue := range k.m.servedQueues() {
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

// read lists the archive of a queue and whether somebody paused the queue.
func (k *taskArchive) read(ctx context.Context, queue string) (archiveSnapshot, bool, error) {
	pipe := k.m.redis.Pipeline()
	all := pipe.ZRangeWithScores(ctx, queueKey(queue, "archived"), 0, -1)
	pruned := pipe.Get(ctx, prunedKey(queue)) // after the list: what is gone from it was told of before
	marker, server := k.m.readGeneration(ctx, pipe)
	paused := pipe.Exists(ctx, queueKey(queue, "paused"))
	_, err := pipe.Exec(ctx)
	if err := ignoreInfoRefused(err, server, all, paused, pruned); err != nil && !errors.Is(err, redis.Nil) {
		return archiveSnapshot{}, false, fmt.Errorf("background: list the mirrors of %s: %w", queue, err)
	}
	until, err := pruned.Float64()
	if err != nil && !errors.Is(err, redis.Nil) {
		return archiveSnapshot{}, false, fmt.Errorf("background: how far the mirrors of %s are pruned: %w", queue, err)
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

// removeStale removes the mirrors of letters that are not open any more, and of several of
// one letter all but the newest, one page a look.
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
		delete(now.diedAt, id) // by us: nobody is to wonder where it went
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
		return nil, fmt.Errorf("background: look up mirrored letters: %w", err)
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
		k.m.log.Warn("a queue was paused in asynq by somebody: none of its runs is delivered until it is unpaused", zap.String("queue", queue))
	}
	for _, queue := range difference(was, now) {
		k.m.log.Info("a paused queue goes on", zap.String("queue", queue))
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

// timeOfScore reads a time out of a score: asynq's are whole seconds.
func timeOfScore(score float64) time.Time { return time.Unix(int64(score), 0).UTC() }
