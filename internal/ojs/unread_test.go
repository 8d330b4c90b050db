package ojs

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/recourse-dev/recourse/internal/access"
	"github.com/recourse-dev/recourse/internal/door"
	"github.com/recourse-dev/recourse/internal/testkit"
	"github.com/recourse-dev/recourse/internal/testkit/poll"
)

// longLetters makes the dead letters of longList, of 8 MB in all.
func (f *fixture) longLetters(key string) {
	f.Helper()
	for n := range 8 {
		queue := fmt.Sprintf("big%d", n)
		id := f.must(key, "/jobs", `{"type":"a.b","args":["`+strings.Repeat("x", 1_000_000)+`"],"queue":"`+queue+`","retry":{"max_attempts":1,"on_exhaustion":"dead_letter"}}`).Job.ID
		f.must(key, "/workers/fetch", `{"queues":["`+queue+`"]}`)
		f.must(key, "/workers/nack", `{"job_id":"`+id+`","error":{}}`)
	}
}

const longList = "/ojs/v1/dead-letter?limit=8"

// maxUnread is about how much may be unread of a tenant's answers.
const maxUnread = 64 << 20

// askUnread asks for longList. Nobody reads the answer until hangUp is called.
func (f *fixture) askUnread(key string) (hangUp func()) {
	f.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(f.url, "http://"))
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { c.Close() })
	if err := c.(*net.TCPConn).SetReadBuffer(4096); err != nil {
		f.Fatal(err)
	}
	if _, err := io.WriteString(c, "GET "+longList+" HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer "+key+"\r\n\r\n"); err != nil {
		f.Fatal(err)
	}
	return func() { c.Close() }
}

// unreadWriter is the writer of an answer that nobody reads until read is closed.
type unreadWriter struct {
	http.ResponseWriter
	begun chan<- struct{}
	read  <-chan struct{}
}

func (w *unreadWriter) Write(b []byte) (int, error) {
	close(w.begun)
	<-w.read
	return len(b), nil
}

// leaveUnread returns once an answer of n bytes, by another mux of the same door, is being written. Nobody reads it
// until the test ends.
func (f *fixture) leaveUnread(key string, n int) {
	f.Helper()
	mux := f.door.NewMux(door.Format{WriteRefusal: func(_ http.ResponseWriter, _ *http.Request, refused *door.Refusal) error {
		f.Error(refused)
		return nil
	}})
	mux.Handle("GET /long", door.Route{Action: access.Read}, func(w http.ResponseWriter, _ *http.Request, _ door.Caller, _ []byte) error {
		_, err := w.Write(make([]byte, n))
		return err
	})
	begun, read, answered := make(chan struct{}), make(chan struct{}), make(chan struct{})
	r := httptest.NewRequestWithContext(f.Context(), http.MethodGet, "/long", nil)
	r.Header.Set("Authorization", "Bearer "+key)
	go func() {
		defer close(answered)
		mux.ServeHTTP(&unreadWriter{httptest.NewRecorder(), begun, read}, r)
	}()
	f.Cleanup(func() {
		close(read)
		<-answered
	})
	select {
	case <-begun:
	case <-answered:
		f.Fatal("nothing was written")
	}
}

// Long answers that are not read are bounded: beyond the bound their tenant is refused what may be long, and
// nothing else. Other tenants are answered.
func TestAnswersThatAreNotReadAreBounded(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	key, other := f.all("acme"), f.all("umbrella")
	f.longLetters(key)
	read := func(key, method, path, body string) string {
		status, refused := f.ask(key, method, "/ojs/v1"+path, body)
		return fmt.Sprint(status, refused.Error.Code)
	}
	const refused = "429rate_limited"
	f.leaveUnread(key, maxUnread-4<<20)
	if got := read(key, "GET", "/dead-letter?limit=1", ""); got != "200" {
		t.Errorf("below the bound: %s", got)
	}
	hangUp := f.askUnread(key)
	poll.Until(t, "reads are refused", func() bool { return read(key, "GET", "/dead-letter?limit=1", "") == refused })
	if got := read(key, "POST", "/workers/fetch", `{"queues":["big0"]}`); got != refused {
		t.Errorf("a fetch: %s", got)
	}
	if got := read(key, "POST", "/jobs", `{"type":"a.b","args":[],"queue":"small"}`); got != "201" {
		t.Errorf("a job: %s", got)
	}
	for _, path := range []string{"/dead-letter?limit=1", "/queues"} {
		if got := read(other, "GET", path, ""); got != "200" {
			t.Errorf("%s by another tenant: %s", path, got)
		}
	}
	hangUp()
	poll.Until(t, "the tenant is answered once the answer is gone", func() bool { return read(key, "GET", "/dead-letter?limit=1", "") == "200" })
	if status, _, text := f.raw(f.url, f.key("acme", access.Auditor), http.MethodGet, longList, ""); status != http.StatusOK || len(text) < 7_000_000 {
		t.Errorf("%d, %d bytes", status, len(text))
	}
}

// A fetch of an adjudication is answered, however many answers are unread: where nobody states that operation keys are
// recognised, its repetition is given nothing.
func TestAFetchOfAnAdjudicationIsAnsweredOnceItIsMade(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	key, worker := f.all("acme"), f.key("acme", access.Worker)
	if status, text := f.answerTo(key, "POST", "/ojs/v1/jobs", adjudication(1, ``)); status != http.StatusCreated {
		t.Fatalf("%d %v", status, text)
	}
	unlock := testkit.LockTables(t, f.db, `recourse.leases IN SHARE MODE`)
	fetched := make(chan string, 1)
	go func() {
		status, _, text := f.raw(f.url, worker, "POST", "/ojs/v1/workers/fetch", `{"queues":["payouts"]}`, "Idempotency-Key", "f1")
		fetched <- fmt.Sprint(status, " ", string(text))
	}()
	poll.Until(t, "the fetch waits for the table", func() bool {
		var waits bool
		if err := f.db.QueryRow(`SELECT EXISTS (SELECT FROM pg_locks WHERE relation = 'recourse.leases'::regclass AND NOT granted)`).Scan(&waits); err != nil {
			t.Fatal(err)
		}
		return waits
	})
	f.leaveUnread(key, maxUnread)
	if status, _ := f.ask(key, "GET", "/ojs/v1/dead-letter?limit=1", ""); status != http.StatusTooManyRequests {
		t.Errorf("a read: %d", status)
	}
	unlock()
	if got := <-fetched; !strings.HasPrefix(got, "200 ") || !strings.Contains(got, "settlement.execute") {
		t.Errorf("%.300s", got)
	}
}
