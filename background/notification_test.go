package background_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/hibiken/asynq"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/receipts"
)

func (h *fixture) manager() *background.Manager {
	h.t.Helper()
	m, err := background.New(h.config())
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() {
		if err := m.Close(); err != nil {
			h.t.Error(err)
		}
	})
	return m
}

// pending counts the notifications waiting in Redis.
func (h *fixture) pending() (n int) {
	h.t.Helper()
	i := asynq.NewInspector(asynq.RedisClientOpt{Addr: h.redis.Addr(), Password: h.redis.Password()})
	queues, err := i.Queues()
	for _, q := range queues {
		info, e := i.GetQueueInfo(q)
		if err = errors.Join(err, e); e == nil {
			n += info.Pending
		}
	}
	if err := errors.Join(err, i.Close()); err != nil {
		h.t.Fatal(err)
	}
	return n
}

func TestNotifyAsyncDoesNotBlockAndCloseDrainsIt(t *testing.T) {
	t.Parallel()
	h := newFixture(t, nil)
	m := h.manager()
	const n = 50
	for range n {
		m.NotifyAsync(t.Context(), h.journal.Submit(background.Run{Family: family, RetryKey: "tx:release", Queue: m.Queue(family, "tx:release"), NotificationNumber: 1}))
	}
	if err := m.Close(); err != nil {
		t.Error(err)
	}
	if sent := h.pending(); sent != n {
		t.Errorf("%d notifications are sent when the manager is closed, want %d", sent, n)
	}
}

// A remote run is fetched by its workers, and has a task in asynq only as a dead letter.
func TestARemoteRunHasATaskOnlyAsADeadLetter(t *testing.T) {
	t.Parallel()
	for state, want := range map[background.State]int{background.Pending: 0, background.Running: 0, background.Scheduled: 0, background.DeadLettered: 1} {
		h := newFixture(t, nil)
		m := h.manager()
		m.NotifyAsync(t.Context(), background.Run{ID: background.RunID{1}, Family: family, Queue: mail, RetryKey: "job", Remote: true, State: state})
		if err := m.Close(); err != nil {
			t.Error(err)
		}
		if sent := h.pending(); sent != want {
			t.Errorf("%s: %d tasks", state, sent)
		}
	}
}

// When notifications are slower than commits, callers send them and block while their context
// allows.
func TestNotifyAsyncIsSynchronousAtItsLimit(t *testing.T) {
	t.Parallel()
	h := newFixture(t, nil)
	m := h.manager()
	defer background.FillAsyncNotifications(m)()
	notify := func(ctx context.Context) {
		m.NotifyAsync(ctx, h.journal.Submit(background.Run{Family: family, RetryKey: "tx:release", Queue: m.Queue(family, "tx:release"), NotificationNumber: 1}))
	}
	notify(t.Context())
	if sent := h.pending(); sent != 1 {
		t.Errorf("%d notifications are sent when the caller continues", sent)
	}
	gone, leave := context.WithCancel(t.Context())
	leave()
	notify(gone)
	if sent := h.pending(); sent != 1 {
		t.Errorf("%d notifications are sent, the second for a caller whose context had ended", sent)
	}
}

// startedOnceEach checks that attempts were numbered without gap or repetition and called once
// each.
func (h *fixture) startedOnceEach(ids []background.RunID, attempts int) {
	h.t.Helper()
	for _, id := range ids {
		claims := 0
		for _, f := range h.events(id) {
			if f == receipts.AttemptStarted {
				claims++
			}
		}
		if r := h.journal.Run(id); r.Attempt != attempts || claims != attempts {
			h.t.Errorf("attempt %d, %d claims; want %d", r.Attempt, claims, attempts)
		}
	}
}

func TestTwoNotificationsOfARunMakeEachAttemptOnce(t *testing.T) {
	t.Parallel()
	var seen sync.Map
	h := newFixture(t, func(_ context.Context, a background.Attempt) background.Result {
		if _, twice := seen.LoadOrStore(fmt.Sprint(a.Run.ID, a.Number), true); twice {
			t.Errorf("attempt %d of %s was called twice", a.Number, a.Run.ID)
		}
		return refused
	})
	one, two := h.start(), h.start()
	var ids []background.RunID
	for range 20 {
		r := h.submit(one)
		ids = append(ids, r.ID)
		r.NotificationNumber = 2
		if err := two.Notify(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	for _, id := range ids {
		h.awaitState(id, background.DeadLettered)
	}
	h.startedOnceEach(ids, 3)
	if h.calls.Load() != 60 {
		t.Errorf("%d calls", h.calls.Load())
	}
}

func TestNotifyIsIdempotent(t *testing.T) {
	t.Parallel()
	h := newFixture(t, func(context.Context, background.Attempt) background.Result { return paid })
	m, err := background.New(h.config())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = m.Close() }()
	r := h.submit(&worker{Manager: m})
	if err := m.Notify(t.Context(), r); err != nil {
		t.Error(err)
	}
	if info, err := h.inspector().GetTaskInfo(r.Queue, r.ID.String()+".1"); err != nil || string(info.Payload) != r.ID.String() || info.Type != family {
		t.Errorf("task %+v, %v", info, err)
	}
}

func TestNotificationOfADeadRunKeepsItsArchivedTask(t *testing.T) {
	t.Parallel()
	h := newFixture(t, func(context.Context, background.Attempt) background.Result { return paid })
	w := h.start()
	r := h.submit(w, func(r *background.Run) {
		r.State, r.Letter, r.Reason, r.Failure = background.DeadLettered, background.LetterOpen, "final", refused.Failure
	})
	old := h.submit(w, func(r *background.Run) {
		r.State, r.Letter = background.DeadLettered, background.LetterForked
	})
	i := h.inspector()
	h.awaitTrue("the archived task", func() bool {
		info, err := i.GetTaskInfo(r.Queue, r.ID.String()+".1")
		return err == nil && info.State == asynq.TaskStateArchived
	})
	h.awaitTrue("a forked dead letter has no archived task", func() bool {
		_, err := i.GetTaskInfo(old.Queue, old.ID.String()+".1")
		return err != nil
	})
	another := r
	another.NotificationNumber = 7 // of no run of the journal
	if err := w.Notify(t.Context(), another); err != nil {
		t.Fatal(err)
	}
	h.awaitTrue("another task is archived too", func() bool {
		info, err := i.GetTaskInfo(r.Queue, r.ID.String()+".7")
		return err == nil && info.State == asynq.TaskStateArchived
	})
	if tampering := h.recordedTampering(r.ID); len(tampering) > 0 || h.calls.Load() != 0 {
		t.Errorf("%d calls; tampering %v", h.calls.Load(), tampering)
	}
}

func TestNotificationOfAnUnknownRunIsAcknowledged(t *testing.T) {
	t.Parallel()
	h := newFixture(t, func(context.Context, background.Attempt) background.Result { return paid })
	w := h.start()
	r := background.Run{ID: background.RunID{1}, Family: family, Queue: w.Queue(family, "x"), NotificationNumber: 1}
	if err := w.Notify(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	i := h.inspector()
	h.awaitTrue("the task is acknowledged", func() bool {
		_, err := i.GetTaskInfo(r.Queue, r.ID.String()+".1")
		return err != nil
	})
}

// When the reply of EnqueueWaiting is lost and the command is retried after the run has died,
// it must not run the archived task.
func TestEnqueueWaitingRunsNoArchivedTask(t *testing.T) {
	t.Parallel()
	final := refused
	final.Retry = false
	h := newFixture(t, func(context.Context, background.Attempt) background.Result { return final })
	h.journal.SetReliable(true)
	w := h.start()
	r := h.submit(w)
	h.awaitState(r.ID, background.DeadLettered)
	task := r.ID.String() + ".1"
	archived := func() bool {
		info, err := h.inspector().GetTaskInfo(r.Queue, task)
		return err == nil && info.State == asynq.TaskStateArchived
	}
	h.awaitTrue("the dead letter has its archived task", archived)
	if err := background.EnqueueWaiting(w.Manager, r.Queue, task); err == nil {
		t.Error("an archived task was enqueued")
	}
	if !archived() {
		t.Error("the archived task is missing")
	}
	if tampering := h.recordedTampering(r.ID); len(tampering) > 0 {
		t.Errorf("tampering %v", tampering)
	}
}
