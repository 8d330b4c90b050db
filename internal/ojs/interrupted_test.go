package ojs

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/recourse-dev/recourse/internal/access"
	"github.com/recourse-dev/recourse/internal/door"
)

// another starts a second server of the same jobs, on which before is called when the handler of a pattern
// begins: after the Idempotency-Key was taken, and before anything is read.
func (f *fixture) another(pattern string, before func() error) string {
	f.Helper()
	shared, err := door.New(door.Config{Service: f.service})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(shared.Stop)
	s := &Server{service: f.service, door: shared, log: f.ojs.log}
	s.mux = shared.NewMux(door.Format{MediaTypes: []string{"application/json", mediaType}, HandlersCheckJSON: true, Headers: []string{CaseHeader}, WriteRefusal: s.writeRefusal})
	for _, o := range s.operations() {
		if do := o.do; o.pattern == pattern {
			o.do = func(q request) (answer, error) {
				if err := before(); err != nil {
					return answer{}, err
				}
				return do(q)
			}
		}
		s.handle(o)
	}
	web := httptest.NewServer(s)
	f.Cleanup(web.Close)
	return web.URL
}

func (f *fixture) runs() (n int) {
	f.Helper()
	if err := f.db.QueryRowContext(f.Context(), `SELECT count(*) FROM recourse.runs`).Scan(&n); err != nil {
		f.Fatal(err)
	}
	return n
}

// dieAgain lets the job of a queue that waits die.
func (f *fixture) dieAgain(key, queue, id string) {
	f.Helper()
	f.must(key, "/workers/fetch", `{"queues":["`+queue+`"]}`)
	f.must(key, "/workers/nack", `{"job_id":"`+id+`","error":{}}`)
}

// timeOut makes requests older than they may take.
func (f *fixture) timeOut(change string) {
	f.Helper()
	if _, err := f.db.ExecContext(f.Context(), `UPDATE recourse.requests SET began = began - interval '3 minutes'`+change); err != nil {
		f.Fatal(err)
	}
}

const crashed = `, status = NULL, headers = '', body = NULL`

// A process stands still for longer than a request may take, after it took the key. Another one makes the
// retry in its place; the job dies again; then the first one goes on.
func TestASlowRetryIsNotMadeASecondTime(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	key := f.all("acme")
	began, goOn, slow := make(chan struct{}), make(chan struct{}), make(chan int)
	url := f.another("POST "+deadLetters+"/{id}/retry", func() error { close(began); <-goOn; return nil })
	id := f.dead(key, "mail")
	retry := func(url string) int {
		status, _, text := f.raw(url, key, "POST", deadLetters+"/"+id+"/retry", "{}", "Idempotency-Key", "retry-1")
		t.Logf("%d %.100s", status, text)
		return status
	}
	go func() { slow <- retry(url) }()
	<-began
	f.timeOut("")
	if status := retry(f.url); status != http.StatusOK {
		t.Fatal(status)
	}
	f.dieAgain(key, "mail", id)
	close(goOn)
	if status := <-slow; f.runs() != 2 {
		t.Errorf("one key retried the job %d times: %d", f.runs()-1, status)
	}
}

// A retry fails before it did anything, another person retries the job, and it dies again. The first
// request, sent again, must not be answered as done: its retry was never made.
func TestTheRetryOfAnotherIsNotTakenForOnesOwn(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	key, other := f.all("acme"), f.key("acme", access.Operator)
	url := f.another("POST "+deadLetters+"/{id}/retry", func() error { return errors.New("out of memory") })
	id := f.dead(key, "mail")
	path := deadLetters + "/" + id + "/retry"
	if status, _, text := f.raw(url, key, "POST", path, "{}", "Idempotency-Key", "retry-1"); status < 500 {
		t.Fatal(status, string(text))
	}
	if status, _, text := f.raw(f.url, other, "POST", path, "{}"); status != http.StatusOK {
		t.Fatal(status, string(text))
	}
	f.dieAgain(key, "mail", id)
	status, _, text := f.raw(f.url, key, "POST", path, "{}", "Idempotency-Key", "retry-1")
	if status == http.StatusOK && f.runs() != 3 {
		t.Errorf("%d, and there are %d runs: %s", status, f.runs(), text)
	}
}

// As with a single retry: the process dies after the plan was carried out, and the jobs die again.
func TestABulkRetryIsMadeOnceUnderItsKey(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	key := f.all("acme")
	id := f.dead(key, "mail")
	f.runService()
	retry := func() (int, string) {
		status, _, text := f.raw(f.url, key, "POST", deadLetters+"/retry", `{"filter":{"queue":"mail"},"confirm":true}`, "Idempotency-Key", "bulk-1")
		return status, string(text)
	}
	if status, text := retry(); status != http.StatusOK || f.runs() != 2 {
		t.Fatal(status, text, f.runs())
	}
	f.timeOut(crashed)
	f.dieAgain(key, "mail", id)
	if status, text := retry(); f.runs() != 2 {
		t.Errorf("one key retried the jobs %d times: %d %s", f.runs()-1, status, text)
	}
}

// A job without an id is enqueued, and its process dies before the answer. The request sent again under its
// key must not make a second job.
func TestAJobIsEnqueuedOnceUnderItsKey(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	key := f.all("acme")
	enqueue := func() (int, string) {
		status, _, text := f.raw(f.url, key, "POST", root+"/jobs", `{"type":"mail.send","queue":"mail","args":[]}`, "Idempotency-Key", "enqueue-1")
		return status, string(text)
	}
	status, first := enqueue()
	if status != http.StatusCreated {
		t.Fatal(status, first)
	}
	f.timeOut(crashed)
	if status, again := enqueue(); f.runs() != 1 {
		t.Errorf("one key made %d jobs: %.120s, then %d %.120s", f.runs(), strings.TrimSpace(first), status, again)
	}
}
