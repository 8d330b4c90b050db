package conformance_test

import (
	"slices"
	"sync/atomic"
	"testing"
	"time"
)

// Section 3: states. The pairs of state and request are in statepairs_test.go.

var states = []string{"scheduled", "available", "pending", "active", "completed", "retryable", "cancelled", "discarded"}

func TestSTA_01_ANewJobIsAvailableScheduledOrPending(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	for _, c := range []struct {
		with members
		want string
	}{
		{members{}, "available"},
		{members{"scheduled_at": "2020-01-01T00:00:00Z"}, "available"},
		{members{"options": members{"delay_until": "2020-01-01T00:00:00Z"}}, "available"},
		{members{"options": members{"pending": false}}, "available"},
		{members{"scheduled_at": "2099-01-01T00:00:00Z"}, "scheduled"},
		{members{"options": members{"delay_until": "2099-01-01T00:00:00Z"}}, "scheduled"},
		{members{"options": members{"scheduled_at": "2099-01-01T00:00:00Z"}}, "scheduled"},
		{members{"scheduled_at": "+PT1H"}, "scheduled"},
		{members{"options": members{"delay_until": "+PT1H"}}, "scheduled"},
		{members{"options": members{"pending": true}}, "pending"},
	} {
		job := q.enqueue(c.with)
		job.are(members{"state": c.want, "attempt": 0})
		find(t, job.text("id")).is("state", c.want)
	}
}

func TestSTA_02_AScheduledJobIsNeverFetchedBeforeItsTime(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	id := q.enqueue(members{"scheduled_at": "+PT2S"}).text("id")
	at := find(t, id).instant("scheduled_at")
	job := q.fetch()
	job.are(members{"id": id, "attempt": 1})
	between(t, "the first attempt", at, job.instant("started_at"), time.Second)
}

func TestSTA_03_AScheduledJobBecomesAvailableByItself(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	job := q.enqueue(members{"scheduled_at": "+PT1S"})
	job.is("state", "scheduled")
	becomes(t, job.text("id"), "available").is("attempt", 0)
}

func TestSTA_04_AJobGoesThroughItsStates(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	id := q.enqueue(quick(2, members{"initial_interval": "PT0.5S", "max_interval": "PT0.5S"})).text("id")
	in := func(state string, attempt int) {
		t.Helper()
		find(t, id).are(members{"state": state, "attempt": attempt})
	}
	in("available", 0)
	q.fetch()
	in("active", 1)
	q.nack(id, failure()).is("state", "retryable")
	becomes(t, id, "available").is("attempt", 1)
	q.fetch()
	in("active", 2)
	q.nack(id, failure()).is("state", "discarded")
	in("discarded", 2)
	retry(t, id)
	in("available", 0)
	q.fetch()
	in("active", 1)
	q.ack(id)
	in("completed", 1)
}

func TestSTA_05_TwoWorkersNeverClaimOneJob(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	const jobs, fetches = 40, 120
	want := map[string]bool{}
	for range jobs {
		want[q.enqueue().text("id")] = true
	}
	taken := make(chan string, fetches*2)
	together(fetches, 24, func(int) {
		a := post(t, root+"/workers/fetch", members{"queues": []string{q.name}, "count": 2, "worker_id": token(), "visibility_timeout_ms": 120_000})
		list, _ := a.object.members["jobs"].([]any)
		for _, each := range list {
			job, _ := each.(members)
			id, _ := job["id"].(string)
			taken <- id
		}
	})
	close(taken)
	got := map[string]bool{}
	for id := range taken {
		if got[id] || !want[id] {
			t.Errorf("job %s was handed out twice, or is none of the queue", id)
		}
		got[id] = true
	}
	if len(got) != jobs {
		t.Errorf("%d of %d jobs were handed out", len(got), jobs)
	}
}

// Of requests that exclude each other one wins, and the others change nothing.
func TestSTA_06_OfRequestsAtOnceOneWins(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	ack := func(id string) *answer { return q.askAck(id, members{"worker_id": q.worker}) }
	nack := func(id string) *answer { return q.askNack(id, failure(), members{"worker_id": q.worker}) }
	cancel := func(id string) *answer { return remove(t, root+"/jobs/"+id) }
	for name, asked := range map[string][]func(string) *answer{
		"two acks": {ack, ack}, "two nacks": {nack, nack}, "ack and nack": {ack, nack}, "ack and cancel": {ack, cancel}, "nack and cancel": {nack, cancel},
		"two cancels": {cancel, cancel},
	} {
		for range 3 {
			id := q.enqueue(oneRun()).text("id")
			q.fetch()
			var won, lost atomic.Int32
			together(len(asked), len(asked), func(i int) {
				switch a := asked[i](id); a.status {
				case 200:
					won.Add(1)
				case 409:
					lost.Add(1)
				default:
					t.Errorf("%s: %s: %d", name, a.name, a.status)
				}
			})
			if won.Load() != 1 || lost.Load() != 1 {
				t.Errorf("%s: %d succeeded and %d were refused, want one each", name, won.Load(), lost.Load())
			}
			job := find(t, id)
			if n := len(job.failures()); n > 1 || (n == 1) != (job.text("state") == "discarded") {
				t.Errorf("%s: the job is %s with %d errors", name, job.text("state"), n)
			}
		}
	}
}

func TestSTA_07_ACancelledJobHasItsTimeAndIsNotCompleted(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	for _, with := range []members{{}, {"scheduled_at": "+PT1H"}, {"options": members{"pending": true}}} {
		id := q.enqueue(with).text("id")
		remove(t, root+"/jobs/"+id).must(200).object("job").are(members{"id": id, "state": "cancelled"})
		job := find(t, id)
		job.is("state", "cancelled")
		job.instant("cancelled_at")
		job.lacks("completed_at", "discarded_at", "result")
	}
	q.isEmpty()
}

// The core document wants a second cancel to succeed; HTTP and clients want 409.
func TestSTA_08_ASecondCancelIsRefused(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	id := q.enqueue().text("id")
	remove(t, root+"/jobs/"+id).must(200)
	before := text(find(t, id).members)
	remove(t, root+"/jobs/"+id).refused(409, "conflict")
	if after := text(find(t, id).members); after != before {
		t.Errorf("the job was %s, and is %s", before, after)
	}
}

func TestSTA_09_ACancelEndsAnActiveJob(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	id := q.enqueue().text("id")
	q.fetch()
	remove(t, root+"/jobs/"+id).must(200)
	find(t, id).is("state", "cancelled")
	q.askAck(id).refused(409, "conflict")
	q.askNack(id, failure()).refused(409, "conflict")
	find(t, id).is("state", "cancelled")
}

// A job that expires before its first attempt is discarded on the next look, and never completed.
func TestSTA_14_AnExpiredJobIsNeverFetched(t *testing.T) {
	t.Parallel()
	for _, end := range []string{"dead_letter", "discard"} {
		q := newQueue(t)
		id := q.enqueue(members{"expires_at": "+PT0.2S", "scheduled_at": "+PT0.1S", "retry": members{"on_exhaustion": end}}).text("id")
		job := becomes(t, id, "discarded")
		job.is("attempt", 0)
		job.instant("discarded_at")
		job.lacks("completed_at", "started_at")
		q.isEmpty()
		if end == "discard" {
			noLetter(t, id)
		} else {
			letter(t, id)
		}
	}
}

func TestSTA_10_NoOtherStateExists(t *testing.T) {
	t.Parallel()
	for _, s := range situations {
		if got := find(t, s.make(newQueue(t))).text("state"); got != s.state || !slices.Contains(states, got) {
			t.Errorf("%s: state %s, want %s", s.name, got, s.state)
		}
	}
}
