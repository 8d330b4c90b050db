package conformance_test

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/internal/testkit/poll"
)

const (
	// patience bounds every wait for something that has to happen.
	patience = 60 * time.Second

	// slack is added to the bounds of the reference, for a busy machine.
	slack = 15 * time.Second
)

// wait polls until something is true, and ends the test if it does not become so.
func wait(t *testing.T, what string, yes func() bool) {
	t.Helper()
	poll.Within(t, patience, what, yes)
}

// together calls do for 0 to n-1, as many at once as there are workers.
func together(n, workers int, do func(int)) {
	var next atomic.Int64
	var all sync.WaitGroup
	for range workers {
		all.Go(func() {
			for i := next.Add(1) - 1; int(i) < n; i = next.Add(1) - 1 {
				do(int(i))
			}
		})
	}
	all.Wait()
}

// random returns n random bytes.
func random(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails
	return b
}

// newID returns a UUIDv7, as a client makes them.
func newID() string {
	b := random(16)
	ms := time.Now().UnixMilli()
	for i := range 6 {
		b[i] = byte(ms >> (8 * (5 - i)))
	}
	b[6], b[8] = b[6]&0x0f|0x70, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// token returns a word that no other test uses, also on a server that was tested before.
func token() string {
	return "t" + hex.EncodeToString(random(6))
}

// now returns the time of the server.
func now(t *testing.T) time.Time {
	t.Helper()
	return post(t, root+"/workers/heartbeat", members{"worker_id": token(), "active_jobs": []string{}}).must(200).instant("server_time")
}

// queue is a queue of a test's own, with a type of jobs and a worker.
type queue struct {
	t      *testing.T
	name   string
	kind   string
	worker string
}

func newQueue(t *testing.T) *queue {
	t.Helper()
	word := token()
	return &queue{t, "q-" + word, "conformance." + word, "worker-" + word}
}

// another returns the same queue for another worker.
func (q *queue) another() *queue {
	other := *q
	other.worker = "worker-" + token()
	return &other
}

// body returns the body that enqueues a job.
func (q *queue) body(more ...members) members {
	return merged(append([]members{{"type": q.kind, "queue": q.name, "args": []any{"tx_1"}}}, more...)...)
}

// enqueue makes a job.
func (q *queue) enqueue(more ...members) object {
	q.t.Helper()
	return post(q.t, root+"/jobs", q.body(more...)).must(201).object("job")
}

// refuses checks that a job is refused, and that nothing of it is in the queue.
func (q *queue) refuses(status int, code string, body any) object {
	q.t.Helper()
	problem := post(q.t, root+"/jobs", body).refused(status, code)
	q.isEmpty()
	return problem
}

// take fetches what can be fetched now, one job unless more says otherwise.
func (q *queue) take(more ...members) []object {
	q.t.Helper()
	all := append([]members{{"queues": []string{q.name}, "count": 1, "worker_id": q.worker, "visibility_timeout_ms": 120_000}}, more...)
	return post(q.t, root+"/workers/fetch", merged(all...)).must(200).objects("jobs")
}

// fetch waits until a job can be fetched.
func (q *queue) fetch(more ...members) (job object) {
	q.t.Helper()
	wait(q.t, "a job of "+q.name+" can be fetched", func() bool {
		jobs := q.take(more...)
		if len(jobs) > 0 {
			job = jobs[0]
		}
		return len(jobs) > 0
	})
	return job
}

// isEmpty checks that nothing can be fetched now.
func (q *queue) isEmpty() {
	q.t.Helper()
	if jobs := q.take(); len(jobs) > 0 {
		q.t.Errorf("fetched %s, want nothing", text(jobs[0].members))
	}
}

// ack answers for a job that a worker of the queue holds.
func (q *queue) ack(id string, more ...members) object {
	q.t.Helper()
	return q.askAck(id, more...).must(200)
}

func (q *queue) askAck(id string, more ...members) *answer {
	q.t.Helper()
	return post(q.t, root+"/workers/ack", merged(append([]members{{"job_id": id}}, more...)...))
}

// failure is the error of a failed attempt.
func failure(more ...members) members {
	return merged(append([]members{{"code": "handler_error", "type": "TestError", "message": "it failed"}}, more...)...)
}

// nack reports that an attempt failed.
func (q *queue) nack(id string, failed members, more ...members) object {
	q.t.Helper()
	return q.askNack(id, failed, more...).must(200)
}

func (q *queue) askNack(id string, failed members, more ...members) *answer {
	q.t.Helper()
	return post(q.t, root+"/workers/nack", merged(append([]members{{"job_id": id, "error": failed}}, more...)...))
}

// fail fetches a job and reports that its attempt failed.
func (q *queue) fail(more ...members) object {
	q.t.Helper()
	job := q.fetch()
	return q.nack(job.text("id"), failure(more...))
}

// heartbeat names jobs that the worker executes.
func (q *queue) heartbeat(ids ...string) object {
	q.t.Helper()
	return post(q.t, root+"/workers/heartbeat", members{"worker_id": q.worker, "active_jobs": ids}).must(200)
}

// oneRun is the policy of a job that becomes a dead letter at its first failure.
func oneRun(more ...members) members {
	return members{"retry": merged(append([]members{{"max_attempts": 1, "on_exhaustion": "dead_letter"}}, more...)...)}
}

// patient is the policy of a job that can fail three times, and waits for an hour in between.
var patient = members{"retry": members{"initial_interval": "PT1H", "max_interval": "PT1H", "jitter": false, "on_exhaustion": "dead_letter"}}

// quick is the policy of a job that is tried again at once, n times in all.
func quick(n int, more ...members) members {
	return members{"retry": merged(append([]members{{
		"max_attempts": n, "initial_interval": "PT0.01S", "max_interval": "PT0.02S", "jitter": false, "on_exhaustion": "dead_letter",
	}}, more...)...)}
}

// dead makes a dead letter, and returns it.
func (q *queue) dead(more ...members) object {
	q.t.Helper()
	return q.deadOf(failure(), more...)
}

// deadOf makes a dead letter of a failure. Nothing else may wait in the queue of the job.
func (q *queue) deadOf(failed members, more ...members) object {
	q.t.Helper()
	job := q.enqueue(append([]members{oneRun()}, more...)...)
	id, from := job.text("id"), *q
	from.name = job.text("queue")
	if got := from.fetch().text("id"); got != id {
		q.t.Fatalf("fetched %s from %s, want %s", got, from.name, id)
	}
	q.nack(id, failed)
	return letter(q.t, id)
}

// deadMany makes n dead letters, many at once, and returns their ids.
func (q *queue) deadMany(n int) map[string]bool {
	q.t.Helper()
	together(n, 16, func(int) {
		if a := post(q.t, root+"/jobs", q.body(oneRun())); a.status != 201 {
			q.t.Errorf("%s: %d, want 201: %s", a.name, a.status, shortened(a.raw))
		}
	})
	ids := make([]string, 0, n)
	for len(ids) < n && !q.t.Failed() {
		job := q.fetch(members{"count": 1})
		ids = append(ids, job.text("id"))
		for _, more := range q.take(members{"count": 100}) {
			ids = append(ids, more.text("id"))
		}
	}
	together(len(ids), 16, func(i int) {
		if a := q.askNack(ids[i], failure()); a.status != 200 {
			q.t.Errorf("%s: %d, want 200: %s", a.name, a.status, shortened(a.raw))
		}
	})
	if q.t.Failed() {
		q.t.FailNow()
	}
	out := map[string]bool{}
	for _, id := range ids {
		out[id] = true
	}
	return out
}

// expireMany makes n dead letters of jobs that nobody fetches in time, and moves the clock by five minutes.
func (q *queue) expireMany(n int) {
	q.t.Helper()
	total := func() int { return get(q.t, letters+"?queue="+q.name+"&limit=1").must(200).whole("total") }
	want := total() + n
	together(n, 16, func(int) {
		if a := post(q.t, root+"/jobs", q.body(oneRun(), members{"expires_at": "+PT4M"})); a.status != 201 {
			q.t.Errorf("%s: %d, want 201: %s", a.name, a.status, shortened(a.raw))
		}
	})
	advance(q.t, "PT5M")
	poll.Within(q.t, 10*patience, "each is a dead letter", func() bool { return total() == want })
}

// find returns a job by its id.
func find(t *testing.T, id string) object {
	t.Helper()
	return get(t, root+"/jobs/"+id).must(200).object("job")
}

// letter returns a dead letter by the id of its job.
func letter(t *testing.T, id string) object {
	t.Helper()
	return get(t, letters+"/"+id).must(200).object("job")
}

// letters is the path of the dead letters.
const letters = root + "/dead-letter"

// noLetter checks that a job is no dead letter.
func noLetter(t *testing.T, id string) {
	t.Helper()
	get(t, letters+"/"+id).refused(404, "not_found")
}

// retry retries a dead letter.
func retry(t *testing.T, id string) object {
	t.Helper()
	return post(t, letters+"/"+id+"/retry", members{}).must(200).object("job")
}

// listed returns the dead letters that a query finds.
func listed(t *testing.T, query string) []object {
	t.Helper()
	return get(t, letters+"?"+query).must(200).objects("jobs")
}

// ids returns the ids of jobs, in their order.
func ids(jobs []object) []string {
	out := make([]string, 0, len(jobs))
	for _, job := range jobs {
		out = append(out, job.text("id"))
	}
	return out
}

// becomes waits until a job is in a state, and returns it.
func becomes(t *testing.T, id, state string) (job object) {
	t.Helper()
	wait(t, "job "+id+" is "+state, func() bool {
		job = find(t, id)
		return job.text("state") == state
	})
	return job
}

// between checks that a time is at least from and at most bound after it, slack allowed.
func between(t *testing.T, what string, from, at time.Time, bound time.Duration) {
	t.Helper()
	if at.Before(from) {
		t.Errorf("%s: %v before its time", what, from.Sub(at))
	}
	if late := at.Sub(from); late > bound+slack {
		t.Errorf("%s: %v after its time, want at most %v and %v for a busy machine", what, late, bound, slack)
	}
}
