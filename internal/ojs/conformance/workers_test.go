package conformance_test

import (
	"slices"
	"testing"
	"time"
)

// Section 6: the worker surface.

func TestWRK_01_QueuesAreTakenInTheOrderGiven(t *testing.T) {
	t.Parallel()
	first, second := newQueue(t), newQueue(t)
	low := first.enqueue(members{"priority": -5}).text("id")
	high := second.enqueue(members{"priority": 100}).text("id")
	got := ids(first.take(members{"queues": []string{first.name, second.name}, "count": 5}))
	if !slices.Equal(got, []string{low, high}) {
		t.Errorf("fetched %v, want %v", got, []string{low, high})
	}
}

func TestWRK_02_InAQueuePriorityComesBeforeAge(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	var want []string
	for _, p := range []int{0, 0, 7, -100, 7} {
		want = append(want, q.enqueue(members{"priority": p}).text("id"))
	}
	want = []string{want[2], want[4], want[0], want[1], want[3]}
	var got []string
	for range want {
		got = append(got, q.fetch().text("id"))
	}
	if !slices.Equal(got, want) {
		t.Errorf("fetched %v, want %v", got, want)
	}
}

func TestWRK_03_AFetchedJobIsActiveWithItsAttempt(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	made := q.enqueue(quick(3), members{"meta": members{"a": 1}, "hello": "x"})
	job := q.fetch()
	job.are(members{"id": made.text("id"), "state": "active", "attempt": 1, "max_attempts": 3, "args": []any{"tx_1"}, "meta": members{"a": 1}, "hello": "x", "type": q.kind, "queue": q.name})
	job.instant("started_at")
	job.lacks("retry_delay_ms", "completed_at")
	delay := q.nack(made.text("id"), failure()).whole("retry_delay_ms")
	again := q.fetch()
	again.are(members{"attempt": 2, "retry_delay_ms": delay})
}

func TestWRK_04_AnEmptyFetchIsAnEmptyList(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	if jobs := q.take(); len(jobs) != 0 {
		t.Errorf("%v", ids(jobs))
	}
	post(t, root+"/workers/fetch", members{"queues": []string{q.name}}).must(200).is("jobs", []any{})
}

func TestWRK_05_BadFetchesAreRefused(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	q.enqueue()
	for name, body := range map[string]members{
		"queues": {"count": 1}, "queues of nothing": {"queues": []string{}}, "queues that are a text": {"queues": q.name}, "queues with a bad name": {"queues": []string{"Q"}},
		"count of 0": {"queues": []string{q.name}, "count": 0}, "count below 0": {"queues": []string{q.name}, "count": -1}, "count that is a text": {"queues": []string{q.name}, "count": "1"},
		"worker_id that is a number": {"queues": []string{q.name}, "worker_id": 7}, "visibility_timeout_ms of 0": {"queues": []string{q.name}, "visibility_timeout_ms": 0},
	} {
		if a := post(t, root+"/workers/fetch", body); a.status != 400 {
			t.Errorf("%s: %d", name, a.status)
		}
	}
	if len(q.take()) != 1 {
		t.Error("a refused fetch took the job")
	}
}

func TestWRK_06_AnAckCompletes(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	id := q.enqueue(quick(2)).text("id")
	q.fail()
	q.fetch()
	answer := q.ack(id, members{"worker_id": q.worker, "result": members{"sent": 1}})
	answer.are(members{"acknowledged": true, "id": id, "job_id": id, "state": "completed"})
	at := answer.instant("completed_at")
	job := find(t, id)
	job.are(members{"state": "completed", "result": members{"sent": 1}})
	job.lacks("error")
	if got := job.instant("completed_at"); !got.Equal(at) {
		t.Errorf("completed_at %v, the answer said %v", got, at)
	}
	if len(job.failures()) != 1 {
		t.Errorf("errors: %s", text(job.members["errors"]))
	}
}

func TestWRK_07_ResultsAreAnyJSON(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	for _, result := range []string{`{"n":9007199254740993}`, `[1,null]`, `"x"`, `7`, `false`} {
		id := q.enqueue().text("id")
		q.fetch()
		q.ack(id, members{"result": literal(result)})
		find(t, id).is("result", literal(result))
	}
	for _, with := range []members{{}, {"result": nil}} {
		id := q.enqueue().text("id")
		q.fetch()
		q.ack(id, with)
		find(t, id).lacks("result")
	}
}

func TestWRK_08_ANackAnswersWithWhatBecameOfTheJob(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	id := q.enqueue(members{"retry": members{"max_attempts": 4, "initial_interval": "PT1M", "jitter": false}}).text("id")
	q.fetch()
	answer := q.nack(id, failure())
	answer.are(members{"id": id, "job_id": id, "state": "retryable", "attempt": 1, "max_attempts": 4, "retry_delay_ms": 60_000})
	next := answer.instant("next_attempt_at")
	job := find(t, id)
	job.are(members{"state": "retryable", "attempt": 1, "retry_delay_ms": 60_000})
	for _, name := range []string{"next_attempt_at", "next_retry_at"} { // HTTP has the one, the retry and event documents the other
		if got := job.instant(name); !got.Equal(next) {
			t.Errorf("%s is %v, the answer said %v", name, got, next)
		}
	}
	failed := job.failures()[0].instant("occurred_at")
	if d := next.Sub(failed); d != time.Minute {
		t.Errorf("next_attempt_at is %v after the failure", d)
	}
}

func TestWRK_09_TheLastNackDiscards(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	id := q.enqueue(quick(3)).text("id")
	for n := 1; n <= 2; n++ {
		q.fail().are(members{"state": "retryable", "attempt": n})
	}
	answer := q.fail()
	answer.are(members{"state": "discarded", "attempt": 3, "max_attempts": 3})
	if c, d := answer.instant("completed_at"), answer.instant("discarded_at"); !c.Equal(d) {
		t.Errorf("completed_at %v, discarded_at %v", c, d)
	}
	find(t, id).are(members{"state": "discarded", "attempt": 3})
}

func TestWRK_10_NotRetryableDiscardsAtOnce(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	q.enqueue(patient)
	q.fail(members{"retryable": false}).are(members{"state": "discarded", "attempt": 1, "max_attempts": 3})
	q.enqueue(patient)
	q.fail(members{"retryable": true}).is("state", "retryable")
}

// HTTP leaves the attempt of a job that is handed back to the server; it does not count here.
func TestWRK_11_AJobThatIsHandedBackIsAvailableAtOnce(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	id := q.enqueue(oneRun()).text("id")
	for range 3 {
		q.fetch().is("attempt", 1)
		q.nack(id, failure(members{"retryable": false}), members{"requeue": true}).are(members{"state": "available", "attempt": 0})
		job := find(t, id)
		job.are(members{"state": "available", "attempt": 0})
		if len(job.failures()) != 0 {
			t.Errorf("errors: %s", text(job.members["errors"]))
		}
	}
	q.fail().is("state", "discarded")
}

func TestWRK_12_ANackNeedsAnError(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	id := q.enqueue().text("id")
	q.fetch()
	for _, body := range []members{{"job_id": id}, {"job_id": id, "error": nil}, {"job_id": id, "error": "x"}, {"job_id": id, "error": []any{}}, {"job_id": id, "error": members{"code": 7}}, {"error": members{}}} {
		post(t, root+"/workers/nack", body).refused(400, "invalid_request")
	}
	find(t, id).is("state", "active")
	post(t, root+"/workers/ack", members{}).refused(400, "invalid_request").naming("job_id")
}

func TestWRK_13_OnlyTheHolderAnswers(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	id := q.enqueue().text("id")
	q.fetch()
	other := members{"worker_id": "worker-" + token()}
	q.askAck(id, other).refused(409, "conflict")
	q.askNack(id, failure(), other).refused(409, "conflict")
	if extended := q.another().heartbeat(id).list("jobs_extended"); len(extended) != 0 {
		t.Errorf("another worker extended %v", extended)
	}
	q.askAck(id, members{"worker_id": q.worker, "attempt": 2}).refused(409, "conflict")
	find(t, id).is("state", "active")
	q.ack(id, members{"worker_id": q.worker, "attempt": 1})
}

// A client that names no worker is taken for the holder: those in use name none in ack and nack.
func TestWRK_14_AnAnswerWithoutANameIsTheHolders(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	q.enqueue()
	q.ack(q.fetch().text("id"))
	q.enqueue()
	named := q.take(members{"worker_id": dropped{}})
	if len(named) != 1 {
		t.Fatal("nothing was fetched")
	}
	q.ack(named[0].text("id"), members{"worker_id": q.worker}) // a lease of nobody in particular
}

func TestWRK_15_AnsweringTwiceIsRefused(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	id := q.enqueue().text("id")
	q.fetch()
	q.ack(id)
	problem := q.askAck(id).refused(409, "conflict")
	problem.object("details").is("current_state", "completed")
	q.askNack(id, failure()).refused(409, "conflict")
	find(t, id).is("state", "completed")
}

func TestWRK_16_AnsweringForNoJobIsNotFound(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	for _, id := range []string{newID(), "", "x", "0197A1C2-0000-7000-8000-000000000001", "550e8400-e29b-41d4-a716-446655440000"} {
		q.askAck(id).refused(404, "not_found")
		q.askNack(id, failure()).refused(404, "not_found")
	}
}

// The end of a lease: practice and the core document have the job available at once, the retry document
// after its backoff.
func TestWRK_17_ALeaseEnds(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	id := q.enqueue(patient).text("id")
	q.fetch(members{"visibility_timeout_ms": 300})
	again := q.fetch()
	again.are(members{"id": id, "attempt": 2})
	failed := find(t, id).failures()
	if len(failed) != 1 {
		t.Fatalf("errors: %d", len(failed))
	}
	failed[0].are(members{"type": "visibility_timeout", "code": "visibility_timeout", "attempt": 1})
	q.askAck(id, members{"worker_id": q.worker, "attempt": 1}).refused(409, "conflict")
	q.ack(id, members{"attempt": 2})
}

func TestWRK_18_TheLastLeaseDiscards(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	id := q.enqueue(oneRun()).text("id")
	q.fetch(members{"visibility_timeout_ms": 200})
	becomes(t, id, "discarded")
	letter(t, id).object("error").is("type", "visibility_timeout")
	q.askAck(id).refused(409, "conflict")
}

func TestWRK_19_AHeartbeatRestartsTheLease(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	id := q.enqueue(patient).text("id")
	q.fetch(members{"visibility_timeout_ms": 2000})
	for begun := time.Now(); time.Since(begun) < 5*time.Second; {
		answer := q.heartbeat(id)
		answer.are(members{"state": "running", "directive": "", "jobs_extended": []any{id}})
		answer.instant("server_time")
		<-time.After(200 * time.Millisecond)
	}
	find(t, id).are(members{"state": "active", "attempt": 1})
	q.ack(id)
}

func TestWRK_20_HeartbeatsHaveManyForms(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	id := q.enqueue(patient).text("id")
	q.fetch()
	for name, body := range map[string]members{
		"HTTP": {"active_jobs": []string{id}}, "the worker protocol": {"active_jobs": 1, "active_job_ids": []string{id}, "state": "running", "hostname": "h", "pid": 7}, "the API document": {"job_id": id},
		"twice": {"active_jobs": []string{id, id}}, "with others": {"active_jobs": []string{newID(), "x", id}},
	} {
		answer := post(t, root+"/workers/heartbeat", merged(body, members{"worker_id": q.worker})).must(200)
		if got := answer.list("jobs_extended"); len(got) != 1 || got[0] != id {
			t.Errorf("%s: extended %v", name, got)
		}
	}
	post(t, root+"/workers/heartbeat", members{"active_jobs": 7}).refused(400, "invalid_request").naming("worker_id")
	post(t, root+"/workers/heartbeat", members{"worker_id": 7}).refused(400, "invalid_request").naming("worker_id")
}

func TestWRK_21_AnExecutionHasATimeLimit(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	id := q.enqueue(patient, members{"options": members{"timeout_ms": 300}}).text("id")
	q.fetch()
	job := becomes(t, id, "retryable")
	job.object("error").are(members{"code": "timeout", "attempt": 1})
	q.askAck(id).refused(409, "conflict")
}

// Strict checkers ask the server for the state that a job's meta names; no document has it.
func TestWRK_22_AHeartbeatBringsDirectives(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	for _, asked := range []string{"quiet", "terminate"} {
		q.alone().enqueue(members{"options": members{"metadata": members{"test_directive": asked}}})
		q.heartbeat(q.fetch().text("id")).are(members{"state": asked, "directive": asked})
	}
}

func TestWRK_23_LeasesAreAsTheFetchOrTheJobSays(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	for _, c := range []struct {
		job, fetch members
		want       int
	}{
		{members{}, members{"visibility_timeout_ms": dropped{}}, 30_000},
		{members{"options": members{"visibility_timeout_ms": 45_000}}, members{"visibility_timeout_ms": dropped{}}, 45_000},
		{members{"options": members{"visibility_timeout_ms": 45_000}}, members{"visibility_timeout_ms": 50_000}, 50_000},
		{members{"visibility_timeout": 20}, members{"visibility_timeout_ms": dropped{}}, 20_000},
	} {
		q.enqueue(c.job)
		q.fetch(c.fetch).is("visibility_timeout_ms", c.want)
	}
}
