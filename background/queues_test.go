package background_test

import (
	"context"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/background"
)

// After a restart with fewer shards, runs of former queues are executed as all others, and the
// session lists those queues.
func TestRunsOfQueuesThatAreConfiguredNoMoreAreExecuted(t *testing.T) {
	t.Parallel()
	h := newFixture(t, func(context.Context, background.Attempt) background.Result { return paid })
	cfg := h.config()
	cfg.Shards = 8
	before, err := background.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = before.Close() }()
	var runs []background.Run
	queues := map[string]bool{}
	for n := range 40 {
		key := "tx" + strconv.Itoa(n) + ":release"
		r := h.submit(&worker{Manager: before}, func(r *background.Run) { r.RetryKey, r.Queue = key, before.Queue(family, key) })
		runs, queues[r.Queue] = append(runs, r), true
	}
	if len(queues) != 8 {
		t.Fatalf("40 runs are in %d queues", len(queues))
	}
	h.start(func(c *background.Config) {
		c.Shards, c.SweepEvery, c.BeatEvery = 1, 50*time.Millisecond, 20*time.Millisecond
	})
	for _, r := range runs {
		if done := h.awaitState(r.ID, background.Succeeded); done.Attempt != 1 {
			t.Errorf("run of %s: %d attempts", r.Queue, done.Attempt)
		}
	}
	h.awaitTrue("the session lists all queues", func() bool {
		sessions, err := h.journal.Sessions(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return len(sessions) == 1 && len(sessions[0].Queues) == 8 && !slices.Contains(sessions[0].Queues, "")
	})
}
