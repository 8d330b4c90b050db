package ojs

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/recourse-dev/recourse/internal/access"
	"github.com/recourse-dev/recourse/internal/testkit/poll"
)

// leaveUnread sends requests whose answers nobody reads until close is called.
func (f *fixture) leaveUnread(n int, request string) (closeAll func()) {
	f.Helper()
	var all []net.Conn
	for range n {
		c, err := net.Dial("tcp", strings.TrimPrefix(f.url, "http://"))
		if err != nil {
			f.Fatal(err)
		}
		f.Cleanup(func() { c.Close() })
		if err := c.(*net.TCPConn).SetReadBuffer(4096); err != nil {
			f.Fatal(err)
		}
		if _, err := io.WriteString(c, request); err != nil {
			f.Fatal(err)
		}
		all = append(all, c)
	}
	return func() {
		for _, c := range all {
			c.Close()
		}
	}
}

// Long answers that are not read are bounded: beyond the bound their tenant is refused what may be long, and
// nothing else. Other tenants are answered.
func TestAnswersThatAreNotReadAreBounded(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	key, other := f.all("acme"), f.all("umbrella")
	for n := range 8 {
		queue := fmt.Sprintf("big%d", n)
		id := f.must(key, "/jobs", `{"type":"a.b","args":["`+strings.Repeat("x", 1_000_000)+`"],"queue":"`+queue+`","retry":{"max_attempts":1,"on_exhaustion":"dead_letter"}}`).Job.ID
		f.must(key, "/workers/fetch", `{"queues":["`+queue+`"]}`)
		f.must(key, "/workers/nack", `{"job_id":"`+id+`","error":{}}`)
	}
	const list = "/ojs/v1/dead-letter?limit=8"
	head := " HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer " + key + "\r\n"
	read := func(key, method, path, body string) string {
		status, refused := f.ask(key, method, "/ojs/v1"+path, body)
		return fmt.Sprint(status, refused.Error.Code)
	}
	const refused = "429rate_limited"
	closeAll := f.leaveUnread(20, "GET "+list+head+"\r\n")
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
	closeAll()
	poll.Until(t, "the tenant is answered once the answers are gone", func() bool { return read(key, "GET", "/dead-letter?limit=1", "") == "200" })
	if status, _, text := f.raw(f.url, f.key("acme", access.Auditor), http.MethodGet, list, ""); status != http.StatusOK || len(text) < 7_000_000 {
		t.Errorf("%d, %d bytes", status, len(text))
	}
}
