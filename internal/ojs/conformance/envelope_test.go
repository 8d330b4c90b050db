package conformance_test

import (
	"strings"
	"testing"
)

// Section 4: the job envelope. Other names of its members are in aliases_test.go.

func TestENV_01_ANewJobHasTheMembersOfTheExample(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	id := newID()
	made := q.enqueue(members{"id": id, "args": []any{"tx_1"}, "meta": members{}, "retry": members{"max_attempts": 4}})
	for _, job := range []object{made, find(t, id)} {
		job.are(members{
			"id": id, "specversion": version, "type": q.kind, "queue": q.name, "args": []any{"tx_1"}, "meta": members{},
			"priority": 0, "state": "available", "attempt": 0, "max_attempts": 4,
		})
		if created, enqueued := job.instant("created_at"), job.instant("enqueued_at"); enqueued.Before(created) {
			t.Errorf("enqueued at %v, created at %v", enqueued, created)
		}
	}
}

func TestENV_02_ZeroesAreWrittenAndWhatIsNotYetIsAbsent(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	id := q.enqueue().text("id")
	job := find(t, id)
	job.are(members{"attempt": 0, "priority": 0})
	job.lacks("started_at", "completed_at", "error", "result", "cancelled_at", "discarded_at", "retry_delay_ms", "next_attempt_at", "next_retry_at", "re_enqueued_at")
	fetched := q.fetch()
	fetched.instant("started_at")
	fetched.lacks("completed_at", "error", "result", "cancelled_at", "discarded_at")
}

func TestENV_03_EndedJobsHaveTheirTimes(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	id := q.enqueue().text("id")
	q.ack(q.fetch().text("id"))
	completed := find(t, id)
	completed.instant("completed_at")
	completed.lacks("discarded_at", "cancelled_at", "error")
	for _, discarded := range []object{q.dead(), find(t, discard(q))} {
		discarded.instant("completed_at")
		discarded.instant("discarded_at")
		discarded.lacks("cancelled_at", "result")
	}
}

// discard makes a job that its policy discards, and returns its id.
func discard(q *queue) string {
	q.t.Helper()
	id := q.enqueue(oneRun(members{"on_exhaustion": "discard"})).text("id")
	q.fail().are(members{"id": id, "state": "discarded"})
	return id
}

func TestENV_04_UnknownMembersAreKept(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	unknown := members{
		"x_origin": members{"system": "ledger", "nested": []any{nil, true, literal("1.50")}}, "trace": "abc", "answer": literal("42.0"), "nothing": nil,
	}
	made := q.enqueue(unknown)
	for _, job := range []object{made, find(t, made.text("id")), q.fetch()} {
		job.is("x_origin", literal(`{"nested":[null,true,1.50],"system":"ledger"}`))
		job.are(members{"trace": "abc", "answer": literal("42.0"), "nothing": nil})
	}
}

func TestENV_05_SystemMembersOfAClientAreIgnored(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	id := q.enqueue(members{
		"state": "completed", "attempt": 7, "max_attempts": 9, "created_at": "2020-01-01T00:00:00.000Z", "enqueued_at": "2020-01-01T00:00:00.000Z",
		"started_at": "2020-01-01T00:00:00.000Z", "completed_at": "2020-01-01T00:00:00.000Z", "cancelled_at": "2020-01-01T00:00:00.000Z",
		"discarded_at": "2020-01-01T00:00:00.000Z", "error": failure(), "errors": []any{failure()}, "result": members{"paid": true},
		"retry_delay_ms": 5, "next_attempt_at": "2099-01-01T00:00:00.000Z",
	}).text("id")
	job := find(t, id)
	job.are(members{"state": "available", "attempt": 0, "max_attempts": 3})
	job.lacks("started_at", "completed_at", "cancelled_at", "discarded_at", "error", "result", "retry_delay_ms", "next_attempt_at")
	if len(job.failures()) > 0 {
		t.Errorf("errors of the client were taken: %s", text(job.members["errors"]))
	}
	if job.instant("created_at").Year() == 2020 || job.instant("enqueued_at").Year() == 2020 {
		t.Errorf("times of the client were taken: %s", text(job.members))
	}
}

// contents are arguments and meta that careless servers change.
const (
	contentArgs = `["tx_1",null,true,-0,1.0,1.50,1e3,1E+2,0.1000,9007199254740993,12345678901234567890,3.141592653589793238462643,1e400,[],{},[[null]],{"b":1,"a":{"z":null,"é":"ü"}},"<b>&amp;</b>","\u2028","🙂","a\"b\\c"]`
	contentMeta = `{"n":1.0,"big":18446744073709551616,"null":null,"empty":{},"list":[1,[2,[3.0]]],"text":"\u0001 ~ \u007f","ojs":"own","nested":{"k":{"k":{"k":-0.0}}}}`
)

func TestENV_06_ContentComesBackUnchanged(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	made := q.enqueue(oneRun(), members{"args": literal(contentArgs), "meta": literal(contentMeta)})
	id := made.text("id")
	check := func(job object) {
		t.Helper()
		job.are(members{"args": literal(contentArgs), "meta": literal(contentMeta), "type": q.kind, "queue": q.name})
	}
	check(made)
	check(find(t, id))
	check(q.fetch())
	q.nack(id, failure())
	check(letter(t, id))
	check(listed(t, "queue="+q.name)[0])
	check(retry(t, id))
	check(q.fetch())
	q.ack(id, members{"result": members{}})
	check(find(t, id))
}

func TestENV_07_NamesOfQueues(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	for _, name := range []string{"default", "a", "0", "a-b.c", "9q-.", strings.Repeat("q", 128)} {
		q.enqueue(members{"queue": name, "scheduled_at": "2099-01-01T00:00:00Z"}).is("queue", name)
	}
	for _, name := range []string{"", "A", "-a", ".a", "a_b", "a b", "a/b", "a\n", "é", "queue!", strings.Repeat("q", 129)} {
		post(t, root+"/jobs", q.body(members{"queue": name})).refused(400, "invalid_request").naming("queue")
	}
	id := q.enqueue(members{"queue": dropped{}, "scheduled_at": "2099-01-01T00:00:00Z"}).text("id")
	find(t, id).is("queue", "default")
}

// The core document forbids a dash in a type, the API document allows it, and clients use it.
func TestENV_08_NamesOfTypes(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	for _, name := range []string{"a", "settlement.release", "a-b.c_d.e9", "a1", strings.Repeat("t", 255)} {
		q.enqueue(members{"type": name}).is("type", name)
	}
	other := newQueue(t)
	for _, name := range []string{"", "A", "1a", ".a", "a.", "a..b", "a.1b", "a b", "-a", "_a", "a.-b", "a/b", "a\n", "é.a", strings.Repeat("t", 256)} {
		other.refuses(400, "invalid_request", other.body(members{"type": name})).naming("type")
	}
}

func TestENV_09_Priorities(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	for _, n := range []int{-100, -1, 0, 1, 100} {
		q.enqueue(members{"priority": n}).is("priority", n)
	}
	other := newQueue(t)
	for _, n := range []any{-101, 101, 1.5, "5", true, []any{}, 1e30} {
		other.refuses(400, "invalid_request", other.body(members{"priority": n})).naming("priority")
	}
}

// The core document has seconds, HTTP milliseconds: both are taken, and milliseconds answered.
func TestENV_10_TimeLimitsAreAnsweredInMilliseconds(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	for _, with := range []members{{"timeout": 90}, {"options": members{"timeout_ms": 90000}}} {
		made := q.enqueue(with)
		made.is("timeout_ms", 90000)
		find(t, made.text("id")).is("timeout_ms", 90000)
		q.fetch().is("timeout_ms", 90000)
	}
}

func TestENV_11_OtherMembersOfClientsComeBack(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	made := q.enqueue(members{"tags": []string{"one", "two"}, "schema": "urn:ojs:schema:conformance:v1", "expires_at": "2099-12-31T23:59:59Z", "specversion": version})
	for _, job := range []object{made, find(t, made.text("id")), q.fetch()} {
		job.are(members{"tags": []string{"one", "two"}, "schema": "urn:ojs:schema:conformance:v1", "expires_at": "2099-12-31T23:59:59Z"})
	}
	q.enqueue(members{"args": []any{}}).is("args", []any{})
}
