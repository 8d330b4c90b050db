package ojs

import (
	"net/http"
	"testing"

	"github.com/recourse-dev/recourse/internal/access"
)

// A job that was deleted stands in nobody's way, or an enqueueing is refused as a duplicate: it is never
// answered as if a path were not found.
func TestADeletedJobInTheWayIsNotNotFound(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	key := f.key("acme", access.Submitter, access.Approver)
	worker := f.key("acme", access.Worker)
	const id = "01980000-0000-7000-8000-000000000001"
	job := func(more string) string {
		return `{` + more + `"type":"mail.send","queue":"mail","args":[],"unique":{"keys":["type"],"states":["available","active","discarded"],"on_conflict":"ignore"},"retry":{"max_attempts":1,"on_exhaustion":"dead_letter"}}`
	}
	want := func(status int, key, method, path, body string) {
		t.Helper()
		if got, answer := f.ask(key, method, path, body); got != status {
			t.Fatalf("%s %s: %d %+v, want %d", method, path, got, answer.Error, status)
		}
	}
	want(http.StatusCreated, key, "POST", "/ojs/v1/jobs", job(`"id":"`+id+`",`))
	want(http.StatusOK, worker, "POST", "/ojs/v1/workers/fetch", `{"queues":["mail"],"worker_id":"w1"}`)
	want(http.StatusOK, worker, "POST", "/ojs/v1/workers/nack", `{"job_id":"`+id+`","worker_id":"w1","error":{"code":"smtp"}}`)
	want(http.StatusOK, key, "POST", "/ojs/v1/jobs", job(""))
	want(http.StatusOK, key, "DELETE", "/ojs/v1/dead-letter/"+id, "")
	if status, answer := f.ask(key, "POST", "/ojs/v1/jobs", job("")); status == http.StatusNotFound {
		t.Errorf("enqueueing: %d %+v", status, answer.Error)
	}
}

// A retry that changes what makes a job unique does not make two live jobs that are unique in the same way.
func TestARetryWithOtherArgumentsIsUniqueByThem(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	key := f.key("acme", access.Submitter, access.Operator, access.Approver)
	worker := f.key("acme", access.Worker)
	job := func(id, arg string) string {
		return `{"id":"` + id + `","type":"mail.send","queue":"mail","args":["` + arg + `"],"unique":{"keys":["type","args"]},"retry":{"max_attempts":1,"on_exhaustion":"dead_letter"}}`
	}
	const dead, live = "01980000-0000-7000-8000-000000000001", "01980000-0000-7000-8000-000000000002"
	want := func(status int, key, method, path, body string) {
		t.Helper()
		if got, answer := f.ask(key, method, path, body); got != status {
			t.Errorf("%s %s: %d %+v, want %d", method, path, got, answer.Error, status)
		}
	}
	want(http.StatusCreated, key, "POST", "/ojs/v1/jobs", job(dead, "a"))
	want(http.StatusOK, worker, "POST", "/ojs/v1/workers/fetch", `{"queues":["mail"],"worker_id":"w1"}`)
	want(http.StatusOK, worker, "POST", "/ojs/v1/workers/nack", `{"job_id":"`+dead+`","worker_id":"w1","error":{"code":"smtp"}}`)
	want(http.StatusCreated, key, "POST", "/ojs/v1/jobs", job(live, "b"))
	want(http.StatusConflict, key, "POST", "/ojs/v1/dead-letter/"+dead+"/retry", `{"override":{"args":["b"]}}`)
}
