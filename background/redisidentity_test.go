package background_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/background/circuit"
	"github.com/recourse-dev/recourse/internal/localredis"
)

const ownerKey = "recourse:database"

// A Redis with another database's notifications is not used: nothing is claimed and no task is
// dequeued until it has had no owner for takeoverDelay. One of ours that was emptied is taken
// again at once.
func TestARedisOfAnotherDatabaseIsNotUsed(t *testing.T) {
	t.Parallel()
	h := newFixture(t, func(context.Context, background.Attempt) background.Result { return paid })
	h.journal.SetReliable(true)
	client := redis.NewClient(&redis.Options{Addr: h.redis.Addr(), Password: h.redis.Password()})
	defer func() { _ = client.Close() }()
	w := h.start(shortIntervals, func(c *background.Config) { c.Database = "ours" })
	owner := func() string { return client.Get(t.Context(), ownerKey).Val() }
	h.awaitTrue("the Redis is ours", func() bool { return owner() == "ours" })
	if err := client.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	h.awaitTrue("the emptied Redis is ours again", func() bool { return owner() == "ours" })
	if err := w.Healthy(); err != nil {
		t.Fatal(err)
	}
	if err := client.Set(t.Context(), ownerKey, "theirs", 0).Err(); err != nil {
		t.Fatal(err)
	}
	h.awaitTrue("it reports why claiming is blocked", func() bool {
		err := w.Healthy()
		return errors.Is(err, background.ErrUnsuitableRedis) && strings.Contains(err.Error(), "theirs")
	})
	r := h.submit(w)
	h.awaitTrue("the run has its task, and nobody dequeues it", func() bool { return h.taskPending(r) })
	if n := h.calls.Load(); n != 0 || owner() != "theirs" {
		t.Fatalf("%d calls, the owner of Redis is %q", n, owner())
	}
	emptied := time.Now()
	if err := client.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	h.awaitState(r.ID, background.Succeeded)
	if took := time.Since(emptied); took < time.Second || owner() != "ours" {
		t.Errorf("it was taken after %s, its owner is %q", took, owner())
	}
}

// beats returns the sum of the heartbeats of all processes.
func (h *fixture) beats() (n int64) {
	h.t.Helper()
	all, err := h.journal.Sessions(context.Background())
	if err != nil {
		h.t.Error(err)
	}
	for _, s := range all {
		n += s.Beat
	}
	return n
}

// taskPending reports whether asynq holds the task of a run as pending.
func (h *fixture) taskPending(r background.Run) bool {
	info, err := h.inspector().GetTaskInfo(r.Queue, r.ID.String()+".1")
	return err == nil && info.State == asynq.TaskStatePending
}

// When two processes of one database use two Redis servers, the younger one claims nothing.
func TestOfTwoProcessesOnDifferentRedisTheYoungerIsBlocked(t *testing.T) {
	t.Parallel()
	h := newFixture(t, func(context.Context, background.Attempt) background.Result { return paid })
	h.journal.SetReliable(true)
	first := h.start(shortIntervals, func(c *background.Config) { c.Database, c.Worker = "ours", "first" })
	h.awaitTrue("the first is registered with its Redis", func() bool {
		all, err := h.journal.Sessions(t.Context())
		return err == nil && len(all) == 1 && all[0].Redis != ""
	})
	elsewhere := startRedis(t)
	other := asynq.RedisClientOpt{Addr: elsewhere.Addr(), Password: elsewhere.Password()}
	refused, err := background.New(func() background.Config {
		c := h.config()
		shortIntervals(&c)
		c.Redis, c.Database = other, "ours"
		return c
	}())
	if err != nil {
		t.Fatal(err)
	}
	if err := refused.CheckRedis(t.Context(), false); !errors.Is(err, background.ErrUnsuitableRedis) || !strings.Contains(err.Error(), "first") {
		t.Errorf("before it is started: %v", err)
	}
	if err := refused.Close(); err != nil {
		t.Error(err)
	}
	second := h.start(shortIntervals, func(c *background.Config) { c.Database, c.Redis = "ours", other })
	h.awaitTrue("the younger one reports why it claims nothing", func() bool {
		err := second.Healthy()
		return errors.Is(err, background.ErrUnsuitableRedis) && strings.Contains(err.Error(), "first")
	})
	if err := first.Healthy(); err != nil {
		t.Errorf("the older one: %v", err)
	}
	// Runs submitted to the younger one are executed by the older.
	h.awaitState(h.submit(second).ID, background.Succeeded)
	first.stop()
	h.awaitTrue("alone, it works", func() bool { return second.Healthy() == nil })
}

// A process whose Redis belongs to another database sends no notifications and leads no circuit
// breaker: others do both.
func TestAProcessBlockedByItsServersDoesNoSharedWork(t *testing.T) {
	t.Parallel()
	h := newFixture(t, func(context.Context, background.Attempt) background.Result { return paid })
	h.journal.SetReliable(true)
	client := redis.NewClient(&redis.Options{Addr: h.redis.Addr(), Password: h.redis.Password()})
	defer func() { _ = client.Close() }()
	set := func(owner string) {
		t.Helper()
		if err := client.Set(t.Context(), ownerKey, owner, 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	set("theirs")
	w := h.start(shortIntervals, func(c *background.Config) {
		c.Database, c.Breaker = "ours", circuit.Rule{LeaderTimeout: 50 * time.Millisecond, ProbeInterval: 5 * time.Millisecond, FallbackInterval: 5 * time.Millisecond}
	})
	h.awaitTrue("it reports why claiming is blocked", func() bool { return errors.Is(w.Healthy(), background.ErrUnsuitableRedis) })
	past := time.Now().Add(-time.Minute).UTC().Truncate(time.Microsecond)
	due := h.journal.Submit(background.Run{Tenant: "acme", Target: "works", Family: family, RetryKey: "a", Queue: w.Queue(family, "a"), NotificationNumber: 1, DueAt: past})
	paused := h.journal.Submit(background.Run{Tenant: "acme", Target: "escrow", Family: family, RetryKey: "b", Queue: w.Queue(family, "b"), NotificationNumber: 1, DueAt: past})
	of := circuit.Scope{Family: family, Name: "escrow"}
	opened, _, err := h.journal.UpdateBreaker(t.Context(), of, func(b circuit.Breaker) (circuit.Breaker, bool) {
		return b.Open(false, "worker:other", circuit.CauseFailing, "why", past)
	})
	if err != nil {
		t.Fatal(err)
	}
	since := h.beats()
	h.awaitTrue("it has had the time to sweep and to lead", func() bool { return h.beats() > since+30 })
	if now := h.journal.Run(due.ID); now.NotificationNumber != 1 || now.State != background.Pending {
		t.Errorf("a notification was sent for the due run: %+v", now)
	}
	now, _, err := h.journal.UpdateBreaker(t.Context(), of, func(b circuit.Breaker) (circuit.Breaker, bool) { return b, false })
	if err != nil || now.Version != opened.Version {
		t.Errorf("the breaker was led: version %d, then %d, %v", opened.Version, now.Version, err)
	}
	set("ours")
	h.awaitState(due.ID, background.Succeeded)
	h.awaitState(paused.ID, background.Succeeded)
}

// A Redis that is killed and loads an older snapshot has the marker, which was in it, but not
// the later tasks: that is no tampering.
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
		ids = append(ids, h.submit(w, func(r *background.Run) { r.DueAt = time.Now().Add(-time.Second) }).ID) // due for longer than SweepEvery
	}
	for range 2 {
		h.awaitSweep(first.Queue) // and the last sweep or the one before has seen them waiting
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
	h.awaitTrue("all are resent", func() bool { return w.Stats().NotificationsResent >= 20 })
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

// A Redis that refuses INFO is swept all the same.
func TestARedisThatRefusesInfoIsSwept(t *testing.T) {
	t.Parallel()
	h := newFixture(t, func(context.Context, background.Attempt) background.Result { return paid })
	h.journal.SetReliable(true)
	client := redis.NewClient(&redis.Options{Addr: h.redis.Addr(), Password: h.redis.Password()})
	defer func() { _ = client.Close() }()
	if err := client.Do(t.Context(), "acl", "setuser", "default", "-info").Err(); err != nil {
		t.Fatal(err)
	}
	r := h.journal.Submit(background.Run{Family: family, RetryKey: "a", Queue: family + ":0", NotificationNumber: 1}) // without notification
	w := h.start(func(c *background.Config) { c.SweepEvery = 50 * time.Millisecond })
	h.awaitState(r.ID, background.Succeeded)
	h.awaitTrue("the archive is scanned", func() bool { return w.Stats().ArchiveScans > 0 })
}

// redirecting answers as a node of a Cluster that has none of the keys, and whose users may not read INFO.
type redirecting struct{}

func (redirecting) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (redirecting) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (redirecting) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(_ context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			if cmd.SetErr(background.RedisError("MOVED 1 127.0.0.1:2")); cmd.Name() == "info" {
				cmd.SetErr(background.RedisError("NOPERM this user has no permissions to run the 'info' command"))
			}
		}
		return cmds[0].Err()
	}
}

// A node of a Cluster is told by where it sends its client, if its users may not read INFO.
func TestANodeOfAClusterThatRefusesInfoIsRefused(t *testing.T) {
	t.Parallel()
	h := newFixture(t, nil)
	cfg := h.config()
	cfg.Redis = hookedRedis{cfg.Redis, redirecting{}}
	m, err := background.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = m.Close() }()
	if err := m.CheckRedis(t.Context(), false); !errors.Is(err, background.ErrUnsuitableRedis) || !strings.Contains(err.Error(), "redis-cluster://") {
		t.Error(err)
	}
}

// startRedis starts a Redis of the test's own and returns its address.
func startRedis(t *testing.T) *localredis.Server {
	t.Helper()
	s, err := localredis.Start(context.Background(), localredis.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error("stop redis: ", err)
		}
	})
	return s
}
