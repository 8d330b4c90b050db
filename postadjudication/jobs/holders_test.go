package jobs_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/background/lease"
	"github.com/recourse-dev/recourse/postadjudication/jobs"
	"github.com/recourse-dev/recourse/retrypolicy"
)

// handedOver is a job that w1 fetched at one server and w2, who holds it, at another.
func handedOver(t *testing.T, f, other *fixture) jobs.Status {
	t.Helper()
	s := f.mustEnqueue()
	f.mustFetch(s)
	if _, err := other.HandBack(t.Context(), by(s), background.Failure{}); err != nil {
		t.Fatal(err)
	}
	got, err := other.Fetch(t.Context(), jobs.Fetch{Queues: []string{mail}, Count: 1, Worker: "w2", Visibility: time.Minute})
	if err != nil || len(got) != 1 || got[0].Attempt != 1 {
		t.Fatalf("%+v, %v", got, err)
	}
	return s
}

// A server may remember that it gave a job to a worker of before.
func TestTheHolderAnswersAtAServerThatGaveTheJobToAnotherBefore(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	other := f.other()
	for _, attempt := range []int{0, 1} {
		s := handedOver(t, f, other)
		if _, err := f.Ack(t.Context(), jobs.Answer{ID: s.ID, Worker: "w1", Attempt: attempt}, nil); err == nil {
			t.Errorf("attempt %d: the ack of a worker of before was recorded", attempt)
		}
		if _, err := f.Ack(t.Context(), jobs.Answer{ID: s.ID, Worker: "w2", Attempt: attempt}, nil); err != nil {
			t.Errorf("attempt %d: the ack of the holder: %v", attempt, err)
		}
	}
}

// The same between servers whose loops read all leases at intervals.
func TestTheHolderAnswersAtAnyOfTwoRunningServers(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	other := f.other()
	f.StartWorkers()
	other.StartWorkers()
	for range 20 {
		s := handedOver(t, f, other)
		if _, err := f.Ack(t.Context(), jobs.Answer{ID: s.ID, Worker: "w2", Attempt: 1}, nil); err != nil {
			t.Fatal(err)
		}
	}
}

// The lease that a server remembers has ended, and another server has given the job to another worker.
func TestTheHolderAnswersAfterALeaseThatEnded(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	other := f.other()
	other.StartWorkers()
	s := f.mustEnqueue(attempts(3, retrypolicy.DeadLetter))
	if got, err := f.Fetch(t.Context(), jobs.Fetch{Queues: []string{mail}, Count: 1, Worker: "w1", Visibility: shortLeaseLength}); err != nil || len(got) != 1 {
		t.Fatalf("%+v, %v", got, err)
	}
	f.Wait("w2 holds the job", func() bool {
		got, err := other.Fetch(t.Context(), jobs.Fetch{Queues: []string{mail}, Count: 1, Worker: "w2", Visibility: time.Minute})
		return err == nil && len(got) == 1
	})
	if _, err := f.Ack(t.Context(), jobs.Answer{ID: s.ID, Worker: "w2"}, nil); err != nil {
		t.Errorf("the ack of w2, who holds the job: %v", err)
	}
}

const shortLeaseLength = 300 * time.Millisecond

// A heartbeat that is written at the same moment as another one extends the lease too.
func TestHeartbeatsAtOnceExtendALeaseThatIsHeld(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	servers := []*fixture{f, f.other()}
	s := f.mustEnqueue()
	f.mustFetch(s)
	var lost atomic.Int64
	for range 20 {
		var all sync.WaitGroup
		for i := range 8 {
			all.Go(func() {
				got, err := servers[i%2].Heartbeat(context.Background(), "w1", []string{s.ID}, time.Minute)
				if err != nil {
					t.Error(err)
				}
				if len(got) != 1 {
					lost.Add(1)
				}
			})
		}
		all.Wait()
	}
	if lost.Load() > 0 {
		t.Errorf("%d of 160 heartbeats of the holder extended nothing", lost.Load())
	}
}

// A lease whose end is marked by the loop of another server is not extended, and its worker is told so.
func TestAHeartbeatExtendsNoLeaseThatIsMarked(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	s := f.mustEnqueue()
	f.mustFetch(s)
	if _, err := f.DB.Exec(`UPDATE recourse.leases SET ended = 'visibility_timeout'`); err != nil {
		t.Fatal(err)
	}
	if got, err := f.Heartbeat(t.Context(), "w1", []string{s.ID}, 0); err != nil || len(got) != 0 {
		t.Errorf("extended: %v, %v", got, err)
	}
}

// Two servers that get a fetch at once, as when a caller repeats it before it was answered, give the same job.
func TestAFetchThatIsRepeatedAtAnotherServerAtOnceGetsTheSameJob(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	servers := []*fixture{f, f.other()}
	for n := range byte(20) {
		f.mustEnqueue()
		f.mustEnqueue()
		var got [2][]jobs.Fetched
		var all sync.WaitGroup
		for i, server := range servers {
			all.Go(func() {
				var err error
				got[i], err = server.Fetch(context.Background(), jobs.Fetch{Queues: []string{mail}, Count: 1, Worker: "w1", Key: lease.FetchKey{1, n}})
				if err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if len(got[0]) != 1 || len(got[1]) != 1 || got[0][0].ID != got[1][0].ID {
			t.Fatalf("round %d: %d and %d jobs, and not the same one", n, len(got[0]), len(got[1]))
		}
	}
}
