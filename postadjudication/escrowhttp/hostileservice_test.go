package escrowhttp_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/escrowhttp"
)

func traceOf(r *http.Request) func() {
	tr := httptrace.ContextClientTrace(r.Context())
	return func() { tr.GotConn(httptrace.GotConnInfo{}) }
}

func TestABrokenConnectionIsUnknown(t *testing.T) {
	t.Parallel()
	proof := proofBody(newCall(), "executed", 12500, "USD")
	for name, tc := range map[string]struct {
		kind  string
		serve func(net.Conn)
	}{
		"closed at once":       {"http.no_answer", func(net.Conn) {}},
		"closed after reading": {"http.no_answer", func(c net.Conn) { readRequest(bufio.NewReader(c)) }},
		"reset": {"http.no_answer", func(c net.Conn) {
			readRequest(bufio.NewReader(c))
			c.(*net.TCPConn).SetLinger(0)
		}},
		"not HTTP": {"http.no_answer", func(c net.Conn) {
			readRequest(bufio.NewReader(c))
			io.WriteString(c, "220 mail.example ESMTP\r\n")
		}},
		"cut short": {"http.unreadable", func(c net.Conn) {
			readRequest(bufio.NewReader(c))
			fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(proof)+1, proof)
		}},
		"chunks cut short": {"http.unreadable", func(c net.Conn) {
			readRequest(bufio.NewReader(c))
			fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n", len(proof), proof)
		}},
		"101": {"http.unexpected", func(c net.Conn) {
			readRequest(bufio.NewReader(c))
			io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newExecutor(t, escrowhttp.Config{BaseURL: serveConn(t, tc.serve)}).Execute(withLimit(t), newCall())
			if a.Class != escrow.Unknown || !a.Retry || a.Type != tc.kind || a.Message == "" && tc.kind != "http.unexpected" {
				t.Errorf("%+v, want unknown, retry, %s", a, tc.kind)
			}
		})
	}
}

func TestNetHTTPDoesNotReplayARequest(t *testing.T) {
	t.Parallel()
	var requests atomic.Int32
	proof := proofBody(newCall(), "executed", 12500, "USD")
	url := serveConn(t, func(c net.Conn) {
		r := bufio.NewReader(c)
		for {
			if _, err := readRequest(r); err != nil {
				return
			}
			if requests.Add(1) == 2 {
				return // a kept connection that takes the request and dies
			}
			fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(proof), proof)
		}
	})
	e := newExecutor(t, escrowhttp.Config{BaseURL: url})
	if a := e.Execute(withLimit(t), newCall()); a.Class != escrow.Executed {
		t.Fatalf("first: %+v", a)
	}
	if a := e.Execute(withLimit(t), newCall()); a.Class != escrow.Unknown || a.Type != "http.no_answer" {
		t.Errorf("second: %+v, want unknown, http.no_answer", a)
	}
	if n := requests.Load(); n != 2 {
		t.Errorf("the service received %d requests for 2 attempts", n)
	}
}

func TestAHostileServiceIsBoundedInMemory(t *testing.T) {
	t.Parallel()
	const most = 64 << 20 // far beyond what socket buffers hold
	for name, tc := range map[string]struct {
		head, filler, kind string
	}{
		"endless success": {"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n", " ", "http.unreadable"},
		"endless refusal": {"HTTP/1.1 422 No\r\nContent-Type: text/plain\r\n\r\n", "no ", "http.refused"},
		"endless header":  {"HTTP/1.1 200 OK\r\n", "X-Filler: 0123456789\r\n", "http.no_answer"},
		"one long header": {"HTTP/1.1 200 OK\r\nX-Filler: ", "0123456789", "http.no_answer"},
		"endless 103":     {"", "HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n", "http.no_answer"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			poured := make(chan int, 1)
			url := serveConn(t, func(c net.Conn) {
				readRequest(bufio.NewReader(c))
				io.WriteString(c, tc.head)
				poured <- writeRepeatedly(c, tc.filler, most)
			})
			a := newExecutor(t, escrowhttp.Config{BaseURL: url}).Execute(withLimit(t), newCall())
			if a.Type != tc.kind || len(a.Message) > 3*(escrowhttp.DefaultMaxBody+1) {
				t.Errorf("%+v, want %s and a message within bounds", a, tc.kind)
			}
			if n := <-poured; n >= most {
				t.Errorf("the client took all %d bytes", n)
			}
		})
	}
}

// slowBody sends a byte every few milliseconds until the client disconnects.
func slowBody(head string) func(net.Conn) {
	return func(c net.Conn) {
		readRequest(bufio.NewReader(c))
		io.WriteString(c, head)
		for range time.Tick(2 * time.Millisecond) {
			if _, err := io.WriteString(c, " "); err != nil {
				return
			}
		}
	}
}

func TestASlowErrorTextDoesNotDelayADecidedAnswer(t *testing.T) {
	t.Parallel()
	url := serveConn(t, slowBody("HTTP/1.1 422 No\r\nContent-Type: text/plain\r\n\r\ninsufficient funds"))
	began := time.Now()
	a := newExecutor(t, escrowhttp.Config{BaseURL: url}).Execute(withLimit(t), newCall())
	if a.Class != escrow.Unknown || a.Retry || a.Type != "http.refused" || a.Message != "insufficient funds" {
		t.Errorf("%+v, want a refusal that proves nothing, with what was read of its text", a)
	}
	if took := time.Since(began); took > limit/2 {
		t.Errorf("took %v", took)
	}
}

func TestASlowSuccessEndsWithTheTimeLimit(t *testing.T) {
	t.Parallel()
	url := serveConn(t, slowBody("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n"))
	e := newExecutor(t, escrowhttp.Config{BaseURL: url, Client: &http.Client{Timeout: time.Second}}) // the head comes well within it
	a := e.Execute(withLimit(t), newCall())
	if a.Class != escrow.Unknown || !a.Retry || a.Type != "http.unreadable" {
		t.Errorf("%+v, want unknown", a)
	}
}

// A service that switches protocols and sends nothing more blocks neither a call, a lookup, nor
// a call whose table treats 101 as success.
func TestAServiceThatSwitchesProtocolsHoldsUpNobody(t *testing.T) {
	t.Parallel()
	url := serveConn(t, func(c net.Conn) {
		readRequest(bufio.NewReader(c))
		io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n")
		c.SetReadDeadline(time.Now().Add(2 * limit)) // ends a failing test
		io.Copy(io.Discard, c)
	})
	plain := newExecutor(t, escrowhttp.Config{BaseURL: url})
	trusting := newExecutor(t, escrowhttp.Config{BaseURL: url, Table: map[int]escrowhttp.Verdict{http.StatusSwitchingProtocols: {Class: escrow.Executed}}})
	for name, ask := range map[string]func(context.Context, escrow.Call) escrow.Answer{
		"call": plain.Execute, "lookup": plain.Lookup, "call with a table": trusting.Execute,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			began := time.Now()
			a := ask(withLimit(t), newCall())
			if a.Class != escrow.Unknown || !a.Retry {
				t.Errorf("%+v, want unknown", a)
			}
			if took := time.Since(began); took > limit/2 {
				t.Errorf("took %v", took)
			}
		})
	}
}
