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
	mirrorPage   = 500
	mirrorSweeps = 10 // sweeps from one look at the mirrors to the next
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
	newest map[RunID]int // the highest bell of each run that has a mirror
	pruned time.Time     // nothing that died until then is missed
	place  int           // where the next page of letters to be examined begins
}

func newMirrors(m *Manager) *mirrors {
	k := &mirrors{m: m, seen: map[string]archive{}}
	k.paused.Store(&[]string{})
	return k
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
	for _, queue := range k.m.served() {
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

// read lists the archive of a queue and whether somebody paused the queue.
func (k *mirrors) read(ctx context.Context, queue string) (archive, bool, error) {
	pipe := k.m.redis.Pipeline()
	all := pipe.ZRangeWithScores(ctx, queueKey(queue, "archived"), 0, -1)
	pruned := pipe.Get(ctx, prunedKey(queue)) // after the list: what is gone from it was told of before
	marker, server := k.m.readMarker(ctx, pipe)
	paused := pipe.Exists(ctx, queueKey(queue, "paused"))
	_, err := pipe.Exec(ctx)
	if err := but(err, server, all, paused, pruned); err != nil && !errors.Is(err, redis.Nil) {
		return archive{}, false, fmt.Errorf("background: list the mirrors of %s: %w", queue, err)
	}
	until, err := pruned.Float64()
	if err != nil && !errors.Is(err, redis.Nil) {
		return archive{}, false, fmt.Errorf("background: how far the mirrors of %s are pruned: %w", queue, err)
	}
	now := archive{
		memory: memory(marker, server), pruned: scored(until),
		died: make(map[string]time.Time, len(all.Val())), newest: make(map[RunID]int, len(all.Val())),
	}
	for _, z := range all.Val() {
		id := fmt.Sprint(z.Member)
		now.ids, now.died[id] = append(now.ids, id), scored(z.Score)
		if run := runOf(id); !run.IsZero() {
			now.newest[run] = max(now.newest[run], bellOf(id))
		}
	}
	return now, paused.Val() > 0, nil
}

// examine removes the mirrors of letters that are not open any more, and of several of
// one letter all but the newest, one page a look.
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
		if ok && !run.State.Live() && (run.Letter != LetterOpen || bellOf(id) < now.newest[run.ID]) {
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

// scored reads a time out of a score: asynq's are whole seconds.
func scored(score float64) time.Time { return time.Unix(int64(score), 0).UTC() }
