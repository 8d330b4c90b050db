package conformance_test

import (
	"sync"
	"testing"
)

// Section 13: unique jobs.

func byArgs(more ...members) members {
	return members{"unique": merged(append([]members{{"keys": []string{"type", "args"}}}, more...)...)}
}

func TestUNQ_01_ASecondOneIsRefusedWhileTheFirstIsUnderWay(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	id := q.enqueue(byArgs()).text("id")
	refused := func() {
		t.Helper()
		post(t, root+"/jobs", q.body(byArgs())).refused(409, "duplicate").object("details").is("existing_job_id", id)
	}
	refused()
	q.enqueue(byArgs(), members{"args": []any{"other"}})
	q.enqueue(byArgs(), members{"type": q.kind + ".other"})
	for q.fetch().text("id") != id {
	}
	refused()
	q.ack(id)
	q.enqueue(byArgs())
}

func TestUNQ_02_WhatMakesAJobUnique(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		unique      members
		first, then members
		same        bool
	}{
		"type alone":            {members{}, members{"args": []any{1}}, members{"args": []any{2}}, true},
		"args in another order": {members{"keys": []string{"args"}}, members{"args": []any{members{"a": 1, "b": 2}}}, members{"args": literal(`[{"b":2,"a":1}]`)}, true},
		"one number":            {members{"keys": []string{"args"}}, members{"args": literal(`[1.0]`)}, members{"args": literal(`[1]`)}, true},
		"large numbers":         {members{"keys": []string{"args"}}, members{"args": literal(`[9007199254740992]`)}, members{"args": literal(`[9007199254740993]`)}, false},
		"keys of args":          {members{"keys": []string{"type", "args"}, "args_keys": []string{"order"}}, members{"args": []any{members{"order": 1, "at": 1}}}, members{"args": []any{members{"order": 1, "at": 2}}}, true},
		"keys of meta":          {members{"keys": []string{"type", "meta"}, "meta_keys": []string{"tenant"}}, members{"meta": members{"tenant": "a", "x": 1}}, members{"meta": members{"tenant": "a", "x": 2}}, true},
		"other meta":            {members{"keys": []string{"type", "meta"}, "meta_keys": []string{"tenant"}}, members{"meta": members{"tenant": "a"}}, members{"meta": members{"tenant": "b"}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := newQueue(t)
			q.enqueue(members{"unique": c.unique}, c.first)
			want := map[bool]int{true: 409, false: 201}[c.same]
			if a := post(t, root+"/jobs", q.body(members{"unique": c.unique}, c.then)); a.status != want {
				t.Errorf("%s: %d, want %d", a.name, a.status, want)
			}
		})
	}
}

func TestUNQ_03_OnConflict(t *testing.T) {
	t.Parallel()
	for _, c := range []string{"ignore", "use_existing"} {
		q := newQueue(t)
		id := q.enqueue(byArgs()).text("id")
		answer := post(t, root+"/jobs", q.body(byArgs(members{"on_conflict": c}))).must(200)
		answer.is("deduplicated", true)
		answer.object("job").are(members{"id": id, "state": "available"})
	}
	for _, c := range []string{"replace", "replace_except_schedule"} {
		q := newQueue(t)
		first := q.enqueue(byArgs(), members{"scheduled_at": "2099-01-01T00:00:00Z"}).text("id")
		second := q.enqueue(byArgs(members{"on_conflict": c}))
		find(t, first).is("state", "cancelled")
		second.is("state", map[string]string{"replace": "available", "replace_except_schedule": "scheduled"}[c])
	}
	q := newQueue(t)
	q.enqueue(byArgs())
	q.fetch()
	post(t, root+"/jobs", q.body(byArgs(members{"on_conflict": "replace"}))).refused(409, "duplicate")
}

func TestUNQ_04_StatesAndPeriod(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	id := q.enqueue(byArgs()).text("id")
	q.fetch()
	q.ack(id)
	post(t, root+"/jobs", q.body(byArgs(members{"states": []string{"completed"}}))).refused(409, "duplicate")
	q.enqueue(byArgs(members{"period": "PT3S"}))
	post(t, root+"/jobs", q.body(byArgs())).refused(409, "duplicate")
	wait(t, "the claim of the first has ended", func() bool { return post(t, root+"/jobs", q.body(byArgs())).status == 201 })
	for field, with := range map[string]members{
		"states": {"states": []string{"dead"}}, "on_conflict": {"on_conflict": "x"}, "keys": {"keys": []string{"colour"}}, "period": {"period": "5m"}, "meta_keys": {"keys": []string{"meta"}}, "colour": {"colour": 1},
	} {
		post(t, root+"/jobs", q.body(members{"unique": with})).refused(400, "invalid_request").naming(field)
	}
}

func TestUNQ_05_OfManyAtOnceOneIsMade(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	var mu sync.Mutex
	counts := map[int]int{}
	together(24, 24, func(int) {
		body := q.body(byArgs())
		var a *answer
		wait(t, "it is answered", func() bool {
			a = post(t, root+"/jobs", body)
			return a.status != 503 // it waited for the others for too long
		})
		mu.Lock()
		defer mu.Unlock()
		counts[a.status]++
	})
	if counts[201] != 1 || counts[409] != 23 {
		t.Errorf("%v", counts)
	}
}
