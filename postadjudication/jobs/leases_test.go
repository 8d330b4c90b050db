package jobs_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication/jobs"
	"github.com/recourse-dev/recourse/retrypolicy"
)

// Workers that ask for the same queues in different orders at once each get an answer, and no job twice.
func TestFetchesOfTheSameQueuesInAnotherOrder(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ctx := context.Background()
	orders := [][]string{{"a", "b", "c"}, {"c", "a", "b"}, {"b", "c", "a"}}
	var mu sync.Mutex
	given := map[string]int{}
	failed := 0
	for round := range 30 {
		f.mustEnqueue(func(j *jobs.Job) { j.Queue = orders[0][round%3] })
		var all sync.WaitGroup
		for i := range 12 {
			all.Go(func() {
				got, err := f.Fetch(ctx, jobs.Fetch{Queues: orders[i%3], Count: 2, Worker: fmt.Sprintf("w%d", i)})
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					if failed++; failed == 1 {
						t.Errorf("round %d: a fetch failed: %v", round, err)
					}
				}
				for _, one := range got {
					given[one.ID]++
				}
			})
		}
		all.Wait()
	}
	t.Logf("%d fetches failed", failed)
	for id, n := range given {
		if n != 1 {
			t.Errorf("job %s was given %d times", id, n)
		}
	}
	f.MustAudit()
}

// Two servers that end the leases of a silent worker end none of the leases that the next worker gets
// meanwhile for the same jobs.
func TestTheEndOfALeaseIsNotThatOfTheNextAttempt(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.StartWorkers()
	other := f.other()
	other.StartWorkers()
	ctx := context.Background()
	const n = 400
	for range n {
		f.mustEnqueue(attempts(20, retrypolicy.DeadLetter))
	}
	fetch := func(from *fixture, worker string, visibility time.Duration) []jobs.Fetched {
		got, err := from.Fetch(ctx, jobs.Fetch{Queues: []string{mail}, Count: jobs.MaxFetch, Worker: worker, Visibility: visibility})
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	for silent := 0; silent < n; {
		silent += len(fetch(f, "silent", 3*time.Second))
	}
	held := map[string]bool{}
	from := []*fixture{f, other}
	round := 0
	f.Wait("the next worker holds every job", func() bool {
		round++
		for _, one := range fetch(from[round%2], "next", 10*time.Minute) {
			if held[one.ID] {
				t.Errorf("job %s is given out, attempt %d, while it is held for ten minutes", one.ID, one.Attempt)
			}
			held[one.ID] = true
		}
		return len(held) == n
	})
	if ended := f.Count(`SELECT count(*) FROM recourse.leases WHERE worker = 'next' AND ended <> ''`); ended > 0 {
		t.Errorf("%d leases of ten minutes are marked as ended", ended)
	}
	lost := 0
	for id := range held {
		if s := f.mustFind(id); len(s.Failures) > 1 {
			lost++
		}
	}
	if lost > 0 {
		t.Errorf("%d leases of ten minutes ended within seconds", lost)
	}
}

// A worker that names the attempt as it fetched it answers for its job, also after another worker handed
// the job back.
func TestAnAnswerNamesTheAttemptAsItWasFetched(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ctx := context.Background()
	s := f.mustEnqueue()
	f.mustFetch(s)
	if _, err := f.HandBack(ctx, by(s), background.Failure{}); err != nil {
		t.Fatal(err)
	}
	got := f.mustFetch(s)
	named := by(s)
	named.Attempt = got.Attempt
	if _, err := f.Ack(ctx, named, nil); err != nil {
		t.Errorf("the answer of attempt %d, as it was fetched: %v", got.Attempt, err)
	}
}

// A heartbeat extends the lease of a job that was retried and fetched by way of another server, also at a
// server that gave the job to somebody before.
func TestAHeartbeatAtAServerThatGaveAnEarlierRun(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ctx := context.Background()
	other := f.other()
	s := f.mustEnqueue(attempts(1, retrypolicy.DeadLetter))
	f.mustFetch(s) // by way of the first server, which remembers the run
	if _, err := other.Nack(ctx, by(s), refused, true, background.EndByPolicy); err != nil {
		t.Fatal(err)
	}
	retried, err := other.Jobs.DeadLetters().Retry(ctx, s.ID, again)
	if err != nil {
		t.Fatal(err)
	}
	other.mustFetch(retried)
	extended, err := f.Heartbeat(ctx, "w1", []string{s.ID}, time.Minute)
	if err != nil || len(extended) != 1 {
		t.Errorf("the worker that holds the job extended %v, %v", extended, err)
	}
}
