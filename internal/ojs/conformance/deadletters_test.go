package conformance_test

import (
	"net/http"
	"slices"
	"sync"
	"testing"
)

// Sections 10 and 11: one dead letter. Lists are in letterlist_test.go, many at once in bulk_test.go.

// Every way into the dead letters, with each end that a policy can have.
func TestDLQ_001_WhatIsADeadLetter(t *testing.T) {
	t.Parallel()
	for _, end := range []string{"dead_letter", "discard"} {
		for name, c := range map[string]struct {
			failed   members
			policy   members
			isLetter bool
		}{
			"attempts used up": {failure(), members{"max_attempts": 1}, end == "dead_letter"},
			"not retryable":    {failure(members{"retryable": false}), members{"max_attempts": 5}, end == "dead_letter"},
			"listed as final":  {failure(members{"type": "Fatal"}), members{"max_attempts": 5, "non_retryable_errors": []string{"Fatal"}}, end == "dead_letter"},
			"DEAD_LETTER":      {failure(members{"code": "DEAD_LETTER"}), members{"max_attempts": 5}, true},
			"DISCARD":          {failure(members{"code": "DISCARD"}), members{"max_attempts": 1}, false},
			"FAIL":             {failure(members{"code": "FAIL"}), members{"max_attempts": 1}, false},
		} {
			t.Run(name+" with "+end, func(t *testing.T) {
				t.Parallel()
				q := newQueue(t)
				id := q.enqueue(members{"retry": merged(c.policy, members{"on_exhaustion": end})}).text("id")
				q.fetch()
				q.nack(id, c.failed).is("state", "discarded")
				find(t, id).instant("discarded_at")
				list := ids(listed(t, "queue="+q.name))
				if !c.isLetter {
					noLetter(t, id)
					if len(list) != 0 {
						t.Errorf("listed: %v", list)
					}
					return
				}
				letter(t, id).are(members{"id": id, "state": "discarded"})
				if !slices.Equal(list, []string{id}) {
					t.Errorf("listed: %v", list)
				}
			})
		}
	}
}

func TestDLQ_002_TheHistoryIsKeptAndTheJobUnchanged(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	args := literal(`["a<b>&",1e400,9007199254740993,1.50,{"x":[null,true]},"\u2028"]`)
	made := q.enqueue(quick(2), members{"args": args, "meta": members{"k": "v"}})
	id := made.text("id")
	for _, word := range []string{"one", "two"} {
		q.fail(members{"message": word})
	}
	same := func(job object) {
		t.Helper()
		job.are(members{"id": id, "type": q.kind, "queue": q.name, "args": args, "meta": members{"k": "v"}, "created_at": made.text("created_at"), "max_attempts": 2})
	}
	dead := letter(t, id)
	same(dead)
	before := dead.failures()
	again := retry(t, id)
	same(again)
	if got := again.failures(); len(got) != 2 || text(got[0].members) != text(before[0].members) || text(got[1].members) != text(before[1].members) {
		t.Errorf("errors after the retry: %s", text(again.members["errors"]))
	}
	for _, word := range []string{"three", "four"} {
		q.fail(members{"message": word})
	}
	dead = letter(t, id)
	same(dead)
	var words []string
	for _, one := range dead.failures() {
		words = append(words, one.text("message"))
	}
	if !slices.Equal(words, []string{"one", "two", "three", "four"}) {
		t.Errorf("%v", words)
	}
}

func TestDLQ_003_ARetryStartsTheJobAgain(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	dead := q.dead()
	id := dead.text("id")
	again := retry(t, id)
	again.are(members{"id": id, "state": "available", "attempt": 0, "max_attempts": 1})
	again.lacks("error", "completed_at", "discarded_at", "started_at")
	at := again.instant("enqueued_at")
	if !again.instant("re_enqueued_at").Equal(at) || !at.After(dead.instant("enqueued_at")) {
		t.Errorf("enqueued_at %v, re_enqueued_at %v", at, again.instant("re_enqueued_at"))
	}
	noLetter(t, id)
	if list := listed(t, "queue="+q.name); len(list) != 0 {
		t.Errorf("still listed: %v", ids(list))
	}
	q.fetch().are(members{"id": id, "attempt": 1})
	q.ack(id).is("state", "completed")
}

func TestDLQ_003_OfManyRetriesOneWins(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	for range 5 {
		id := q.dead().text("id")
		var mu sync.Mutex
		counts := map[int]int{}
		together(16, 16, func(i int) {
			var a *answer
			if i%4 == 3 {
				a = remove(t, letters+"/"+id)
			} else {
				a = post(t, letters+"/"+id+"/retry", nil)
			}
			mu.Lock()
			defer mu.Unlock()
			counts[a.status]++
		})
		if counts[200] != 1 || counts[404] != 15 {
			t.Errorf("%v", counts)
		}
		for _, job := range q.take(members{"count": 10}) {
			q.ack(job.text("id"))
		}
	}
}

func TestLET_01_AJobThatFailsAgainIsALetterAgain(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	first := q.dead()
	id := first.text("id")
	retry(t, id)
	q.fail()
	second := letter(t, id)
	if !second.instant("discarded_at").After(first.instant("discarded_at")) || len(second.failures()) != 2 {
		t.Errorf("%s", text(second.members))
	}
}

func TestLET_02_WhatIsNoDeadLetterIsNotFound(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	completed := q.enqueue().text("id")
	q.ack(q.fetch().text("id"))
	for id, state := range map[string]string{newID(): "", "x": "", "0197A1C2-0000-7000-8000-000000000001": "", q.enqueue().text("id"): "available", completed: "completed"} {
		for _, a := range []*answer{get(t, letters+"/"+id), post(t, letters+"/"+id+"/retry", nil), remove(t, letters+"/"+id)} {
			problem := a.refused(404, "not_found")
			problem.text("hint")
			problem.text("docs_url")
			details := problem.object("details")
			details.is("resource_type", "dead_letter_job")
			if state != "" {
				details.is("current_state", state)
			}
		}
	}
}

func TestLET_03_ADeletedLetterIsGoneAndItsIdStaysTaken(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	id := q.dead().text("id")
	remove(t, letters+"/"+id).must(200).are(members{"deleted": true, "job_id": id})
	noLetter(t, id)
	get(t, root+"/jobs/"+id).refused(404, "not_found")
	remove(t, letters+"/"+id).refused(404, "not_found")
	q.refuses(409, "duplicate", q.body(members{"id": id}))
	if list := listed(t, "queue="+q.name); len(list) != 0 {
		t.Errorf("still listed: %v", ids(list))
	}
}

func TestLET_04_TheAdminFormIsTheSame(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	first, second := q.dead().text("id"), q.dead().text("id")
	const admin = root + "/admin/dead-letter"
	page := get(t, admin+"?per_page=1&page=2&queue="+q.name).must(200)
	if got := ids(page.objects("items")); !slices.Equal(got, []string{first}) {
		t.Errorf("%v", got)
	}
	page.object("pagination").are(members{"total": 2, "page": 2, "per_page": 1})
	get(t, admin+"/"+first).must(200).object("job").is("id", first)
	post(t, admin+"/"+first+"/retry", members{}).must(200).object("job").is("state", "available")
	if a := remove(t, admin+"/"+second); a.status != http.StatusNoContent {
		t.Errorf("%d", a.status)
	}
	get(t, admin+"?queue="+q.name).must(200).are(members{"items": []any{}})
	get(t, admin+"?page=0").refused(400, "invalid_request").field("page")
}

func TestDLQ_R002_ARetryMayChangeTheJob(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	id := q.dead(members{"meta": members{"a": 1, "b": 2}}).text("id")
	other := q.name + "-2"
	job := post(t, letters+"/"+id+"/retry", members{"override": members{"queue": other, "args": []any{"new", 1}, "meta": members{"b": 3, "c": nil}, "retry": members{"max_attempts": 4}}}).must(200).object("job")
	job.are(members{"id": id, "queue": other, "args": []any{"new", 1}, "meta": members{"a": 1, "b": 3, "c": nil}, "max_attempts": 4, "attempt": 0, "state": "available"})
	q.isEmpty()
	moved := *q
	moved.name = other
	moved.fetch().are(members{"id": id, "args": []any{"new", 1}})
	moved.nack(id, failure()).are(members{"state": "retryable", "max_attempts": 4})
}

func TestDLQ_R002_ABadChangeIsRefused(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	id := q.dead().text("id")
	before := letter(t, id)
	for field, override := range map[string]any{
		"type": members{"type": "a.b"}, "id": members{"id": newID()}, "state": members{"state": "completed"}, "priority": members{"priority": 1}, "colour": members{"colour": 1},
		"queue": members{"queue": "Q"}, "args": members{"args": members{}}, "meta": members{"meta": []any{}},
	} {
		post(t, letters+"/"+id+"/retry", members{"override": override}).refused(400, "invalid_request").naming(field)
	}
	for field, policy := range map[string]members{"max_interval": {"initial_interval": "PT10M"}, "max_attempts": {"max_attempts": -1}, "on_exhaustion": {"on_exhaustion": "x"}} {
		post(t, letters+"/"+id+"/retry", members{"override": members{"retry": policy}}).refused(422, "validation_error").naming(field)
	}
	post(t, letters+"/"+id+"/retry", members{"overide": members{}}).refused(400, "invalid_request").naming("overide")
	post(t, letters+"/"+id+"/retry", members{"override": 7}).refused(400, "invalid_request").naming("override")
	if after := letter(t, id); text(after.members) != text(before.members) {
		t.Errorf("changed: %s", text(after.members))
	}
}
