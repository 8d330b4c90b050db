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
	mirrorsMax   = 5000
	mirrorsLast  = 80 * 24 * time.Hour
	mirrorPage   = 500
	mirrorPace   = 20 * time.Millisecond // between pages
	mirrorSweeps = 10                    // sweeps from one look at the mirrors to the next
	pruners      = 16
	// firstPruning bounds what a start waits for it: no death must meet an archive
	// that is over asynq's own bounds.
	firstPruning = 15 * time.Second
)

// MirrorLedger is what the journal tells about mirrors.
type MirrorLedger interface {
	// Standings reads id, family, queue, state, letter, attempt and bell of runs. Runs
	// that do not exist are left out.
	Standings(ctx context.Context, ids []RunID) ([]Run, error)
}

// mirrors keeps asynq's archive a picture of the newest open letters: it removes
// what is old, what is too much, and what is no longer an open letter. Nothing is
// decided by what the archive holds, so several processes may do it at once, and
// what is removed is not built again.
type mirrors struct {
	m      *Manager
	pruned atomic.Uint64
	looks  atomic.Uint64            // that were carried through
	paused atomic.Pointer[[]string] // queues that somebody paused

	// Of the organ's goroutine alone:
	seen   map[string]archive // by queue
	ailing bool
}

// archive is what one queue's archive held at one look.
type archive struct {
	memory string
	ids    []string // oldest first
	died   map[string]time.Time
	place  int // where the next page of letters to be examined begins
}

func newMirrors(m *Manager) *mirrors {
	k := &mirrors{m: m, seen: map[string]archive{}}
	k.paused.Store(&[]string{})
	return k
}

// first prunes before the first delivery, for as long as a start may wait.
func (k *mirrors) first(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, firstPruning)
	defer cancel()
	for queue := range k.m.queues() {
		if err := k.prune(ctx, queue); err != nil {
			k.m.log.Warn("mirrors were not pruned at the start", zap.String("queue", queue), zap.Error(err))
			return
		}
	}
}

func (k *mirrors) run(ctx context.Context) {
	tick := time.NewTicker(mirrorSweeps * k.m.cfg.SweepEvery)
	defer tick.Stop()
	for {
		err := k.look(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil && !k.ailing:
			k.m.log.Error("mirrors cannot be kept", zap.Error(err))
		}
		k.ailing = err != nil
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

func (k *mirrors) look(ctx context.Context) error {
	var paused []string
	for queue := range k.m.queues() {
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
		before := k.seen[queue]
		if before.memory == now.memory {
			k.missed(ctx, queue, before, now)
			now.place = before.place
		}
		if err := k.examine(ctx, queue, &now); err != nil {
			return err
		}
		k.seen[queue] = now
	}
	k.tellPaused(paused)
	k.looks.Add(1)
	return nil
}

// prune removes the oldest mirrors while there are too many or they are too old.
func (k *mirrors) prune(ctx context.Context, queue string) error {
	for {
		pipe := k.m.redis.Pipeline()
		count := pipe.ZCard(ctx, queueKey(queue, "archived"))
		oldest := pipe.ZRangeWithScores(ctx, queueKey(queue, "archived"), 0, mirrorPage-1)
		if _, err := pipe.Exec(ctx); err != nil {
			return fmt.Errorf("background: look at the mirrors of %s: %w", queue, err)
		}
		excess, cutoff := int(count.Val())-mirrorsMax, k.m.now().Add(-mirrorsLast)
		var remove []string
		for i, z := range oldest.Val() {
			if i < excess || diedAt(z).Before(cutoff) {
				remove = append(remove, fmt.Sprint(z.Member))
			}
		}
		if len(remove) == 0 {
			return nil
		}
		if err := k.remove(ctx, queue, remove); err != nil {
			return err
		}
		if !sleep(ctx, mirrorPace) {
			return ctx.Err()
		}
	}
}

// remove deletes mirrors, and the places in the archive of those that are gone
// already, as a failed trim of asynq's leaves them.
func (k *mirrors) remove(ctx context.Context, queue string, ids []string) error {
	var (
		all    sync.WaitGroup
		failed atomic.Pointer[error]
		next   atomic.Int64
	)
	for range min(pruners, len(ids)) {
		all.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(ids)); i = next.Add(1) - 1 {
				if err := k.m.inspector.DeleteTask(queue, ids[i]); err != nil && !ofTask(err) {
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
	places := make([]any, len(ids))
	for i, id := range ids {
		places[i] = id
	}
	if err := k.m.redis.ZRem(ctx, queueKey(queue, "archived"), places...).Err(); err != nil {
		return fmt.Errorf("background: remove mirrors of %s: %w", queue, err)
	}
	k.pruned.Add(uint64(len(ids)))
	return nil
}

// ofTask reports whether asynq answered about the task itself: that it is not there,
// or that it counts as active after a trim that failed half way.
func ofTask(err error) bool {
	return errors.Is(err, asynq.ErrTaskNotFound) || errors.Is(err, asynq.ErrQueueNotFound) || strings.Contains(err.Error(), "active state")
}

// read lists the archive of a queue and whether somebody paused the queue.
func (k *mirrors) read(ctx context.Context, queue string) (archive, bool, error) {
	pipe := k.m.redis.Pipeline()
	all := pipe.ZRangeWithScores(ctx, queueKey(queue, "archived"), 0, -1)
	marker, server := readMarker(ctx, pipe)
	paused := pipe.Exists(ctx, queueKey(queue, "paused"))
	_, err := pipe.Exec(ctx)
	if err := but(err, server, all, paused); err != nil && !errors.Is(err, redis.Nil) {
		return archive{}, false, fmt.Errorf("background: list the mirrors of %s: %w", queue, err)
	}
	now := archive{memory: memory(marker, server), died: make(map[string]time.Time, len(all.Val()))}
	for _, z := range all.Val() {
		id := fmt.Sprint(z.Member)
		now.ids, now.died[id] = append(now.ids, id), diedAt(z)
	}
	return now, paused.Val() > 0, nil
}

// examine removes the mirrors of letters that are not open any more, and those of an
// older bell where the newest has one, one page a look.
func (k *mirrors) examine(ctx context.Context, queue string, now *archive) error {
	if now.place >= len(now.ids) {
		now.place = 0
	}
	page := now.ids[now.place:min(now.place+mirrorPage, len(now.ids))]
	now.place += len(page)
	standing, err := k.standings(ctx, page)
	if err != nil {
		return err
	}
	var stale []string
	for _, id := range page {
		run, ok := standing[runOf(id)]
		if !ok || run.State.Live() {
			continue
		}
		newest := taskID(run)
		if _, mirrored := now.died[newest]; run.Letter != LetterOpen || newest != id && mirrored {
			stale = append(stale, id)
		}
	}
	if len(stale) == 0 {
		return nil
	}
	for _, id := range stale {
		delete(now.died, id) // by us: nobody is to wonder where it went
	}
	return k.remove(ctx, queue, stale)
}

func (k *mirrors) standings(ctx context.Context, tasks []string) (map[RunID]Run, error) {
	ids := make([]RunID, 0, len(tasks))
	for _, id := range tasks {
		if run := runOf(id); !run.IsZero() {
			ids = append(ids, run)
		}
	}
	out := make(map[RunID]Run, len(ids))
	if len(ids) == 0 {
		return out, nil
	}
	runs, err := k.m.cfg.Ledger.Standings(ctx, ids)
	if err != nil {
		return nil, fmt.Errorf("background: look up mirrored letters: %w", err)
	}
	for _, r := range runs {
		out[r.ID] = r
	}
	return out, nil
}

// tellPaused logs each pause and its end once.
func (k *mirrors) tellPaused(now []string) {
	was := *k.paused.Swap(&now)
	for _, queue := range without(now, was) {
		k.m.log.Warn("a queue was paused in asynq by somebody: none of its runs is delivered until it is unpaused", zap.String("queue", queue))
	}
	for _, queue := range without(was, now) {
		k.m.log.Info("a paused queue goes on", zap.String("queue", queue))
	}
}

func without(all, these []string) (rest []string) {
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

func diedAt(z redis.Z) time.Time { return time.Unix(int64(z.Score), 0).UTC() }
