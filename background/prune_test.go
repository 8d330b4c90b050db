package background_test

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/recourse-dev/recourse/background"
)

// One process prunes the oldest mirrors, and then removes those of letters that are not
// open any more, so that the archive is far from full when the other looks: it blames
// nobody for what was pruned.
func TestPrunedArchivedTasksAreNoTampering(t *testing.T) {
	t.Parallel()
	h := newFixture(t, func(context.Context, background.Attempt) background.Result { return paid })
	h.journal.SetReliable(true)
	client := redis.NewClient(&redis.Options{Addr: h.redis.Addr(), Password: h.redis.Password()})
	t.Cleanup(func() { _ = client.Close() })
	letters := h.addArchived(client, 5000, time.Now().Add(-time.Hour))
	every := func(pause time.Duration) func(*background.Config) {
		return func(c *background.Config) { c.Shards, c.SweepEvery = 1, pause }
	}
	seldom := h.start(every(300 * time.Millisecond))
	h.awaitArchiveScans(seldom)
	letters = append(letters, h.addArchived(client, 50, time.Now())...)
	for _, forked := range letters[1000:1100] {
		forked.Letter = background.LetterForked
		h.journal.Submit(forked)
	}
	often := h.start(every(20 * time.Millisecond))
	h.awaitTrue("mirrors are pruned, and those of closed letters removed", func() bool {
		left, err := client.ZCard(t.Context(), "asynq:{"+letters[0].Queue+"}:archived").Result()
		return err == nil && left == 5050-50-100
	})
	h.awaitArchiveScans(seldom, often)
	for _, r := range letters {
		if tampering := h.recordedTampering(r.ID); len(tampering) > 0 {
			t.Fatalf("run %s: %v", r.ID, tampering)
		}
	}
}

// addArchived adds n open letters and their mirrors, ten of each second, the first of which
// died at a time.
func (h *fixture) addArchived(client *redis.Client, n int, died time.Time) []background.Run {
	h.t.Helper()
	added := make([]background.Run, n)
	pipe := client.Pipeline()
	for i := range added {
		r := h.journal.Submit(background.Run{
			Family: family, RetryKey: died.String() + strconv.Itoa(i), Queue: family + ":0", NotificationNumber: 1,
			State: background.DeadLettered, Letter: background.LetterOpen, Reason: "final",
		})
		added[i] = r
		id := r.ID.String() + ".1"
		pipe.HSet(h.t.Context(), "asynq:{"+r.Queue+"}:t:"+id, "msg", "", "state", "archived")
		pipe.ZAdd(h.t.Context(), "asynq:{"+r.Queue+"}:archived", redis.Z{Score: float64(died.Unix() + int64(i/10)), Member: id})
	}
	if _, err := pipe.Exec(h.t.Context()); err != nil {
		h.t.Fatal(err)
	}
	return added
}

// The mirror of a letter may be an earlier bell's than the last that was rung.
func TestTheArchivedTaskOfAnEarlierNotificationIsRemoved(t *testing.T) {
	t.Parallel()
	final := refused
	final.Retry = false
	h := newFixture(t, func(context.Context, background.Attempt) background.Result { return final })
	h.journal.SetReliable(true)
	w := h.start()
	r := h.awaitState(h.submit(w).ID, background.DeadLettered)
	h.awaitTrue("it has its mirror", func() bool {
		info, err := h.inspector().GetTaskInfo(r.Queue, r.ID.String()+".1")
		return err == nil && info.State == asynq.TaskStateArchived
	})
	r.NotificationNumber = 3
	if err := w.RemoveArchivedTasks(t.Context(), []background.Run{r}); err != nil {
		t.Fatal(err)
	}
	if _, err := h.inspector().GetTaskInfo(r.Queue, r.ID.String()+".1"); !errors.Is(err, asynq.ErrTaskNotFound) {
		t.Errorf("the mirror: %v", err)
	}
}
