package background_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/recourse-dev/recourse/background"
)

func TestOutcomeIsHeldThroughAnOutageOfTheJournal(t *testing.T) {
	t.Parallel()
	outage := errors.New("journal away")
	called, answer := make(chan struct{}), make(chan struct{})
	h := newFixture(t, func(_ context.Context, a background.Attempt) background.Result {
		if len(a.Run.Payload) > 0 {
			close(called)
			<-answer
		}
		return paid
	})
	w := h.start()
	held := h.submit(w, func(r *background.Run) { r.Payload = []byte("held") })
	<-called
	h.journal.SetDown(outage)
	close(answer)
	h.awaitTrue("the manager is unhealthy", func() bool { return errors.Is(w.Healthy(), outage) })
	other := h.submit(w)
	failures := w.Stats().WriteFailures
	h.awaitTrue("it is retried", func() bool { return w.Stats().WriteFailures >= failures+3 })
	if n := h.calls.Load(); n != 1 {
		t.Errorf("%d calls during the outage", n)
	}
	h.journal.SetDown(nil)
	h.awaitState(held.ID, background.Succeeded)
	h.awaitState(other.ID, background.Succeeded)
	h.awaitTrue("the manager is healthy", func() bool { return w.Healthy() == nil })
	h.startedOnceEach([]background.RunID{held.ID, other.ID}, 1)
	if n := h.calls.Load(); n != 2 {
		t.Errorf("%d calls", n)
	}
}

func TestOutcomeIsHeldThroughAShutdown(t *testing.T) {
	t.Parallel()
	called, answer := make(chan struct{}), make(chan struct{})
	h := newFixture(t, func(context.Context, background.Attempt) background.Result {
		close(called)
		<-answer
		return paid
	})
	w := h.start()
	r := h.submit(w)
	<-called
	h.journal.SetDown(errors.New("journal away"))
	close(answer)
	h.awaitTrue("the manager is unhealthy", func() bool { return w.Healthy() != nil })
	stopped := make(chan struct{})
	go func() { w.stop(); close(stopped) }()
	h.journal.SetDown(nil)
	<-stopped
	if got := h.awaitState(r.ID, background.Succeeded); got.Attempt != 1 {
		t.Errorf("run %+v", got)
	}
}

func TestClaimInAnOutageStartsNothingUntilItIsAnswered(t *testing.T) {
	t.Parallel()
	h := newFixture(t, func(context.Context, background.Attempt) background.Result { return paid })
	w := h.start()
	h.awaitSession()
	h.journal.SetDown(errors.New("journal away"))
	r := h.submit(w)
	i := h.inspector()
	h.awaitTrue("asynq has the delivery back", func() bool {
		tasks, err := i.ListRetryTasks(r.Queue)
		return err == nil && len(tasks) == 1
	})
	if w.Healthy() == nil || h.calls.Load() != 0 {
		t.Errorf("healthy %v, %d calls", w.Healthy(), h.calls.Load())
	}
	h.journal.SetDown(nil)
	h.awaitState(r.ID, background.Succeeded)
	h.startedOnceEach([]background.RunID{r.ID}, 1)
}

func TestCloseGivesUpWhatCannotBeRecorded(t *testing.T) {
	t.Parallel()
	called, answer := make(chan struct{}), make(chan struct{})
	h := newFixture(t, func(context.Context, background.Attempt) background.Result {
		close(called)
		<-answer
		return paid
	})
	w := h.start(func(c *background.Config) { c.Grace = 1 })
	r := h.submit(w)
	<-called
	h.journal.SetDown(errors.New("journal away"))
	close(answer)
	h.awaitTrue("the manager is unhealthy", func() bool { return w.Healthy() != nil })
	if err := w.Close(); err != nil {
		t.Error(err)
	}
	if got := h.journal.Run(r.ID); got.State != background.Running {
		t.Errorf("run %+v", got)
	}
}

func TestTwoOutagesInOneDelivery(t *testing.T) {
	t.Parallel()
	outage := errors.New("journal away")
	h := newFixture(t, func(_ context.Context, a background.Attempt) background.Result {
		if a.Number == 1 {
			return refused
		}
		return paid
	})
	h.journal.SetReliable(true)
	w := h.start(func(c *background.Config) { c.LostAfter = 2 * time.Minute }) // no claim becomes stale meanwhile
	h.awaitSession()
	h.journal.SetDown(outage)
	r := h.submit(w, func(r *background.Run) { r.Policy.BaseDelay = 500 * time.Millisecond })
	i := h.inspector()
	handedBack := func() bool {
		info, err := i.GetTaskInfo(r.Queue, r.ID.String()+".1")
		return err == nil && info.State == asynq.TaskStateRetry
	}
	h.awaitTrue("asynq has the delivery back", handedBack)
	h.journal.SetDown(nil)
	h.awaitState(r.ID, background.Scheduled)
	h.journal.SetDown(outage)
	h.awaitTrue("the second claim is unanswered", func() bool { return errors.Is(w.Healthy(), outage) })
	failures := w.Stats().WriteFailures
	h.awaitTrue("it has been for more than a second", func() bool { return w.Stats().WriteFailures >= failures+8 })
	h.journal.SetDown(nil)
	h.awaitState(r.ID, background.Succeeded)
	h.startedOnceEach([]background.RunID{r.ID}, 2)
	if n := h.calls.Load(); n != 2 {
		t.Errorf("%d calls", n)
	}
}
