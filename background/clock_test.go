package background_test

import (
	"context"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/hibiken/asynq"

	"github.com/recourse-dev/recourse/background"
)

// shortBeats sets heartbeat and sweep intervals that a test can wait for.
func shortBeats(c *background.Config) {
	c.BeatEvery, c.SweepEvery = 20*time.Millisecond, 50*time.Millisecond
}

// A process whose clock alone is off claims nothing, reports why, and claims again once the
// clock is set.
func TestAProcessWhoseClockAloneIsOffClaimsNothing(t *testing.T) {
	t.Parallel()
	h := newFixture(t, func(context.Context, background.Attempt) background.Result { return paid })
	h.journal.SetReliable(true)
	var right time.Duration
	if err := h.journal.Register(t.Context(), background.Session{ID: uuid.New(), Worker: "other", ClockOffset: &right}); err != nil {
		t.Fatal(err)
	}
	var off atomic.Int64
	off.Store(int64(3 * time.Second))
	w := h.start(shortBeats, func(c *background.Config) {
		c.LostAfter = time.Hour // the other session has no process
		c.BeatEvery = 20 * time.Millisecond
		c.Now = func() time.Time { return time.Now().Add(time.Duration(off.Load())) }
	})
	h.awaitTrue("the process reports that its clock is off", func() bool {
		err := w.Healthy()
		return err != nil && strings.Contains(err.Error(), "the clock of this machine is ")
	})
	if got := w.Stats().ClockOffset.Round(time.Second); got != -3*time.Second {
		t.Errorf("offset %s", got)
	}
	since := h.beats()
	h.awaitTrue("no dequeue sent before is on its way", func() bool { return h.beats() > since+10 })
	r := h.submit(w)
	before := h.beats()
	h.awaitTrue("it has had the time to dequeue the task", func() bool { return h.beats() > before+10 })
	if info, err := h.inspector().GetTaskInfo(r.Queue, r.ID.String()+".1"); err != nil || info.State != asynq.TaskStatePending || info.Retried > 0 {
		t.Errorf("the task is not left to others: %+v, %v", info, err)
	}
	if n := h.calls.Load(); n != 0 {
		t.Fatalf("%d calls with a clock that is off", n)
	}
	off.Store(0)
	h.awaitState(r.ID, background.Succeeded)
}

// Everything is recorded with the journal's time, whichever machine's clock is wrong. A process
// that is alone uses it too.
func TestTheStoresTimeIsRecorded(t *testing.T) {
	t.Parallel()
	h := newFixture(t, func(context.Context, background.Attempt) background.Result { return paid })
	h.journal.SetReliable(true)
	w := h.start(shortBeats, func(c *background.Config) {
		c.Now = func() time.Time { return time.Now().Add(-time.Hour) }
	})
	r := h.submit(w)
	h.awaitState(r.ID, background.Succeeded)
	for _, m := range h.journal.Transitions(r.ID) {
		if off := time.Since(m.At); off < -time.Minute || off > time.Minute {
			t.Errorf("%s is recorded %s ago", m.Subtype, off)
		}
	}
}

// Another server of the database has a clock that is behind: claiming pauses until three
// heartbeats agree, then all use it. Attempts that run meanwhile are recorded without a jump in
// time.
func TestClaimsPauseWhenTheServerChanges(t *testing.T) {
	t.Parallel()
	h := newFixture(t, func(context.Context, background.Attempt) background.Result { return paid })
	h.journal.SetReliable(true)
	w := h.start(shortBeats, func(c *background.Config) { c.BeatEvery = 200 * time.Millisecond })
	first := h.submit(w)
	h.awaitState(first.ID, background.Succeeded)
	h.journal.SetClock(-time.Hour, "the other server")
	h.awaitTrue("the process waits for heartbeats that agree", func() bool {
		err := w.Healthy()
		return err != nil && strings.Contains(err.Error(), "has changed")
	})
	h.awaitTrue("the new time is in use", func() bool { return w.Healthy() == nil })
	second := h.submit(w, func(r *background.Run) { r.RetryKey, r.DueAt = "tx:2", time.Now().Add(-2*time.Hour) })
	h.awaitState(second.ID, background.Succeeded)
	if at := h.journal.Transitions(second.ID)[0].At; time.Since(at) < 59*time.Minute {
		t.Errorf("claimed at %s", at)
	}
}

// A simulated clock is used as it is.
func TestASimulatedClockIsNotMeasured(t *testing.T) {
	t.Parallel()
	h := newFixture(t, func(context.Context, background.Attempt) background.Result { return paid })
	h.journal.SetReliable(true)
	w := h.start(shortBeats, func(c *background.Config) {
		c.ClockSimulated, c.Now = true, func() time.Time { return time.Now().Add(240 * time.Hour) }
	})
	r := h.submit(w)
	h.awaitState(r.ID, background.Succeeded)
	if at := h.journal.Transitions(r.ID)[0].At; time.Until(at) < 239*time.Hour {
		t.Errorf("claimed at %s", at)
	}
	all, err := h.journal.Sessions(t.Context())
	if err != nil || len(all) != 1 || all[0].ClockOffset != nil {
		t.Errorf("%+v, %v", all, err)
	}
}

// A restore that lost the sessions leaves running runs without process. They continue once
// their sessions have been missing for LostAfter.
func TestARunOfAMissingSessionContinues(t *testing.T) {
	t.Parallel()
	h := newFixture(t, func(context.Context, background.Attempt) background.Result { return paid })
	h.journal.SetReliable(true)
	r := h.journal.Submit(background.Run{Family: family, RetryKey: "tx:release", Queue: "pay:0", State: background.Running,
		Session: uuid.New(), Token: uuid.New(), Attempt: 1, NotificationNumber: 1})
	h.start(shortIntervals)
	got := h.awaitState(r.ID, background.Succeeded)
	if got.Attempt != 2 || got.Recoveries != 1 || got.BudgetSpent != 0 {
		t.Errorf("run %+v", got)
	}
	if interrupted := h.journal.Transitions(r.ID)[0]; !strings.HasPrefix(interrupted.Actor, "observer:") || interrupted.Result.Class != background.Unknown {
		t.Errorf("transition %+v", interrupted)
	}
}

// A process whose own session was lost registers a new one, and its run is not recovered before
// its call was cancelled.
func TestAProcessWhoseSessionIsMissingRegistersAgain(t *testing.T) {
	t.Parallel()
	called, cancelled := make(chan struct{}), make(chan struct{})
	h := newFixture(t, func(ctx context.Context, a background.Attempt) background.Result {
		if a.Number == 1 {
			close(called)
			<-ctx.Done()
			close(cancelled)
			return vague
		}
		return paid
	})
	h.journal.SetReliable(true)
	w := h.start(shortIntervals)
	r := h.submit(w)
	<-called // a run is running before its call begins
	h.journal.ForgetSessions()
	<-cancelled
	if got := h.awaitState(r.ID, background.Succeeded); got.Attempt != 2 || got.Recoveries != 0 {
		t.Errorf("run %+v", got)
	}
}

// slowClock is a store whose clock blocks until it is released.
type slowClock struct {
	background.Store
	entered, released chan struct{}
	once              *sync.Once
}

func (s slowClock) Clock(ctx context.Context) (background.ClockReading, error) {
	s.once.Do(func() { close(s.entered) })
	<-s.released
	return s.Store.Clock(ctx)
}

// What is recorded before the first heartbeat has the journal's time, also if others measure it at that
// moment.
func TestNobodyReadsTheClockBeforeItIsMeasured(t *testing.T) {
	t.Parallel()
	h := newFixture(t, func(context.Context, background.Attempt) background.Result { return paid })
	h.journal.SetReliable(true)
	h.journal.SetClock(time.Hour, "server")
	store := slowClock{h.journal, make(chan struct{}), make(chan struct{}), new(sync.Once)}
	cfg := h.config()
	cfg.Store = store
	m, err := background.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = m.Close() }()
	var calls sync.WaitGroup
	var begun atomic.Int32
	for i := range 16 {
		calls.Go(func() {
			if i > 0 {
				<-store.entered
			}
			begun.Add(1)
			if err := m.MeasureClock(t.Context()); err != nil {
				t.Error(err)
			}
			if off := time.Until(m.Now()); off < 59*time.Minute {
				t.Errorf("the time is %s from this machine's, the journal's an hour", off)
			}
		})
	}
	for begun.Load() < 16 {
		runtime.Gosched()
	}
	close(store.released)
	calls.Wait()
	impatient, cancel := context.WithCancel(t.Context())
	cancel()
	if err := m.MeasureClock(impatient); err != nil {
		t.Errorf("a clock that was measured can't be read: %v", err)
	}
}
