package background_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/recourse-dev/recourse/background"
)

func TestLongDelayGoesThroughAsynqAndComesInTime(t *testing.T) {
	t.Parallel()
	h := newFixture(t, func(_ context.Context, a background.Attempt) background.Result {
		if a.Number == 1 {
			return refused
		}
		return paid
	})
	h.journal.SetReliable(true)
	w := h.start(func(c *background.Config) { c.SweepEvery = time.Hour })
	r := h.submit(w, func(r *background.Run) { r.Policy.BaseDelay = 1300 * time.Millisecond })
	due := h.awaitState(r.ID, background.Scheduled).DueAt
	i := h.inspector()
	h.awaitTrue("asynq holds the run", func() bool {
		info, err := i.GetTaskInfo(r.Queue, r.ID.String()+".1")
		return err == nil && info.State == asynq.TaskStateRetry
	})
	h.awaitState(r.ID, background.Succeeded)
	second := h.journal.Transitions(r.ID)[2]
	if late := second.At.Sub(due); late < 0 || late > 900*time.Millisecond { // asynq alone takes a second and more
		t.Errorf("attempt 2 began %s after its time", late)
	}
}

func TestNotificationsAreResentToAnEmptiedRedis(t *testing.T) {
	t.Parallel()
	h := newFixture(t, func(_ context.Context, a background.Attempt) background.Result {
		if a.Number == 1 {
			return refused
		}
		return paid
	})
	w := h.start(func(c *background.Config) { c.SweepEvery = 50 * time.Millisecond })
	r := h.submit(w, func(r *background.Run) { r.Policy.BaseDelay = 1500 * time.Millisecond })
	h.awaitState(r.ID, background.Scheduled)
	i := h.inspector()
	h.awaitTrue("asynq holds the run", func() bool {
		info, err := i.GetTaskInfo(r.Queue, r.ID.String()+".1")
		return err == nil && info.State == asynq.TaskStateRetry
	})
	never := h.journal.Submit(background.Run{Family: family, Queue: w.Queue(family, "k"), NotificationNumber: 1})
	client := redis.NewClient(&redis.Options{Addr: h.redis.Addr(), Password: h.redis.Password()})
	defer func() { _ = client.Close() }()
	if err := client.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	h.awaitState(never.ID, background.Succeeded)
	done := h.awaitState(r.ID, background.Succeeded)
	if done.NotificationNumber < 2 {
		t.Errorf("notification %d", done.NotificationNumber)
	}
	h.awaitTrue("both count as resent", func() bool { return w.Stats().NotificationsResent >= 2 }) // counted after they were sent
	h.awaitTrue("asynq lists its queues again", func() bool {
		queues, err := i.Queues()
		return err == nil && len(queues) == 2
	})
	h.startedOnceEach([]background.RunID{r.ID, never.ID}, 2) // one refusal each, then success
}

func TestArchivedTaskOfALiveRunIsReplaced(t *testing.T) {
	t.Parallel()
	h := newFixture(t, func(context.Context, background.Attempt) background.Result { return paid })
	m, err := background.New(h.config())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = m.Close() }()
	r := h.submit(&worker{Manager: m})
	if err := h.inspector().ArchiveTask(r.Queue, r.ID.String()+".1"); err != nil {
		t.Fatal(err)
	}
	h.start(func(c *background.Config) { c.SweepEvery = 50 * time.Millisecond })
	if done := h.awaitState(r.ID, background.Succeeded); done.NotificationNumber < 2 {
		t.Errorf("notification %d", done.NotificationNumber)
	}
}

func TestRunInFlightIsNotResent(t *testing.T) {
	t.Parallel()
	answer := make(chan struct{})
	h := newFixture(t, func(_ context.Context, a background.Attempt) background.Result {
		<-answer
		return paid
	})
	w := h.start(func(c *background.Config) { c.SweepEvery = 20 * time.Millisecond; c.Slots = 1 })
	var queue string
	var runs []background.RunID
	for range 3 {
		r := h.submit(w)
		queue = r.Queue
		runs = append(runs, r.ID)
	}
	client := redis.NewClient(&redis.Options{Addr: h.redis.Addr(), Password: h.redis.Password()})
	defer func() { _ = client.Close() }()
	h.awaitTrue("one runs", func() bool { return w.Stats().Running == 1 })
	h.awaitTrue("all are in flight", func() bool { return client.LLen(t.Context(), "asynq:{"+queue+"}:active").Val() == 3 })
	for _, id := range runs { // Redis lists a task as active before its reply reaches the process
		h.awaitTrue("the run is in flight", func() bool { return background.InFlight(w.Manager, id) })
	}
	sweepEnds := func() { // the sweep that began before the second one has ended
		for range 2 {
			if err := client.Del(t.Context(), "recourse:marker").Err(); err != nil {
				t.Fatal(err)
			}
			h.awaitTrue("a sweep begins", func() bool { return client.Exists(t.Context(), "recourse:marker").Val() == 1 })
		}
	}
	sweepEnds()
	before := w.Stats().NotificationsResent // some, if a submission took longer than a sweep
	if err := client.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	sweepEnds()
	if resent := w.Stats().NotificationsResent - before; resent != 0 {
		t.Errorf("%d notifications resent for runs in flight", resent)
	}
	close(answer)
	h.awaitTrue("all three were called", func() bool { return h.calls.Load() == 3 })
}

func TestRedisThatIsAwayAndComesBackEmptyLosesNothing(t *testing.T) {
	t.Parallel()
	called, answer := make(chan struct{}), make(chan struct{})
	h := newFixture(t, func(_ context.Context, a background.Attempt) background.Result {
		if len(a.Run.Payload) > 0 && a.Number == 1 {
			close(called)
			<-answer
		}
		if a.Number < 3 {
			return refused
		}
		return paid
	})
	w := h.start(func(c *background.Config) { c.SweepEvery = 50 * time.Millisecond })
	ids := []background.RunID{h.submit(w, func(r *background.Run) { r.Payload = []byte("held") }).ID}
	<-called
	if err := h.redis.Kill(); err != nil {
		t.Fatal(err)
	}
	for range 10 {
		r := h.journal.Submit(background.Run{Family: family, Queue: w.Queue(family, "k"), NotificationNumber: 1})
		ids = append(ids, r.ID)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := w.Notify(ctx, h.journal.Run(ids[1])); err == nil {
		t.Error("a notification was sent to a Redis that is away")
	}
	close(answer)
	h.awaitState(ids[0], background.Succeeded) // needs no Redis
	if err := h.redis.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, id := range ids {
		h.awaitState(id, background.Succeeded)
	}
	h.startedOnceEach(ids, 3)
	if n := h.calls.Load(); n != int64(3*len(ids)) {
		t.Errorf("%d calls for %d runs", n, len(ids))
	}
}

func TestIdleServersPollRedisSeldom(t *testing.T) {
	t.Parallel()
	h := newFixture(t, func(context.Context, background.Attempt) background.Result { return paid })
	h.start(func(c *background.Config) { c.Servers = 8; c.Poll = 25 * time.Millisecond })
	client := redis.NewClient(&redis.Options{Addr: h.redis.Addr(), Password: h.redis.Password()})
	defer func() { _ = client.Close() }()
	if err := client.ConfigResetStat(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	<-time.After(500 * time.Millisecond) // the passing of time is what is tested
	stats, err := client.Info(t.Context(), "commandstats").Result()
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(stats, "cmdstat_rpoplpush:calls=")
	number, _, _ := strings.Cut(rest, ",")
	asked, err := strconv.Atoi(number)
	if err != nil {
		t.Fatalf("no dequeue in %q", stats)
	}
	// Each queue is polled once in two polls, and once by each server before any found it empty.
	if most := 2 * int(time.Since(began)/(50*time.Millisecond)+2+8); asked > most {
		t.Errorf("polled %d times for two queues in %s, want at most %d", asked, time.Since(began), most)
	}
}

// A newer notification that reaches the process whose run is in flight is redelivered every
// second, not at growing intervals: another process may have to continue the run.
func TestANewerNotificationOfARunInFlightIsRedeliveredEverySecond(t *testing.T) {
	t.Parallel()
	answer := make(chan struct{})
	h := newFixture(t, func(context.Context, background.Attempt) background.Result { <-answer; return paid })
	h.journal.SetReliable(true)
	h.family.AttemptLimit = time.Minute
	w := h.start(func(c *background.Config) { c.SweepEvery = time.Hour })
	r := h.submit(w)
	r = h.awaitState(r.ID, background.Running)
	r.NotificationNumber = 2
	h.journal.Submit(r)
	if err := w.Notify(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	// At intervals of 1, 2, 4 and 8 seconds the sixth would come after 23.
	h.awaitTrue("it is redelivered often", func() bool {
		info, err := h.inspector().GetTaskInfo(r.Queue, r.ID.String()+".2")
		return err == nil && info.Retried >= 6
	})
	close(answer)
	h.awaitState(r.ID, background.Succeeded)
	h.awaitTrue("the notification is acknowledged", func() bool {
		_, err := h.inspector().GetTaskInfo(r.Queue, r.ID.String()+".2")
		return errors.Is(err, asynq.ErrTaskNotFound)
	})
}

// A call outlives its delivery, and the task that asynq would redeliver is removed meanwhile:
// the dead letter of the run has an archived task all the same.
func TestARunThatOutlivesItsTaskHasAnArchivedTask(t *testing.T) {
	t.Parallel()
	answer := make(chan struct{})
	final := refused
	final.Retry = false
	h := newFixture(t, func(context.Context, background.Attempt) background.Result { <-answer; return final })
	h.journal.SetReliable(true)
	h.family.AttemptLimit = time.Minute
	w := h.start(func(c *background.Config) { c.SweepEvery = time.Hour })
	r := h.submit(w)
	h.awaitState(r.ID, background.Running)
	i, task := h.inspector(), r.ID.String()+".1"
	h.awaitTrue("the delivery is cancelled", func() bool { return i.CancelProcessing(task) == nil && i.DeleteTask(r.Queue, task) == nil })
	close(answer)
	h.awaitState(r.ID, background.DeadLettered)
	h.awaitTrue("it has an archived task", func() bool { return h.archived(r, 1) })
}
