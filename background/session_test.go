package background_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/background/backgroundtest"
	"github.com/recourse-dev/recourse/receipts"
)

// frozenStore is the store of a process that can be made to stand still. From then on its
// heartbeats change nothing, and it reads no session, so that it declares none lost.
type frozenStore struct {
	*backgroundtest.Journal
	frozen atomic.Bool
}

func (f *frozenStore) Beat(ctx context.Context, s background.Session) (bool, background.ClockReading, error) {
	if f.frozen.Load() {
		now, err := f.Clock(ctx)
		return true, now, err
	}
	return f.Journal.Beat(ctx, s)
}

func (f *frozenStore) Sessions(ctx context.Context) ([]background.Session, error) {
	if f.frozen.Load() {
		return nil, nil
	}
	return f.Journal.Sessions(ctx)
}

var errFrozen = errors.New("the process stands still")

// configure makes f the store of a process that dequeues no task while it stands still.
// Otherwise it could take each notification of the run that it holds, and put it back for later,
// so that no other process got it.
func (f *frozenStore) configure(c *background.Config) {
	c.Store = f
	c.ClaimsBlocked = func() error {
		if f.frozen.Load() {
			return errFrozen
		}
		return nil
	}
}

// lossIntervals lets a process declare others lost after a short while. Its own claims become
// stale only after a fifth of that, which a busy machine does not reach.
func lossIntervals(c *background.Config) {
	shortIntervals(c)
	c.LostAfter = 3 * time.Second
}

func shortIntervals(c *background.Config) {
	c.BeatEvery, c.BeatGrace, c.LostAfter, c.SweepEvery = 20*time.Millisecond, 200*time.Millisecond, 1500*time.Millisecond, 50*time.Millisecond
}

// A worker that stands still during a call is declared lost. The run continues elsewhere, and
// the result of the call is still recorded.
func TestALostWorkersRunContinuesElsewhere(t *testing.T) {
	t.Parallel()
	called, answer := make(chan struct{}, 1), make(chan struct{})
	h := newFixture(t, func(_ context.Context, a background.Attempt) background.Result {
		if a.Number == 1 {
			called <- struct{}{}
			<-answer
		}
		return paid
	})
	h.journal.SetReliable(true)
	h.family.AttemptLimit = time.Minute // the loss ends the attempt, not its limit
	lost := &frozenStore{Journal: h.journal}
	w := h.start(lost.configure)
	r := h.submit(w)
	<-called
	lost.frozen.Store(true)
	h.start(lossIntervals)
	got := h.awaitState(r.ID, background.Succeeded)
	if got.Attempt != 2 || got.Recoveries != 1 || got.BudgetSpent != 0 {
		t.Errorf("run %+v", got)
	}
	close(answer)
	h.await(r.ID, "answered late", func(background.Run) bool { return slices.Contains(h.events(r.ID), receipts.AnsweredLate) })
	want := []receipts.Subtype{receipts.AttemptStarted, receipts.AttemptInterrupted, receipts.AttemptStarted, receipts.AttemptSucceeded, receipts.AnsweredLate}
	if got := h.events(r.ID); !slices.Equal(got, want) {
		t.Errorf("events %v", got)
	}
}

// A process that finds its session lost cancels its calls and continues under a new session.
func TestAProcessDeclaredLostRegistersAgain(t *testing.T) {
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
	sessions, err := h.journal.Sessions(t.Context())
	if err != nil || len(sessions) != 1 {
		t.Fatalf("%v, %v", sessions, err)
	}
	for lost := false; !lost; {
		if sessions, err = h.journal.Sessions(t.Context()); err != nil {
			t.Fatal(err)
		}
		if lost, err = h.journal.MarkLost(t.Context(), sessions[0]); err != nil {
			t.Fatal(err)
		}
	}
	<-cancelled
	if got := h.awaitState(r.ID, background.Succeeded); got.Attempt != 2 || got.Session == sessions[0].ID {
		t.Errorf("run %+v", got)
	}
}

// A process without answered heartbeats cancels its calls before another could have declared it
// lost, claims nothing, and works again once a heartbeat is answered.
func TestAProcessWithoutAnsweredBeatsCancelsItsCallsAndClaimsNothing(t *testing.T) {
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
	h.journal.SetDown(errors.New("journal away"))
	<-cancelled
	if w.Healthy() == nil {
		t.Error("the process without heartbeats is healthy")
	}
	h.journal.SetDown(nil)
	if got := h.awaitState(r.ID, background.Succeeded); got.Attempt != 2 || got.BudgetSpent != 0 {
		t.Errorf("run %+v", got)
	}
}

// cutStore is the store of a process that can be cut off from the sessions of the journal.
type cutStore struct {
	*backgroundtest.Journal
	cut atomic.Bool
}

var errCut = errors.New("the journal cannot be reached")

func (c *cutStore) Beat(ctx context.Context, s background.Session) (bool, background.ClockReading, error) {
	if c.cut.Load() {
		return false, background.ClockReading{}, errCut
	}
	return c.Journal.Beat(ctx, s)
}

func (c *cutStore) Sessions(ctx context.Context) ([]background.Session, error) {
	if c.cut.Load() {
		return nil, errCut
	}
	return c.Journal.Sessions(ctx)
}

// A process without answered heartbeats that still reaches Redis leaves the notifications to
// others. If it dequeued them, it would put each one back for seconds, again and again.
func TestAProcessWithoutAnsweredBeatsLeavesTheNotificationsToOthers(t *testing.T) {
	t.Parallel()
	h := newFixture(t, func(context.Context, background.Attempt) background.Result { return paid })
	h.journal.SetReliable(true)
	cut := &cutStore{Journal: h.journal}
	w := h.start(shortIntervals, func(c *background.Config) { c.Store, c.Servers = cut, 1 })
	h.awaitSession()
	h.awaitTrue("it works", func() bool { return w.Healthy() == nil })
	cut.cut.Store(true)
	h.awaitTrue("it has no answered heartbeats", func() bool { return w.Healthy() != nil })
	var runs []background.Run
	for range 20 {
		runs = append(runs, h.submit(w))
	}
	live := h.start()
	for _, r := range runs {
		h.awaitState(r.ID, background.Succeeded)
	}
	info, err := h.inspector().GetQueueInfo(runs[0].Queue)
	if err != nil {
		t.Fatal(err)
	}
	if info.Failed > 1 { // one poll may have been on its way when the heartbeats ended
		t.Errorf("%d of %d notifications were put back", info.Failed, len(runs))
	}
	live.stop()
	cut.cut.Store(false)
	h.awaitState(h.submit(w).ID, background.Succeeded)
}

// A claim that was written after its session's heartbeats failed for BeatGrace is not called:
// the call would be cancelled before it began, and count as a failure.
func TestAClaimOfASessionWithoutAnsweredBeatsIsNotCalled(t *testing.T) {
	t.Parallel()
	called, cancelled := make(chan struct{}), make(chan struct{})
	h := newFixture(t, func(ctx context.Context, a background.Attempt) background.Result {
		switch {
		case ctx.Err() != nil:
			t.Error("called under a session without heartbeats")
		case a.Run.RetryKey == "tx:watch" && a.Number == 1:
			close(called)
			<-ctx.Done()
			close(cancelled)
			return vague
		}
		return paid
	})
	h.journal.SetReliable(true)
	w := h.start(shortIntervals)
	watch := h.submit(w, func(r *background.Run) { r.RetryKey = "tx:watch" })
	<-called
	h.journal.SetDown(errors.New("journal away"))
	stuck := h.submit(w)
	<-cancelled
	h.journal.SetDown(nil)
	for _, r := range []background.Run{watch, stuck} {
		if got := h.awaitState(r.ID, background.Succeeded); got.BudgetSpent != 0 {
			t.Errorf("run %+v", got)
		}
	}
}

// The failure that a cancelled call reports proves nothing, even when it is as quick as the
// cancellation; a payment counts.
func TestACallThatGivesUpWithItsSessionIsInterrupted(t *testing.T) {
	t.Parallel()
	var callCtx context.Context
	for range 2000 {
		var end context.CancelFunc
		callCtx, end = context.WithCancel(t.Context())
		if !background.InterruptsCall(callCtx, func(ctx context.Context) background.Result {
			end()
			<-ctx.Done()
			return vague
		}) {
			t.Fatal("a cancelled call that gave up was taken for a failed attempt")
		}
	}
	busy := background.Result{Class: background.NotExecuted, Retry: true, Failure: &background.Failure{Type: "http.busy"}}
	broken := background.Result{Class: background.Unknown, Retry: true, Failure: &background.Failure{Type: background.FailurePanic}}
	for answer, want := range map[*background.Result]bool{&paid: false, &busy: true, &broken: true} {
		if background.InterruptsCall(callCtx, func(context.Context) background.Result { return *answer }) != want {
			t.Errorf("cancelled call: %+v", answer)
		}
	}
	if background.InterruptsCall(t.Context(), func(context.Context) background.Result { return vague }) {
		t.Error("an unknown outcome of a live session was taken for an interruption")
	}
}

// A run whose every worker is lost is not retried for ever: it is recovered from five losses,
// and the sixth dead-letters it, which is no recovery.
func TestAPoisonPillEndsAsADeadLetter(t *testing.T) {
	t.Parallel()
	h := newFixture(t, func(context.Context, background.Attempt) background.Result { return paid })
	h.journal.SetReliable(true)
	gone := background.Session{ID: uuid.New(), Worker: "gone", Lost: true}
	if err := h.journal.Register(t.Context(), gone); err != nil {
		t.Fatal(err)
	}
	r := h.journal.Submit(background.Run{Family: family, RetryKey: "tx:release", Queue: "pay:0", State: background.Running,
		Session: gone.ID, Token: uuid.New(), Attempt: 6, Recoveries: 5})
	h.start(shortIntervals)
	got := h.awaitState(r.ID, background.DeadLettered)
	if got.Reason != background.ReasonPoisonPill || got.Recoveries != 5 || got.Attempt != 6 || got.BudgetSpent != 0 || got.Class != background.Unknown || h.calls.Load() != 0 {
		t.Errorf("run %+v after %d calls", got, h.calls.Load())
	}
}
