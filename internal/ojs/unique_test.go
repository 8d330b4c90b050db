package ojs

import (
	"net/http"
	"strings"
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

// Who may not cancel the job of another principal may not replace it either, whether or not it may read it: alone, in a
// batch, or by a job that keeps the schedule of the one that it replaces.
func TestAReplacementCancelsNoJobOfAnotherPrincipal(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	shop, mallory := f.keyOf("acme", "service:shop", access.Submitter), f.keyOf("acme", "service:mallory", access.Submitter)
	auditor, operator := f.keyOf("acme", "service:mallory", access.Submitter, access.Auditor), f.keyOf("acme", "service:operator", access.Submitter, access.Operator)
	job := func(conflict string) string {
		return `{"type":"mail.send","queue":"mail","args":[],"unique":{"keys":["type","queue"],"on_conflict":"` + conflict + `"}}`
	}
	state := func(id string) string {
		_, _, text := f.raw(f.url, shop, "GET", "/ojs/v1/jobs/"+id, "")
		return string(text)
	}
	waiting := f.must(shop, "/jobs", job("reject")).Job.ID
	for _, key := range []string{mallory, auditor} {
		if status, _ := f.ask(key, "DELETE", "/ojs/v1/jobs/"+waiting, ""); status != http.StatusForbidden {
			t.Errorf("cancel: %d", status)
		}
		for _, conflict := range []string{"replace", "replace_except_schedule"} {
			for path, body := range map[string]string{"/jobs": job(conflict), "/jobs/batch": `{"jobs":[{"type":"a.b","args":[]},` + job(conflict) + `]}`} {
				before := f.runs()
				status, refused := f.ask(key, "POST", "/ojs/v1"+path, body)
				if status != http.StatusConflict || refused.Error.Code != "duplicate" || f.runs() != before || !strings.Contains(state(waiting), `"state":"available"`) {
					t.Errorf("%s %s: %d %+v, the other's job: %s", path, conflict, status, refused.Error, state(waiting))
				}
				if known := refused.Error.Details["existing_job_id"]; (known == waiting) != (key == auditor) {
					t.Errorf("%s %s: it is told of %v", path, conflict, known)
				}
			}
		}
	}
	f.must(shop, "/jobs", job("replace"))
	f.must(shop, "/jobs/batch", `{"jobs":[`+job("replace")+","+job("replace")+`]}`)
	f.must(operator, "/jobs", job("replace"))
	f.must(operator, "/jobs/batch", `{"jobs":[`+job("replace")+`]}`)
	if status, _, text := f.raw(f.keyless(nil), "", "POST", "/ojs/v1/jobs", job("replace")); status != http.StatusCreated {
		t.Errorf("without keys: %d %s", status, text)
	}
}
