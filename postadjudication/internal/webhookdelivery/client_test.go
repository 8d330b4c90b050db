package webhookdelivery

import (
	"bufio"
	"context"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

var (
	thisMachine = []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}
	testSecrets = [][]byte{[]byte(strings.Repeat("s", 32))}
)

func (c *client) try(t *testing.T, to string) result {
	t.Helper()
	t.Cleanup(c.close)
	return c.send(context.Background(), to, "id", []byte("{}"), testSecrets, time.Now())
}

func TestAnswersThatAreNoSuccess(t *testing.T) {
	t.Parallel()
	elsewhere := atomic.Int32{}
	mux := http.NewServeMux()
	mux.HandleFunc("/moved", func(w http.ResponseWriter, q *http.Request) {
		http.Redirect(w, q, "/elsewhere", http.StatusTemporaryRedirect)
	})
	mux.HandleFunc("/elsewhere", func(http.ResponseWriter, *http.Request) { elsewhere.Add(1) })
	mux.HandleFunc("/gone", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusGone) })
	mux.HandleFunc("/busy", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "120")
		w.WriteHeader(http.StatusTooManyRequests)
	})
	mux.HandleFunc("/long", func(w http.ResponseWriter, _ *http.Request) {
		if _, err := w.Write(make([]byte, 1<<20)); err != nil {
			return // the client has read enough
		}
	})
	mux.HandleFunc("/headers", func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("X-Long", strings.Repeat("x", 64<<10)) })
	mux.HandleFunc("/breaks", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	server := httptest.NewServer(mux)
	defer server.Close()
	c := newClient(thisMachine, nil)
	for path, want := range map[string]result{
		"/moved": {failure: "the receiver answered 307"}, "/gone": {gone: true, failure: "the receiver answered 410"},
		"/busy": {retryAfter: 2 * time.Minute, failure: "the receiver answered 429"}, "/long": {delivered: true},
		"/breaks": {failure: "EOF"}, "/absent": {failure: "the receiver answered 404"},
	} {
		if got := c.try(t, server.URL+path); got != want {
			t.Errorf("%s: %+v", path, got)
		}
	}
	if got := c.try(t, server.URL+"/headers"); got.delivered || !strings.Contains(got.failure, "headers exceeded 16384 bytes") {
		t.Errorf("%+v", got)
	}
	if elsewhere.Load() != 0 {
		t.Error("a redirect was followed")
	}
	for _, by := range []*http.Client{c.https, c.http} {
		if by.Transport.(*http.Transport).Proxy != nil || by.Timeout != answerTimeout {
			t.Error("a client has a proxy, or no timeout")
		}
	}
}

// Tenants see failures. They name no address of this machine or of its resolvers.
func TestAFailureNamesNoServerOfTheOperator(t *testing.T) {
	t.Parallel()
	address := func(text string) net.Addr { return net.TCPAddrFromAddrPort(netip.MustParseAddrPort(text)) }
	dial := func(err error) error {
		return &net.OpError{Op: "dial", Net: "tcp", Addr: address("8.8.8.8:443"), Err: err}
	}
	for want, err := range map[string]error{
		"there is no host h.example, or serve --webhooks-allow does not open its address": dial(&net.DNSError{Name: "h.example", Server: "10.0.0.53:53", Err: "no such host", IsNotFound: true}),
		"the name h.example could not be resolved":                                        dial(&net.DNSError{Name: "h.example", Server: "10.0.0.53:53", Err: "read udp 10.0.0.1:4->10.0.0.53:53: i/o timeout", IsTimeout: true}),
		"no connection within 5s":                                                         dial(os.ErrDeadlineExceeded),
		"dial tcp 8.8.8.8:443: connection refused":                                        dial(syscall.ECONNREFUSED),
		"read tcp 8.8.8.8:443: connection reset by peer":                                  &net.OpError{Op: "read", Net: "tcp", Source: address("10.0.0.1:4"), Addr: address("8.8.8.8:443"), Err: syscall.ECONNRESET},
		"no answer within 15s":                                                            context.DeadlineExceeded,
	} {
		if got := shortFailure(&url.Error{Op: "Post", URL: "https://h.example/", Err: err}); got != want {
			t.Errorf("%v: %q, want %q", err, got, want)
		}
	}
	// A name of a closed address is answered as one that does not exist, over http too.
	unknown := shortFailure(&url.Error{Op: "Post", URL: "https://h.example/", Err: dial(&net.DNSError{Name: "h.example", Err: "no such host", IsNotFound: true})})
	for _, open := range []bool{false, true} {
		closed := dial(&addressError{addr: netip.MustParseAddr("10.0.0.53"), open: open})
		if got := shortFailure(&url.Error{Op: "Post", URL: "https://h.example/", Err: closed}); got != unknown {
			t.Errorf("%q of a closed address, %q of an unknown name", got, unknown)
		}
		if got := shortFailure(&url.Error{Op: "Post", URL: "https://10.0.0.53/", Err: closed}); !strings.Contains(got, "10.0.0.53") {
			t.Errorf("%q of an address that the tenant gave", got)
		}
	}
}

// answering is a server that answers every request with a text and then holds the connection.
func answering(t *testing.T, text string) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { conn.Close() })
			if _, err := http.ReadRequest(bufio.NewReader(conn)); err == nil {
				_, _ = io.WriteString(conn, text)
			}
		}
	}()
	return "http://" + listener.Addr().String()
}

// After 101 nothing but the receiver would end the connection: a try that waited for it would never
// end, nor would the process.
func TestAReceiverThatSwitchesProtocolsHoldsNoRequest(t *testing.T) {
	t.Parallel()
	to := answering(t, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: other\r\n\r\n")
	done := make(chan result, 1)
	c := newClient(thisMachine, nil)
	defer c.close()
	go func() { done <- c.send(context.Background(), to, "id", []byte("{}"), testSecrets, time.Now()) }()
	select {
	case got := <-done:
		if got != (result{failure: "the receiver answered 101"}) {
			t.Errorf("%+v", got)
		}
	case <-time.After(answerTimeout / 2):
		t.Error("the request does not end")
	}
}

// What answers may be another server of the operator. Its words are not for tenants.
func TestAFailureHasNoTextOfTheAnswer(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"-ERR hidden POST hidden\r\n":                       "malformed HTTP",
		"SSH-2.0 hidden\r\n":                                "malformed HTTP",
		"hidden\r\n":                                        "malformed HTTP response",
		"HTTP/1.1 2000 hidden\r\n\r\n":                      "malformed HTTP status code",
		"HTTP/1.1 200 OK\r\nX-Key hidden\r\n\r\n":           "malformed MIME header: missing colon",
		"HTTP/1.1 200 OK\r\nContent-Length: hidden\r\n\r\n": "bad Content-Length",
	} {
		got := newClient(thisMachine, nil).try(t, answering(t, text))
		if got.delivered || !strings.Contains(got.failure, want) || strings.Contains(got.failure, "hidden") || strings.HasSuffix(got.failure, ":") {
			t.Errorf("%q: %+v", text, got)
		}
	}
}

func TestARequestIsCancelledWithItsContext(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release }))
	defer server.Close()
	defer close(release)
	c := newClient(thisMachine, nil)
	defer c.close()
	ctx, cancel := context.WithCancel(context.Background())
	time.AfterFunc(20*time.Millisecond, cancel)
	if got := c.send(ctx, server.URL, "id", nil, testSecrets, time.Now()); got.delivered || got.failure != "context canceled" {
		t.Errorf("%+v", got)
	}
}

// TLS is verified, and http goes nowhere that the operator has not opened.
func TestTheReceiverMustHaveAKnownCertificate(t *testing.T) {
	t.Parallel()
	server := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer server.Close()
	c := newClient(thisMachine, nil)
	if got := c.try(t, server.URL); got.delivered || !strings.Contains(got.failure, "certificate") {
		t.Errorf("%+v", got)
	}
	known := x509.NewCertPool()
	known.AddCert(server.Certificate())
	c.https.Transport.(*http.Transport).TLSClientConfig.RootCAs = known
	if got := c.try(t, server.URL); !got.delivered {
		t.Errorf("%+v", got)
	}
	if got := newClient(nil, nil).try(t, server.URL); got.delivered || !strings.Contains(got.failure, "127.0.0.1 are refused") {
		t.Errorf("%+v", got)
	}
}

// names is a DNS server that answers a name with one address after the other.
func names(t *testing.T, addresses ...string) *net.Resolver {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	go func() {
		asked := 0
		for buf := make([]byte, 512); ; {
			n, from, err := conn.ReadFrom(buf)
			if err != nil {
				return
			}
			var m dnsmessage.Message
			if m.Unpack(buf[:n]) != nil || len(m.Questions) != 1 {
				continue
			}
			q := m.Questions[0]
			m.Response, m.Additionals = true, nil
			if q.Type == dnsmessage.TypeA {
				addr := netip.MustParseAddr(addresses[min(asked, len(addresses)-1)])
				asked++
				m.Answers = []dnsmessage.Resource{{Header: dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class, TTL: 1}, Body: &dnsmessage.AResource{A: addr.As4()}}}
			}
			if out, err := m.Pack(); err == nil {
				if _, err := conn.WriteTo(out, from); err != nil {
					return
				}
			}
		}
	}()
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "udp", conn.LocalAddr().String())
	}}
}

// A name is judged by the address of each connection: one that was open at the first asking is
// refused when it is another at the second.
func TestANameIsJudgedAtEachConnection(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	var served atomic.Int32
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		served.Add(1)
		w.Header().Set("Connection", "close")
	}))
	server.Listener.Close()
	server.Listener = listener
	server.Start()
	defer server.Close()
	_, port, err := net.SplitHostPort(listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	c := newClient(thisMachine, names(t, "127.0.0.1", "127.0.0.2"))
	to := "http://hooks.example.com:" + port + "/"
	if got := c.try(t, to); !got.delivered {
		t.Fatalf("%+v", got)
	}
	if got := c.try(t, to); got.delivered || !strings.Contains(got.failure, "there is no host hooks.example.com") {
		t.Errorf("%+v", got)
	}
	if served.Load() != 1 {
		t.Errorf("%d requests arrived", served.Load())
	}
}
