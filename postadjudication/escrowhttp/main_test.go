package escrowhttp_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/escrowhttp"
	"github.com/recourse-dev/recourse/settlement"
)

// limit is the maximum duration of a call in these tests.
const limit = 10 * time.Second

func newCall() escrow.Call {
	return escrow.Call{
		OperationKey: escrow.OperationKey(sha256.Sum256([]byte("one"))),
		Request:      []byte(`{"amount":{"currency":"USD","minor":12500}}`),
		Tenant:       "northwind",
		Outcome:      settlement.Outcome("release"),
		Amount:       settlement.Money{Minor: 12500, Currency: "USD"},
		Attempt:      1,
	}
}

func proofBody(c escrow.Call, status string, minor int64, currency string) string {
	return fmt.Sprintf(`{"operation_key":%q,"status":%q,"moved":{"minor":%d,"currency":%q},"reference":"eff_1"}`,
		c.OperationKey, status, minor, currency)
}

func newExecutor(t *testing.T, c escrowhttp.Config) *escrowhttp.Executor {
	t.Helper()
	e, err := escrowhttp.New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	return e
}

func withLimit(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	t.Cleanup(cancel)
	return ctx
}

// serveAnswer starts a service that answers every request alike.
func serveAnswer(t *testing.T, status int, header map[string]string, body string) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			t.Error(err)
		}
		w.Header().Set("Content-Type", "application/json")
		for k, v := range header {
			w.Header().Set(k, v)
		}
		w.WriteHeader(status)
		if _, err := io.WriteString(w, body); err != nil && status >= 200 && status != 204 && status != 304 {
			t.Error(err)
		}
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// serveConn starts a service of raw TCP: serve receives each connection.
func serveConn(t *testing.T, serve func(net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var conns sync.WaitGroup
	conns.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			conns.Go(func() {
				defer c.Close()
				serve(c)
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		conns.Wait()
	})
	return "http://" + l.Addr().String()
}

// readRequest reads one request and returns its body; an error means that the client
// disconnected.
func readRequest(r *bufio.Reader) ([]byte, error) {
	req, err := http.ReadRequest(r)
	if err != nil {
		return nil, err
	}
	return io.ReadAll(req.Body)
}

// writeRepeatedly writes s repeatedly until the client disconnects, at most most bytes.
func writeRepeatedly(c net.Conn, s string, most int) (written int) {
	chunk := bytes.Repeat([]byte(s), max(1, 4096/len(s)))
	for written < most {
		n, err := c.Write(chunk)
		written += n
		if err != nil {
			return written
		}
	}
	return written
}

func response(status int, raw []byte) *http.Response {
	return &http.Response{
		StatusCode: status,
		Header:     http.Header{"Content-Type": {"application/json"}},
		Body:       io.NopCloser(bytes.NewReader(raw)),
	}
}
