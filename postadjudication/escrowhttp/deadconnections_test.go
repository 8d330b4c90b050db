package escrowhttp_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/escrowhttp"
)

// forgettingNAT is a service behind a NAT that can forget the connections it has: what they send is read by nobody, and
// neither end is told. Connections that are made later work.
type forgettingNAT struct {
	forgotten atomic.Bool
	waiting   sync.WaitGroup // for the requests that arrive at once at first
	lost      atomic.Int32   // requests on forgotten connections
}

func (n *forgettingNAT) serve(c net.Conn) {
	r, early := bufio.NewReader(c), !n.forgotten.Load()
	for {
		req, err := http.ReadRequest(r)
		if err != nil {
			return
		}
		if _, err := io.Copy(io.Discard, req.Body); err != nil {
			return
		}
		if early && n.forgotten.Load() {
			n.lost.Add(1)
			continue
		}
		if early {
			n.waiting.Done()
			n.waiting.Wait()
		}
		body := proofBody(newCall(), "executed", 12500, "USD")
		if _, err := fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body); err != nil {
			return
		}
	}
}

// Idle connections that died without a word cost one call, not one each: the call after it dials, also where the first
// one was a lookup.
func TestTheCallAfterOneWithoutAnAnswerDials(t *testing.T) {
	t.Parallel()
	for name, first := range map[string]func(*escrowhttp.Executor, context.Context, escrow.Call) escrow.Answer{
		"a payment": (*escrowhttp.Executor).Execute, "a lookup": (*escrowhttp.Executor).Lookup,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const idle = 8
			nat := &forgettingNAT{}
			nat.waiting.Add(idle)
			e := newExecutor(t, escrowhttp.Config{BaseURL: serveConn(t, nat.serve)})
			var calls sync.WaitGroup
			for range idle {
				calls.Go(func() {
					if a := e.Execute(withLimit(t), newCall()); a.Class != escrow.Executed {
						t.Errorf("before: %+v", a)
					}
				})
			}
			calls.Wait()
			nat.forgotten.Store(true)

			short, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
			defer cancel()
			if a := first(e, short, newCall()); a.Class != escrow.Unknown || a.Type != "http.timeout" || nat.lost.Load() != 1 {
				t.Fatalf("over a dead connection: %+v, %d requests lost", a, nat.lost.Load())
			}
			if a := e.Execute(withLimit(t), newCall()); a.Class != escrow.Executed || nat.lost.Load() != 1 {
				t.Errorf("after it: %+v, %d requests lost", a, nat.lost.Load())
			}
		})
	}
}
