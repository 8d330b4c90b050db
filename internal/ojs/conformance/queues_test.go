package conformance_test

import (
	"strings"
	"testing"
)

// Sections 9.2 and 11 of the HTTP binding: batches, pausing and statistics of queues.

func (q *queue) pause() object {
	q.t.Helper()
	return post(q.t, root+"/queues/"+q.name+"/pause", members{}).must(200)
}

func (q *queue) resume() object {
	q.t.Helper()
	return post(q.t, root+"/queues/"+q.name+"/resume", nil).must(200)
}

func (q *queue) stats() object {
	q.t.Helper()
	return get(q.t, root+"/queues/"+q.name+"/stats").must(200)
}

func TestQUE_01_NothingIsFetchedFromAPausedQueue(t *testing.T) {
	t.Parallel()
	q, other := newQueue(t), newQueue(t)
	held := q.enqueue()
	q.fetch()
	paused := q.pause()
	paused.instant("paused_at")
	paused.is("status", "paused")
	paused.object("queue").are(members{"name": q.name, "paused": true})
	again := q.pause()
	again.is("paused_at", paused.text("paused_at"))
	waiting := q.enqueue()
	waiting.is("state", "available")
	q.isEmpty()
	other.enqueue()
	if jobs := q.take(members{"queues": []string{q.name, other.name}, "count": 10}); len(jobs) != 1 || jobs[0].text("queue") != other.name {
		t.Errorf("%d jobs were fetched, want that of the other queue", len(jobs))
	}
	q.heartbeat(held.text("id")).is("jobs_extended", []string{held.text("id")})
	q.ack(held.text("id"))
	resumed := q.resume()
	resumed.instant("resumed_at")
	resumed.object("queue").are(members{"name": q.name, "paused": false})
	q.fetch().is("id", waiting.text("id"))
	q.resume().is("status", "active")
}

func TestQUE_02_StatisticsCountEachState(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	q.stats().object("queue").are(members{"name": q.name, "available": 0, "completed": 0, "paused": false})
	for range 3 {
		q.enqueue()
	}
	q.ack(q.fetch().text("id"))
	q.fetch()
	q.enqueue(members{"options": members{"pending": true}})
	q.enqueue(members{"scheduled_at": "+PT1H"})
	remove(t, root+"/jobs/"+q.enqueue(members{"scheduled_at": "+PT1H"}).text("id")).must(200)
	retried := newQueue(t)
	retried.enqueue(patient)
	retried.fail()
	dead := retried.dead(members{"priority": 5}).text("id")
	retry(t, dead)
	retried.dead(members{"priority": 7})
	q.pause()
	want := members{"available": 1, "active": 1, "pending": 1, "scheduled": 1, "retryable": 0, "completed": 1, "discarded": 0, "cancelled": 1}
	found := q.stats()
	found.object("queue").are(merged(want, members{"name": q.name, "paused": true}))
	found.object("stats").are(want)
	found.are(want)
	found.is("status", "paused")
	found.instant("computed_at")
	retried.stats().object("queue").are(members{"available": 1, "retryable": 1, "discarded": 1})
	get(t, root+"/queues/UPPER/stats").refused(404, "not_found")
	get(t, root+"/queues/"+q.name+"/stats?x=1").refused(400, "invalid_request")
}

func TestQUE_03_TheListSaysWhichArePaused(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	q.enqueue()
	status := func() string {
		for offset := 0; ; offset += 200 {
			page := get(t, root+"/queues?limit=200&offset="+text(offset)).must(200)
			for _, one := range page.objects("queues") {
				if one.text("name") == q.name {
					return one.text("status")
				}
			}
			if !page.object("pagination").flag("has_more") {
				t.Fatal("the queue is not listed")
			}
		}
	}
	for _, want := range []string{"paused", "active"} {
		if want == "paused" {
			q.pause()
		} else {
			q.resume()
		}
		if got := status(); got != want {
			t.Errorf("the queue is %s, want %s", got, want)
		}
	}
	post(t, root+"/queues/"+strings.Repeat("q", 128)+"/pause", nil).must(200)
	post(t, root+"/queues/"+strings.Repeat("q", 129)+"/pause", nil).refused(404, "not_found")
	post(t, root+"/queues/"+strings.Repeat("q", 128)+"/resume", nil).must(200)
}

func (q *queue) batch(jobs ...members) *answer {
	q.t.Helper()
	return post(q.t, root+"/jobs/batch", members{"jobs": jobs})
}

func TestBAT_01_ABatchIsEnqueuedWhole(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	jobs := make([]members, 100)
	for i := range jobs {
		jobs[i] = members{"type": q.kind, "args": []any{members{"i": i}}, "options": members{"queue": q.name}}
	}
	jobs[0]["id"] = newID()
	answer := q.batch(jobs...).must(201)
	answer.is("count", len(jobs))
	made := answer.objects("jobs")
	if len(made) != len(jobs) {
		t.Fatalf("%d jobs", len(made))
	}
	for i, job := range made {
		job.are(members{"state": "available", "queue": q.name, "args": []any{members{"i": i}}, "attempt": 0})
		job.instant("enqueued_at")
		get(t, root+"/jobs/"+job.text("id")).must(200)
	}
	made[0].is("id", jobs[0]["id"])
	q.stats().object("queue").is("available", len(jobs))
}

func TestBAT_02_OneBadJobRefusesTheBatch(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	taken := q.enqueue(members{"scheduled_at": "+PT1H"}).text("id")
	id := newID()
	for field, jobs := range map[string][]members{
		"jobs[2].type":               {q.body(), q.body(), {"args": []any{}}},
		"jobs[1].args":               {q.body(), q.body(members{"args": 1})},
		"jobs[1].id":                 {q.body(members{"id": id}), q.body(members{"id": id})},
		"jobs[0].args[0].password":   {q.body(members{"args": []any{members{"password": "x"}}}), q.body()},
		"jobs[1].retry.max_attempts": {q.body(), q.body(members{"retry": members{"max_attempts": -1}})},
		"jobs":                       {},
	} {
		a := q.batch(jobs...)
		if a.status != 400 && a.status != 422 {
			t.Fatalf("%s: %d", field, a.status)
		}
		a.object.object("error").object("details").is("field", field)
	}
	refused := q.batch(q.body(), q.body(members{"id": taken})).refused(409, "duplicate")
	refused.object("details").are(members{"index": 1, "existing_job_id": taken})
	order := members{"type": "settlement.execute", "queue": "payouts", "args": []any{members{}}}
	q.batch(q.body(), order).refused(422, "unsupported").naming("jobs[1].type")
	for _, body := range []any{members{"jobs": members{}}, members{}, members{"jobs": []any{1}}, members{"jobs": []members{q.body()}, "atomic": false}} {
		if a := post(t, root+"/jobs/batch", body); a.status != 400 {
			t.Errorf("%s: %d", text(body), a.status)
		}
	}
	q.isEmpty()
	q.stats().object("queue").are(members{"available": 0, "scheduled": 1})
}

func TestBAT_03_UniqueJobsOfABatch(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	unique := func(arg, conflict string) members {
		return q.body(members{"args": []any{arg}, "unique": members{"keys": []string{"type", "args"}, "on_conflict": conflict}})
	}
	first := q.enqueue(unique("a", "reject"))
	refused := q.batch(q.body(), unique("a", "reject")).refused(409, "duplicate")
	refused.object("details").are(members{"index": 1, "existing_job_id": first.text("id")})
	q.stats().object("queue").is("available", 1)

	made := q.batch(unique("a", "ignore"), unique("b", "ignore"), unique("b", "ignore")).must(201).objects("jobs")
	made[0].are(members{"id": first.text("id"), "deduplicated": true})
	made[2].are(members{"id": made[1].text("id"), "deduplicated": true})
	made[1].lacks("deduplicated")
	q.stats().object("queue").is("available", 2)

	made = q.batch(unique("a", "replace"), unique("c", "replace"), unique("c", "replace")).must(201).objects("jobs")
	for i, state := range []string{"available", "cancelled", "available"} {
		made[i].is("state", state)
		get(t, root+"/jobs/"+made[i].text("id")).must(200).object("job").is("state", state)
	}
	get(t, root+"/jobs/"+first.text("id")).must(200).object("job").is("state", "cancelled")
}
