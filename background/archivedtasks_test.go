package background_test

import (
	"bytes"
	"context"
	"errors"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/localredis"
	"github.com/recourse-dev/recourse/receipts"
)

// One of two busy processes loses a Redis reply, and the runs that the other has in flight are
// notified again. No receipt reports tampering, each run is notified once, and each dead letter
// has an archived task.
func TestResentNotificationsAreNoTamperingAndKeepArchivedTasks(t *testing.T) {
	t.Parallel()
	final := refused
	final.Retry = false
	resent := make(chan struct{}) // closed after the second notifications: until then, tasks wait in both processes
	h := newFixture(t, func(ctx context.Context, _ background.Attempt) background.Result {
		select {
		case <-resent:
		case <-ctx.Done():
		}
		return final
	})
	h.journal.SetReliable(true)
	busy := func(c *background.Config) {
		c.Slots, c.Deliveries, c.Shards, c.SweepEvery, c.Breaker.Disabled = 1, 12, 1, 100*time.Millisecond, true
	}
	a := h.start(busy)
	breaks := &breakingRedis{redis: h.redis}
	b := h.start(func(c *background.Config) { busy(c); c.Redis = breaks })
	var runs []background.Run
	for i := range 30 {
		runs = append(runs, h.submit(a, func(r *background.Run) { r.RetryKey = strconv.Itoa(i); r.Queue = a.Queue(family, r.RetryKey) }))
	}
	h.awaitTrue("both hold tasks", func() bool { return a.Stats().Running == 1 && b.Stats().Running == 1 })
	breaks.breakNext.Store(true)
	h.awaitTrue("second notifications", func() bool { return a.Stats().NotificationsResent+b.Stats().NotificationsResent > 0 })
	h.awaitArchiveScans(a, b) // a process that notifies again does so once per sweep
	close(resent)
	for _, r := range runs {
		h.awaitState(r.ID, background.DeadLettered)
	}
	if breaks.breakNext.Load() || a.Stats().NotificationsResent+b.Stats().NotificationsResent == 0 || a.Stats().NotificationsResent+b.Stats().NotificationsResent > uint64(len(runs)) {
		t.Errorf("connection broken %v; notified again: %d and %d", !breaks.breakNext.Load(), a.Stats().NotificationsResent, b.Stats().NotificationsResent)
	}
	h.awaitArchiveScans(a, b) // removes stale archived tasks
	h.awaitTrue("each dead letter has one archived task", func() bool {
		archived, err := h.inspector().ListArchivedTasks(runs[0].Queue, asynq.PageSize(100))
		archivedTasks := map[string]int{}
		for _, task := range archived {
			run, _, _ := strings.Cut(task.ID, ".")
			archivedTasks[run]++
		}
		for _, r := range runs {
			if archivedTasks[r.ID.String()] != 1 {
				return false
			}
		}
		return err == nil
	})
	for _, r := range runs {
		if tampering := h.recordedTampering(r.ID); len(tampering) > 0 {
			t.Errorf("run %s: %v", r.ID, tampering)
		}
	}
}

// recordedTampering returns the kinds of tampering recorded for a run.
func (h *fixture) recordedTampering(id background.RunID) (kind []string) {
	for _, m := range h.journal.Transitions(id) {
		if m.Subtype == receipts.OutOfBandChangeDetected {
			kind = append(kind, m.Reason)
		}
	}
	return kind
}

// breakingRedis makes clients whose connection breaks once, after a script was sent and before
// its reply.
type breakingRedis struct {
	redis     *localredis.Server
	breakNext atomic.Bool
}

func (b *breakingRedis) MakeRedisClient() any {
	return redis.NewClient(&redis.Options{Addr: b.redis.Addr(), Password: b.redis.Password(), Dialer: func(_ context.Context, network, addr string) (net.Conn, error) {
		conn, err := net.Dial(network, addr)
		return &breakingConn{Conn: conn, of: b}, err
	}})
}

type breakingConn struct {
	net.Conn
	of   *breakingRedis
	lose bool
}

func (c *breakingConn) Write(b []byte) (int, error) {
	c.lose = bytes.Contains(b, []byte("evalsha")) && c.of.breakNext.CompareAndSwap(true, false)
	return c.Conn.Write(b)
}

func (c *breakingConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.lose && err == nil {
		return 0, &net.OpError{Op: "read", Err: syscall.ECONNRESET}
	}
	return n, err
}

// A run that was notified again while it ran, and whose first task was archived, keeps that
// archived task: the newer task was acknowledged.
func TestTheOnlyArchivedTaskOfALetterIsKept(t *testing.T) {
	t.Parallel()
	h, w, r := letterWithOlderArchivedTask(t)
	other := h.start(func(c *background.Config) { c.SweepEvery = 20 * time.Millisecond })
	h.awaitArchiveScans(other)
	if err := w.Notify(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	h.awaitTrue("the newer notification has an archived task, the older none", func() bool { return h.archived(r, 2) && !h.archived(r, 1) })
	h.awaitArchiveScans(w, other)
	if tampering := h.recordedTampering(r.ID); len(tampering) > 0 {
		t.Errorf("tampering %v", tampering)
	}
}

// Tampering with the only archived task of a dead letter is recorded, whichever its
// notification number.
func TestTamperingWithTheOnlyArchivedTaskIsRecorded(t *testing.T) {
	t.Parallel()
	for kind, tamper := range map[string]func(*asynq.Inspector, string, string) error{
		background.ArchivedTaskRequeued: (*asynq.Inspector).RunTask,
		background.ArchivedTaskRemoved:  (*asynq.Inspector).DeleteTask,
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			h, w, r := letterWithOlderArchivedTask(t)
			if err := tamper(h.inspector(), r.Queue, r.ID.String()+".1"); err != nil {
				t.Fatal(err)
			}
			h.awaitTrue("tampering is recorded", func() bool { return len(h.recordedTampering(r.ID)) > 0 })
			h.awaitTrue("a requeued task is archived again", func() bool { return h.archived(r, 1) == (kind == background.ArchivedTaskRequeued) })
			h.awaitArchiveScans(w)
			if tampering := h.recordedTampering(r.ID); !slices.Equal(tampering, []string{kind}) {
				t.Errorf("tampering %v", tampering)
			}
		})
	}
}

// An archived task that is run during an outage of the journal is archived later with another
// error text.
func TestARequeuedTaskIsArchivedAgainAfterAnOutage(t *testing.T) {
	t.Parallel()
	h, w, r := letterWithOlderArchivedTask(t)
	h.journal.SetDown(errors.New("away"))
	if err := h.inspector().RunTask(r.Queue, r.ID.String()+".1"); err != nil {
		t.Fatal(err)
	}
	h.awaitTrue("asynq holds the delivery", func() bool {
		info, err := h.inspector().GetTaskInfo(r.Queue, r.ID.String()+".1")
		return err == nil && info.State == asynq.TaskStateRetry
	})
	h.journal.SetDown(nil)
	h.awaitTrue("it is archived again", func() bool { return h.archived(r, 1) })
	h.awaitArchiveScans(w)
	if tampering := h.recordedTampering(r.ID); len(tampering) > 0 || !h.archived(r, 1) {
		t.Errorf("tampering %v, archived %v", tampering, h.archived(r, 1))
	}
}

// letterWithOlderArchivedTask returns a dead letter whose only archived task is of notification
// 1, though it has a second one, and whose task an archive scan has kept.
func letterWithOlderArchivedTask(t *testing.T) (*fixture, *worker, background.Run) {
	h := newFixture(t, func(context.Context, background.Attempt) background.Result { return paid })
	h.journal.SetReliable(true)
	w := h.start(func(c *background.Config) { c.SweepEvery = 20 * time.Millisecond })
	r := h.submit(w, func(r *background.Run) {
		r.State, r.Letter, r.Reason, r.Failure = background.DeadLettered, background.LetterOpen, "final", refused.Failure
	})
	h.awaitTrue("it has an archived task", func() bool { return h.archived(r, 1) })
	r.NotificationNumber = 2
	h.journal.Submit(r)
	h.awaitArchiveScans(w)
	if !h.archived(r, 1) {
		t.Fatal("the dead letter has no archived task any more")
	}
	return h, w, r
}

func (h *fixture) archived(r background.Run, notificationNumber int) bool {
	info, err := h.inspector().GetTaskInfo(r.Queue, r.ID.String()+"."+strconv.Itoa(notificationNumber))
	return err == nil && info.State == asynq.TaskStateArchived
}

// awaitArchiveScans waits until each worker has completed an archive scan that began after now.
func (h *fixture) awaitArchiveScans(all ...*worker) {
	for _, w := range all {
		scans := w.Stats().ArchiveScans
		h.awaitTrue("the archive is scanned", func() bool { return w.Stats().ArchiveScans >= scans+2 })
	}
}

// One process prunes the oldest archived tasks and then removes those of closed dead letters,
// so that the archive is far from full when the other scans it. The other reports no tampering.
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
	h.awaitTrue("archived tasks are pruned, and those of closed dead letters removed", func() bool {
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

// addArchived adds n open dead letters with archived tasks, ten per second from diedAt on.
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

// A dead letter's archived task may be of an earlier notification than the newest.
func TestTheArchivedTaskOfAnEarlierNotificationIsRemoved(t *testing.T) {
	t.Parallel()
	final := refused
	final.Retry = false
	h := newFixture(t, func(context.Context, background.Attempt) background.Result { return final })
	h.journal.SetReliable(true)
	w := h.start()
	r := h.awaitState(h.submit(w).ID, background.DeadLettered)
	h.awaitTrue("it has an archived task", func() bool {
		info, err := h.inspector().GetTaskInfo(r.Queue, r.ID.String()+".1")
		return err == nil && info.State == asynq.TaskStateArchived
	})
	r.NotificationNumber = 3
	if err := w.RemoveArchivedTasks(t.Context(), []background.Run{r}); err != nil {
		t.Fatal(err)
	}
	if _, err := h.inspector().GetTaskInfo(r.Queue, r.ID.String()+".1"); !errors.Is(err, asynq.ErrTaskNotFound) {
		t.Errorf("archived task: %v", err)
	}
}
