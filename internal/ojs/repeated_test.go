package ojs

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/recourse-dev/recourse/internal/access"
)

// A repeated answer says what the first one said, its headers included.
func TestARepeatedAnswerNamesTheCase(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	key := f.key("acme", access.Submitter)
	var first string
	for n := range 2 {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, f.url+"/ojs/v1/jobs", strings.NewReader(`{"type":"mail.send","args":[]}`))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+key)
		r.Header.Set("Idempotency-Key", "enqueue-1")
		a, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		a.Body.Close()
		if a.StatusCode != http.StatusCreated {
			t.Fatal(a.StatusCode)
		}
		if n == 0 {
			first = a.Header.Get(CaseHeader)
		} else if got := a.Header.Get(CaseHeader); got != first || got == "" {
			t.Errorf("the repeated answer names case %q, the first one %q", got, first)
		}
	}
}

// A retry is made once under an Idempotency-Key, also if the process died before it stored the answer, and
// the job died again since.
func TestARetryIsMadeOnceUnderItsKey(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	key := f.key("acme", access.Submitter, access.Operator)
	worker := f.key("acme", access.Worker)
	const id = "01980000-0000-7000-8000-000000000001"
	want := func(status int, key, path, body string) {
		t.Helper()
		if got, answer := f.ask(key, "POST", path, body); got != status {
			t.Fatalf("%s: %d %+v, want %d", path, got, answer.Error, status)
		}
	}
	die := func() {
		t.Helper()
		want(http.StatusOK, worker, "/ojs/v1/workers/fetch", `{"queues":["mail"],"worker_id":"w1"}`)
		want(http.StatusOK, worker, "/ojs/v1/workers/nack", `{"job_id":"`+id+`","worker_id":"w1","error":{"code":"smtp"}}`)
	}
	retry := func() (int, string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, f.url+"/ojs/v1/dead-letter/"+id+"/retry", strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+key)
		r.Header.Set("Idempotency-Key", "retry-1")
		a, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer a.Body.Close()
		body, err := io.ReadAll(a.Body)
		if err != nil {
			t.Fatal(err)
		}
		return a.StatusCode, string(body)
	}
	want(http.StatusCreated, key, "/ojs/v1/jobs", `{"id":"`+id+`","type":"mail.send","queue":"mail","args":[],"retry":{"max_attempts":1,"on_exhaustion":"dead_letter"}}`)
	die()
	if status, body := retry(); status != http.StatusOK {
		t.Fatal(status, body)
	}
	// As a process leaves it that is killed after the commit of the retry, and before that of its answer.
	if _, err := f.db.ExecContext(t.Context(), `UPDATE recourse.requests SET status = NULL, headers = '', body = NULL, began = began - interval '3 minutes'`); err != nil {
		t.Fatal(err)
	}
	die()
	status, body := retry()
	var runs int
	if err := f.db.QueryRowContext(t.Context(), `SELECT count(*) FROM recourse.runs`).Scan(&runs); err != nil {
		t.Fatal(err)
	}
	if runs != 2 {
		t.Errorf("one key retried the job %d times: %d %s", runs-1, status, body)
	}
}
