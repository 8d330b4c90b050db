package webhooks_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"

	"github.com/recourse-dev/recourse/internal/testkit"
	"github.com/recourse-dev/recourse/postadjudication/internal/rig"
)

// A request that is cut since its process ends is no failure of the receiver.
func TestARequestThatTheSenderCutsIsNoFailure(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	r := newReceiver(t, nil)
	hangs, free := make(chan struct{}, 10), make(chan struct{})
	r.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		select {
		case <-free:
			r.ServeHTTP(w, q)
		default:
			hangs <- struct{}{}
			<-free
		}
	})
	w := f.create(r)
	f.StartWorkers()
	f.MustSubmit(rig.Release(1))
	f.WaitSettled(1)
	<-hangs
	f.StopWorkers()
	if got := f.get(w); got.Failures != 0 || !got.FailingSince.IsZero() || got.LastFailure != "" || got.Waiting == 0 {
		t.Errorf("%+v", got)
	}
	close(free)
	next := f.other()
	next.StartWorkers()
	next.waitAll(r)
}

// A process that ends while it writes positions finishes the statement: it waits for its requests in flight, and
// the next process sends nothing again.
func TestAProcessThatEndsFinishesWritingPositions(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	r := newReceiver(t, nil)
	cut, free := make(chan struct{}, 10), make(chan struct{})
	r.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		select {
		case <-free:
			r.ServeHTTP(w, q)
		case <-q.Context().Done():
			cut <- struct{}{}
		}
	})
	w := f.create(r)
	unlock := testkit.LockTables(t, f.DB, `recourse.webhook_positions IN EXCLUSIVE MODE`)
	f.StartWorkers()
	f.MustSubmit(rig.Release(1))
	f.WaitSettled(1)
	f.WaitBlockedOn("webhook_positions")
	stopped := make(chan struct{})
	go func() { f.StopWorkers(); close(stopped) }()
	select {
	case <-stopped:
		t.Error("the process has ended before it wrote its positions")
	case <-cut:
		t.Error("the process has cut a request in flight")
	case <-time.After(time.Second): // less than the timeout of a statement
	}
	close(free)
	unlock()
	<-stopped
	sent := r.tried()
	if got := f.get(w); got.Delivered != int64(sent) || sent == 0 || got.Failures != 0 {
		t.Errorf("%d were sent: %+v", sent, got)
	}
}

// A webhook whose position is set while a request is in flight waits for its answer: at no moment are
// there two senders of one webhook. Rotations meanwhile lose nothing.
func TestAReplayWaitsForTheRequestInFlight(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	r := newReceiver(t, nil)
	began, free := make(chan struct{}, 1000), make(chan struct{})
	r.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		began <- struct{}{}
		<-free
		r.ServeHTTP(w, q)
	})
	w := f.create(r)
	f.StartWorkers()
	f.MustSubmit(rig.Release(1))
	f.WaitSettled(1)
	<-began
	if _, err := f.Replay(t.Context(), w.ID, 0, "again"); err != nil {
		t.Fatal(err)
	}
	if _, _, err := f.Rotate(t.Context(), w.ID, "", time.Hour, "a year old"); err != nil {
		t.Fatal(err)
	}
	select {
	case <-began:
		t.Error("a second request began beside the one in flight")
	case <-time.After(3 * time.Second): // webhooks are read each second
	}
	close(free)
	f.waitAll(r)
	f.MustAudit()
}

// How long an event has failed for does not begin anew with each process.
func TestTheTimeOfTheFirstFailureOutlivesTheProcess(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	r := newReceiver(t, func(event.Event) int { return http.StatusServiceUnavailable })
	w := f.create(r)
	f.StartWorkers()
	f.MustSubmit(rig.Release(1))
	f.WaitSettled(1)
	f.Wait("it fails", func() bool { return !f.get(w).FailingSince.IsZero() })
	f.StopWorkers()
	since := f.get(w).FailingSince
	next := f.other()
	next.StartWorkers()
	before := f.get(w).Failures
	next.Wait("the next process fails, too", func() bool { return f.get(w).Failures > before })
	if got := f.get(w).FailingSince; !got.Equal(since) {
		t.Errorf("it fails since %s, and said %s before", got, since)
	}
}
