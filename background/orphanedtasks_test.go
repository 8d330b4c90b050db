package background_test

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/recourse-dev/recourse/background"
)

// A run's task is queued, but its queue was evicted, or it waits for a time set by a clock far
// ahead.
func TestAnOrphanedTaskIsResent(t *testing.T) {
	t.Parallel()
	for name, orphan := range map[string]func(ctx context.Context, c *redis.Client, queue, task string) error{
		"its queue was deleted": func(ctx context.Context, c *redis.Client, queue, _ string) error {
			return c.Del(ctx, "asynq:{"+queue+"}:pending").Err()
		},
		"it waits for tomorrow": func(ctx context.Context, c *redis.Client, queue, task string) error {
			_, err := c.TxPipelined(ctx, func(p redis.Pipeliner) error {
				p.LRem(ctx, "asynq:{"+queue+"}:pending", 0, task)
				p.ZAdd(ctx, "asynq:{"+queue+"}:retry", redis.Z{Score: float64(time.Now().Add(24 * time.Hour).Unix()), Member: task})
				p.HSet(ctx, "asynq:{"+queue+"}:t:"+task, "state", "retry")
				return nil
			})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newFixture(t, func(context.Context, background.Attempt) background.Result { return paid })
			h.journal.SetReliable(true)
			enqueuer, err := background.New(h.config())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = enqueuer.Close() }()
			client := redis.NewClient(&redis.Options{Addr: h.redis.Addr(), Password: h.redis.Password()})
			defer func() { _ = client.Close() }()
			long := func(r *background.Run) { r.DueAt = time.Now().Add(-time.Hour) }
			r := h.submit(&worker{Manager: enqueuer}, long)
			if err := orphan(t.Context(), client, r.Queue, r.ID.String()+".1"); err != nil {
				t.Fatal(err)
			}
			h.start(func(c *background.Config) { c.SweepEvery = 500 * time.Millisecond })
			if done := h.awaitState(r.ID, background.Succeeded); done.NotificationNumber < 2 {
				t.Errorf("it was done by notification %d", done.NotificationNumber)
			}
		})
	}
}

// A task that waits in its queue is not resent, however long its run has been due.
func TestABacklogIsNotResent(t *testing.T) {
	t.Parallel()
	h := newFixture(t, func(context.Context, background.Attempt) background.Result { return paid })
	h.journal.SetReliable(true)
	w := h.start(func(c *background.Config) { c.Shards, c.SweepEvery = 1, 20*time.Millisecond })
	inspector := h.inspector()
	first := h.submit(w)
	h.awaitState(first.ID, background.Succeeded)
	if err := inspector.PauseQueue(first.Queue); err != nil {
		t.Fatal(err)
	}
	var ids []background.RunID
	for i := range 20 {
		ids = append(ids, h.submit(w, func(r *background.Run) { r.RetryKey, r.DueAt = strconv.Itoa(i), time.Now().Add(-time.Hour) }).ID)
	}
	h.awaitTrue("all wait in their queue", func() bool {
		q, err := inspector.GetQueueInfo(first.Queue)
		return err == nil && q.Pending >= len(ids)
	})
	for range 2 { // a sweep may have come between a submission and its notification, and not have ended
		h.awaitSweep(first.Queue)
	}
	before := w.Stats().NotificationsResent
	for range 3 {
		h.awaitSweep(first.Queue)
	}
	if resent := w.Stats().NotificationsResent - before; resent != 0 {
		t.Errorf("%d were resent", resent)
	}
	if err := inspector.UnpauseQueue(first.Queue); err != nil {
		t.Fatal(err)
	}
	for _, id := range ids {
		h.awaitState(id, background.Succeeded)
	}
}

// awaitSweep waits until a sweep has begun: it lists the queues.
func (h *fixture) awaitSweep(queue string) {
	h.t.Helper()
	client := redis.NewClient(&redis.Options{Addr: h.redis.Addr(), Password: h.redis.Password()})
	defer func() { _ = client.Close() }()
	if err := client.SRem(h.t.Context(), "asynq:queues", queue).Err(); err != nil {
		h.t.Fatal(err)
	}
	h.awaitTrue("a sweep", func() bool { return client.SIsMember(h.t.Context(), "asynq:queues", queue).Val() })
}

// hookedRedis makes clients with a hook.
type hookedRedis struct {
	asynq.RedisConnOpt
	hook redis.Hook
}

func (s hookedRedis) MakeRedisClient() any {
	client := s.RedisConnOpt.MakeRedisClient().(*redis.Client)
	client.AddHook(s.hook)
	return client
}
