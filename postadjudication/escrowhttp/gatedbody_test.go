package escrowhttp_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/escrowhttp"
)

var errStaleClaim = errors.New("the claim was sent 5s ago")

// A service receives no whole request of a stale claim, over either protocol and at any size,
// and the answer says so and nothing else. A fresh request arrives whole, and Fresh is called
// once.
func TestTheLastByteLeavesOnlyWhileTheClaimIsFresh(t *testing.T) {
	t.Parallel()
	for _, two := range []bool{false, true} {
		for _, size := range []int{0, 1, 2, 400, 5000, 60000} {
			t.Run(fmt.Sprintf("HTTP2 %v, %d bytes", two, size), func(t *testing.T) {
				t.Parallel()
				c := newCall()
				c.Request = bytes.Repeat([]byte("x"), size)
				var whole atomic.Int64
				s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if b, err := io.ReadAll(r.Body); err != nil || len(b) != size {
						return // cut short
					}
					if whole.Add(1); two != (r.ProtoMajor == 2) {
						t.Errorf("over %s", r.Proto)
					}
					w.Header().Set("Content-Type", "application/json")
					if _, err := io.WriteString(w, proofBody(c, "executed", 12500, "USD")); err != nil {
						t.Error(err)
					}
				}))
				if s.EnableHTTP2 = two; two {
					s.StartTLS()
				} else {
					s.Start()
				}
				defer s.Close()
				e := newExecutor(t, escrowhttp.Config{BaseURL: s.URL, Client: s.Client()})
				const rounds = 20
				for range rounds {
					c.Fresh = func() error { return errStaleClaim }
					if a := e.Execute(withLimit(t), c); a.Class != escrow.NotExecuted || !a.Retry || a.Type != escrowhttp.TypeUnsent || a.Message != errStaleClaim.Error() {
						t.Fatalf("kept back: %+v", a)
					}
					asked := 0
					c.Fresh = func() error { asked++; return nil }
					if a := e.Execute(withLimit(t), c); a.Class != escrow.Executed || asked != 1 {
						t.Fatalf("sent, Fresh called %d times: %+v", asked, a)
					}
				}
				if n := whole.Load(); n != rounds {
					t.Errorf("%d whole requests, want %d", n, rounds)
				}
			})
		}
	}
}

// Fresh is called after the dial, however long that takes.
func TestTheClaimIsCheckedAfterTheDial(t *testing.T) {
	t.Parallel()
	c := newCall()
	base := serveAnswer(t, http.StatusOK, nil, proofBody(c, "executed", 12500, "USD"))
	var dialled atomic.Bool
	e := newExecutor(t, escrowhttp.Config{BaseURL: base, Client: &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
			dialled.Store(true)
			return conn, err
		},
	}}})
	c.Fresh = func() error {
		if !dialled.Load() {
			t.Error("Fresh was called before the dial")
		}
		return nil
	}
	if a := e.Execute(withLimit(t), c); a.Class != escrow.Executed {
		t.Error(a)
	}
}

// The service's answer counts even if it did not wait for the last byte, which is then not
// sent.
func TestAnAnswerThatCameBeforeTheLastByteIsTakenByTheTable(t *testing.T) {
	t.Parallel()
	c, returned, sent := newCall(), make(chan struct{}), make(chan int, 1)
	base := serveConn(t, func(conn net.Conn) {
		if _, err := conn.Read(make([]byte, 1)); err != nil {
			return
		}
		if _, err := io.WriteString(conn, "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n"); err != nil {
			t.Error(err)
		}
		rest, err := io.ReadAll(conn)
		if err != nil {
			t.Log(err) // reset, as it may be
		}
		_, body, _ := bytes.Cut(rest, []byte("\r\n\r\n"))
		sent <- len(body)
	})
	c.Request = bytes.Repeat([]byte("x"), 1<<20) // more than any buffer, so that its beginning is sent at once
	e := newExecutor(t, escrowhttp.Config{BaseURL: base})
	c.Fresh = func() error { <-returned; return nil }
	a := e.Execute(withLimit(t), c)
	close(returned)
	if a.Class != escrow.Unknown || a.Code != "503" {
		t.Errorf("%+v", a)
	}
	e.Close()
	if n := <-sent; n >= len(c.Request) {
		t.Errorf("all %d bytes of the body arrived", n)
	}
}

// Nothing is sent after the call has returned, whatever the transport still reads.
func TestNothingLeavesAfterTheCall(t *testing.T) {
	t.Parallel()
	b := escrowhttp.NewGatedBody([]byte("request"), func() error { return nil })
	if _, err := b.Read(make([]byte, 3)); err != nil {
		t.Fatal(err)
	}
	if stale := b.End(); stale != nil {
		t.Errorf("Fresh was not called: %v", stale)
	}
	if n, err := b.Read(make([]byte, 10)); n != 0 || !errors.Is(err, escrowhttp.ErrCallEnded) {
		t.Errorf("%d bytes, %v", n, err)
	}
}

// Each request has the headers by which a service can refuse it as late or superseded.
func TestARequestCarriesItsFenceHeaders(t *testing.T) {
	t.Parallel()
	c := newCall()
	c.Generation, c.NotAfter = 7, time.Date(2026, 3, 1, 12, 0, 0, 123456000, time.FixedZone("", 3600))
	var got http.Header
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = r.Header.Clone()
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	defer s.Close()
	e := newExecutor(t, escrowhttp.Config{BaseURL: s.URL})
	e.Execute(withLimit(t), c)
	if got.Get("Recourse-Generation") != "7" || got.Get("Recourse-Not-After") != "2026-03-01T11:00:00.123Z" {
		t.Errorf("an execution: %v", got)
	}
	e.Lookup(withLimit(t), newCall())
	if got.Get("Recourse-Generation") != "" || got.Get("Recourse-Not-After") != "" {
		t.Errorf("a lookup: %v", got)
	}
	for _, name := range []string{"Recourse-Generation", "recourse-not-after"} {
		if _, err := escrowhttp.New(escrowhttp.Config{BaseURL: s.URL, Header: http.Header{name: {"1"}}}); err == nil {
			t.Errorf("%s was taken from the configuration", name)
		}
	}
}
