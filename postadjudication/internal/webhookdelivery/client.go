package webhookdelivery

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/recourse-dev/recourse/internal/failpoint"
	"github.com/recourse-dev/recourse/postadjudication/internal/validate"
)

const (
	answerTimeout = 15 * time.Second // for a whole request
	dialTimeout   = 5 * time.Second
	maxAnswer     = 4 << 10 // bytes of an answer that are read
	maxHeader     = 16 << 10
	idlePerHost   = maxInFlight
	maxFailure    = 256 // bytes of a failure's text
)

// result is what became of one try.
type result struct {
	delivered  bool
	gone       bool          // the receiver wants no more
	retryAfter time.Duration // that the receiver asks for; 0: none
	failure    string        // why it was not delivered
}

// client sends requests. Each connection is made to an address that may be used: the address is
// judged when the name is resolved, at the moment of dialling.
type client struct {
	https, http *http.Client
}

// newClient returns a client that also sends to the addresses in allow. It finds addresses by the
// resolver; nil: as the machine does.
func newClient(allow []netip.Prefix, resolver *net.Resolver) *client {
	return &client{https: newHTTPClient(allow, resolver, false), http: newHTTPClient(allow, resolver, true)}
}

func newHTTPClient(allow []netip.Prefix, resolver *net.Resolver, plain bool) *http.Client {
	dialer := &net.Dialer{Timeout: dialTimeout, Resolver: resolver, ControlContext: func(_ context.Context, network, address string, _ syscall.RawConn) error {
		at, err := netip.ParseAddrPort(address)
		if err != nil || !strings.HasPrefix(network, "tcp") {
			return fmt.Errorf("%s %q is no address to send to", network, address)
		}
		return CheckAddress(at.Addr(), allow, plain)
	}}
	return &http.Client{
		Timeout:       answerTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{ // without a proxy: it would dial in place of this process
			DialContext: dialer.DialContext, TLSHandshakeTimeout: dialTimeout, TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12},
			MaxIdleConns: 1000, MaxIdleConnsPerHost: idlePerHost, IdleConnTimeout: time.Minute,
			MaxResponseHeaderBytes: maxHeader, DisableCompression: true,
		},
	}
}

// close closes the idle connections.
func (c *client) close() {
	c.https.CloseIdleConnections()
	c.http.CloseIdleConnections()
}

// send makes one try to deliver a body.
func (c *client) send(ctx context.Context, to, id string, body []byte, secrets [][]byte, at time.Time) result {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, to, bytes.NewReader(body))
	if err == nil {
		err = setHeaders(request.Header, id, at, body, secrets)
	}
	if err != nil {
		return result{failure: shortFailure(err)}
	}
	by := c.https
	if request.URL.Scheme == "http" {
		by = c.http
	}
	failpoint.Hit(failpoint.CallBefore, failpoint.Delivery)
	answer, err := by.Do(request)
	if err != nil {
		return result{failure: shortFailure(err)}
	}
	defer answer.Body.Close()
	out := resultOf(answer, at)
	if answer.StatusCode >= 200 { // after 101 the body is the connection, which no timeout and no context ends
		discard(answer.Body)
	}
	failpoint.Hit(failpoint.CallAfter, failpoint.Delivery)
	return out
}

// discard reads an answer to its end, so that the connection can be used again. An answer that is
// too long or breaks off costs the connection, and nothing else: its status is known.
func discard(body io.Reader) {
	_, _ = io.CopyN(io.Discard, body, maxAnswer)
}

func resultOf(answer *http.Response, at time.Time) result {
	if answer.StatusCode >= 200 && answer.StatusCode < 300 {
		return result{delivered: true}
	}
	return result{
		gone: answer.StatusCode == http.StatusGone, failure: fmt.Sprintf("the receiver answered %d", answer.StatusCode),
		retryAfter: parseRetryAfter(answer.Header.Get("Retry-After"), at),
	}
}

// parseRetryAfter returns for how long a receiver asks to wait, in seconds or until a date; 0 if it
// does not say.
func parseRetryAfter(text string, now time.Time) time.Duration {
	if seconds, err := strconv.Atoi(text); err == nil {
		return min(time.Duration(max(seconds, 0)), maxRetryAfter/time.Second) * time.Second
	}
	at, err := http.ParseTime(text)
	if err != nil {
		return 0
	}
	return min(max(at.Sub(now), 0), maxRetryAfter)
}

// shortFailure returns an error without the URL, which is known, and without the addresses of this
// machine and its resolvers and the text of answers, which are not for tenants. A name of a closed address is
// answered as one that does not exist: else a tenant learns what names and addresses the operator's network has.
func shortFailure(err error) string {
	var of *url.Error
	host, literal := "", false
	if errors.As(err, &of) {
		err = of.Err
		host, literal = hostOf(of.URL)
	}
	var address *addressError
	var name *net.DNSError
	var network *net.OpError
	switch {
	case errors.As(err, &address) && literal:
		return address.Error()
	case errors.As(err, &address), errors.As(err, &name) && name.IsNotFound:
		return fmt.Sprintf("there is no host %s, or serve --webhooks-allow does not open its address", cmp.Or(host, "of that name"))
	case errors.As(err, &name):
		return fmt.Sprintf("the name %s could not be resolved", name.Name)
	case errors.As(err, &network) && network.Op == "dial" && network.Timeout():
		return fmt.Sprintf("no connection within %s", dialTimeout)
	case errors.Is(err, context.DeadlineExceeded), isTimeout(err):
		return fmt.Sprintf("no answer within %s", answerTimeout)
	}
	if network != nil {
		remote := *network
		remote.Source = nil
		err = &remote
	}
	text := err.Error()
	if certificate := new(tls.CertificateVerificationError); !errors.As(err, &certificate) {
		text, _, _ = strings.Cut(text, ` "`) // net/http quotes what is no HTTP, such as the greeting of a server inside
	}
	return validate.Clean(strings.TrimSuffix(text, ":"), maxFailure)
}

// hostOf returns the host of a URL, and whether it is an address.
func hostOf(text string) (host string, literal bool) {
	u, err := url.Parse(text)
	if err != nil {
		return "", false
	}
	_, err = netip.ParseAddr(u.Hostname())
	return u.Hostname(), err == nil
}

func isTimeout(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}
