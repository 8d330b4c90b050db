package api_test

import (
	"fmt"
	"net"
	"net/http"
	"net/url"
	"sync"
	"testing"

	"github.com/recourse-dev/recourse/internal/app"
)

// postgresProxy is a proxy between a recourse server and its Postgres.
type postgresProxy struct {
	listener net.Listener
	to       string

	mu           sync.Mutex
	refuses      bool // closes new connections
	dropsAnswers bool // forwards a statement, and closes the connection before the answer
	conns        []net.Conn
	work         sync.WaitGroup
}

func newPostgresProxy(t *testing.T, o *app.Options) *postgresProxy {
	t.Helper()
	u, err := url.Parse(o.DatabaseURL)
	if err != nil {
		t.Fatal(err)
	}
	w := &postgresProxy{to: u.Host}
	if w.listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	u.Host = w.listener.Addr().String()
	o.DatabaseURL = u.String()
	w.work.Go(w.accept)
	t.Cleanup(func() {
		_ = w.listener.Close()
		w.set(true, false)
		w.work.Wait()
	})
	return w
}

// set changes the behaviour, and closes open connections if it hangs up.
func (w *postgresProxy) set(hangsUp, mute bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.refuses, w.dropsAnswers = hangsUp, mute; hangsUp {
		for _, c := range w.conns {
			_ = c.Close() // its other end may be closed already
		}
		w.conns = nil
	}
}

func (w *postgresProxy) accept() {
	for {
		client, err := w.listener.Accept()
		if err != nil {
			return
		}
		w.mu.Lock()
		server, err := net.Dial("tcp", w.to)
		if err != nil || w.refuses {
			_ = client.Close()
			if err == nil {
				_ = server.Close()
			}
			w.mu.Unlock()
			continue
		}
		w.conns = append(w.conns, client, server)
		w.mu.Unlock()
		w.work.Go(func() { w.relay(server, client, false) })
		w.work.Go(func() { w.relay(client, server, true) })
	}
}

func (w *postgresProxy) relay(to, from net.Conn, answers bool) {
	defer to.Close()
	for buf := make([]byte, 64<<10); ; {
		n, err := from.Read(buf)
		w.mu.Lock()
		mute := w.dropsAnswers && answers
		w.mu.Unlock()
		if err != nil || mute {
			return
		}
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
	}
}

// A broken connection is answered with what is known to have been done, and that a submission
// may be repeated.
func TestABrokenConnectionIsUnavailableAndSaysWhatIsKnown(t *testing.T) {
	t.Parallel()
	var w *postgresProxy
	r := newRig(t, func(o *app.Options) {
		w = newPostgresProxy(t, o)
		o.RequireKeys, o.Tenant = false, "acme"
	})
	submission := func(n int) string {
		return fmt.Sprintf(`{"transaction_receipt_id":"txr_%[1]d","submission_receipt_id":"sub_%[1]d","adjudication_id":"adj_%[1]d","escrow_reference":"esc_%[1]d","outcome":"release","amount":{"minor":1,"currency":"USD"},"held":{"minor":1,"currency":"USD"}}`, n)
	}
	unavailable := func(a answer, done string) {
		t.Helper()
		a.refused(http.StatusServiceUnavailable, "unavailable", "")
		if a.object()["done"] != done || a.header.Get("Retry-After") == "" {
			t.Errorf("%s: %v %s", a.what, a.header, a.text)
		}
	}
	// The connection breaks before the statement is sent, and after it.
	for n, broken := range []struct{ hangsUp, mute bool }{{true, false}, {false, true}} {
		w.set(broken.hangsUp, broken.mute)
		unavailable(r.ask("", http.MethodGet, "/api/v1/dead-letters", ""), "nothing")
		unavailable(r.ask("", http.MethodPost, "/api/v1/adjudications", submission(n)), "unknown")
		unavailable(r.ask("", http.MethodPost, "/api/v1/breakers/open", `{"reason":"x"}`), "unknown")
		unavailable(r.ask("", http.MethodPost, "/api/v1/breakers/open", `{"reason":"x"}`, "Idempotency-Key", fmt.Sprint("k", n)), "nothing")
		w.set(true, false)
		w.set(false, false)
		// A repeated submission is answered, whether or not it was accepted before.
		if a := r.ask("", http.MethodPost, "/api/v1/adjudications", submission(n)); a.status != http.StatusCreated && a.status != http.StatusOK {
			t.Errorf("submitted again: %d %s", a.status, a.text)
		}
	}
}
