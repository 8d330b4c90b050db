package background_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/recourse-dev/recourse/background"
)

// A Redis that is killed and reads an older snapshot back has the marker, which was in
// it, and not the tasks since: nobody has removed those.
func TestAnOlderSnapshotIsNoTampering(t *testing.T) {
	t.Parallel()
	h := newFixture(t, func(context.Context, background.Attempt) background.Result { return paid })
	h.journal.SetReliable(true)
	w := h.start(func(c *background.Config) { c.Shards, c.SweepEvery = 1, 100*time.Millisecond })
	first := h.submit(w)
	h.awaitState(first.ID, background.Succeeded)
	if err := h.inspector().PauseQueue(first.Queue); err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(&redis.Options{Addr: h.redis.Addr(), Password: h.redis.Password()})
	defer func() { _ = client.Close() }()
	if err := client.Save(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	var ids []background.RunID
	for range 20 {
		ids = append(ids, h.submit(w, func(r *background.Run) { r.DueAt = time.Now().Add(-time.Second) }).ID) // for longer than a sweep's time
	}
	for range 2 {
		h.awaitSweep(first.Queue) // and have been seen to wait, at the last sweep or the one before
	}
	if err := h.redis.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := h.redis.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.awaitTrue("the queue is paused, as in the snapshot", func() bool {
		return client.Exists(t.Context(), "asynq:{"+first.Queue+"}:paused", "recourse:marker").Val() == 2
	})
	h.awaitTrue("all are rung again", func() bool { return w.Stats().NotificationsResent >= 20 })
	if err := h.inspector().UnpauseQueue(first.Queue); err != nil {
		t.Fatal(err)
	}
	for _, id := range ids {
		h.awaitState(id, background.Succeeded)
		if tampering := h.recordedTampering(id); len(tampering) > 0 {
			t.Errorf("run %s: %v", id, tampering)
		}
	}
}

// A Redis that tells nothing of itself is swept all the same.
func TestARedisThatRefusesInfoIsSwept(t *testing.T) {
	t.Parallel()
	h := newFixture(t, func(context.Context, background.Attempt) background.Result { return paid })
	h.journal.SetReliable(true)
	client := redis.NewClient(&redis.Options{Addr: h.redis.Addr(), Password: h.redis.Password()})
	defer func() { _ = client.Close() }()
	if err := client.Do(t.Context(), "acl", "setuser", "default", "-info").Err(); err != nil {
		t.Fatal(err)
	}
	r := h.journal.Submit(background.Run{Family: family, RetryKey: "a", Queue: family + ":0", NotificationNumber: 1}) // no bell is rung
	w := h.start(func(c *background.Config) { c.SweepEvery = 50 * time.Millisecond })
	h.awaitState(r.ID, background.Succeeded)
	h.awaitTrue("the mirrors are looked at", func() bool { return w.Stats().ArchiveScans > 0 })
}
