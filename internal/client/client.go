package client

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/recourse-dev/recourse/internal/api"
	"github.com/recourse-dev/recourse/internal/door"
)

const (
	answerTimeout  = time.Minute // for one answer
	maxAttempts    = 3           // for a request that changes something
	maxAnswerBytes = 64 << 20    // for an answer that is read at once
)

// As of net/http's default transport.
const (
	handshakeTimeout = 10 * time.Second
	idleTimeout      = 90 * time.Second
)

// Errors of an invalid Config.
var (
	ErrURL = errors.New("client: the URL must look like https://host:port, without a path, a name or a password")
	ErrKey = errors.New("client: the access key has invalid characters")
)

// InsecureError is returned instead of sending a key over plain http to another machine.
type InsecureError struct{ Host string }

func (e *InsecureError) Error() string {
	return "client: the access key would be sent to " + e.Host + " in the clear"
}

// UnreachableError is the error of a request without an answer.
type UnreachableError struct {
	Host string
	Err  error
}

func (e *UnreachableError) Error() string { return "the server " + e.Host + ": " + e.Err.Error() }

func (e *UnreachableError) Unwrap() error { return e.Err }

// Config names a server, and says how to call it.
type Config struct {
	URL    string
	Key    string // empty: none is sent
	Tenant string // empty: the tenant of the key

	Insecure             bool // allows sending the key over plain http to another machine
	ProxyFromEnvironment bool // without it no proxy is used: one could read a key sent to an http URL

	// WrapError replaces the error of a request; nil leaves it as it is.
	WrapError func(error) error
}

// Client calls one server with one key. It is safe for concurrent use.
type Client struct {
	DeadLetters   DeadLetters
	Bulk          Bulk
	Rules         Rules
	Keys          Keys
	Webhooks      Webhooks
	Policies      Policies
	Cases         Cases
	People        People
	OperationLogs OperationLogs
	Breakers      Breakers
	Events        Events
	Adjudications Adjudications

	conn *connection
}

// connection sends requests to a server and reads their answers.
type connection struct {
	base        *url.URL
	key, tenant string
	wrapError   func(error) error
	http        *http.Client
}

// New returns a client of a server, without sending a request. Errors: ErrURL, ErrKey,
// *InsecureError.
func New(c Config) (*Client, error) {
	u, err := url.Parse(c.URL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || strings.Trim(u.Path, "/") != "" {
		return nil, ErrURL
	}
	if strings.ContainsFunc(c.Key, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return nil, ErrKey
	}
	if c.Key != "" && u.Scheme == "http" && !door.IsLoopbackHost(u.Host) && !c.Insecure {
		return nil, &InsecureError{u.Host}
	}
	transport := &http.Transport{ForceAttemptHTTP2: true, TLSHandshakeTimeout: handshakeTimeout, IdleConnTimeout: idleTimeout}
	if c.ProxyFromEnvironment {
		transport.Proxy = http.ProxyFromEnvironment
	}
	if c.WrapError == nil {
		c.WrapError = func(err error) error { return err }
	}
	conn := &connection{base: u, key: c.Key, tenant: c.Tenant, wrapError: c.WrapError, http: &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	return &Client{
		DeadLetters: DeadLetters{conn}, Bulk: Bulk{conn}, Rules: Rules{conn}, Keys: Keys{conn}, Webhooks: Webhooks{conn}, Policies: Policies{conn},
		Cases: Cases{conn}, People: People{conn}, OperationLogs: OperationLogs{conn}, Breakers: Breakers{conn}, Events: Events{conn}, Adjudications: Adjudications{conn}, conn: conn,
	}, nil
}

// Close closes idle connections.
func (c *Client) Close() error {
	c.conn.http.CloseIdleConnections()
	return nil
}

func (c *connection) get(ctx context.Context, path string, query url.Values, out any) error {
	text, err := c.roundTrip(ctx, http.MethodGet, path, query, nil, "")
	if err != nil {
		return c.wrapError(err)
	}
	return c.read(text, out)
}

// post sends a request that changes something: see sendIdempotent.
func (c *connection) post(ctx context.Context, path string, body, out any) error {
	sent, err := json.Marshal(body)
	if err != nil {
		return err
	}
	return c.sendIdempotent(ctx, http.MethodPost, path, nil, sent, out)
}

// sendIdempotent sends a request that changes something, and sends it again if its answer is
// lost. Its Idempotency-Key makes the server do it only once.
func (c *connection) sendIdempotent(ctx context.Context, method, path string, query url.Values, sent []byte, out any) error {
	key := rand.Text()
	for attempt := 1; ; attempt++ {
		text, err := c.roundTrip(ctx, method, path, query, sent, key)
		if err == nil {
			return c.read(text, out)
		}
		wait, retry := retryable(err)
		if !retry || attempt == maxAttempts || ctx.Err() != nil {
			return c.wrapError(err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(wait):
		}
	}
}

// retryable reports whether a request may be sent again after an error, and how long to wait
// before: the server asks for it, or the answer was lost. A server that cannot be dialed is not
// asked again.
func retryable(err error) (wait time.Duration, may bool) {
	var p *ProblemError
	var dial *net.OpError
	switch {
	case errors.As(err, &p):
		return min(p.RetryAfter, 5*time.Second), p.RetryAfter > 0 && (p.Status == http.StatusServiceUnavailable || p.Code == "idempotency_in_progress")
	case errors.As(err, &dial) && dial.Op == "dial":
		return 0, false
	}
	var lost *UnreachableError
	return 100 * time.Millisecond, errors.As(err, &lost)
}

// roundTrip sends a request once and reads its answer.
func (c *connection) roundTrip(ctx context.Context, method, path string, query url.Values, body []byte, key string) ([]byte, error) {
	limited, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	resp, err := c.send(limited, method, path, query, body, key)
	if err != nil {
		return nil, c.unreachable(ctx, err)
	}
	defer resp.Body.Close() // read-only
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswerBytes+1))
	switch {
	case err != nil:
		return nil, c.unreachable(ctx, err)
	case len(text) > maxAnswerBytes:
		return nil, fmt.Errorf("the answer of %s has more than %d bytes", c.base.Host, maxAnswerBytes)
	case resp.StatusCode/100 != 2 || resp.StatusCode == http.StatusAccepted: // planned: another person has to run it
		return nil, c.problemError(resp, text)
	}
	return text, nil
}

func (c *connection) send(ctx context.Context, method, path string, query url.Values, body []byte, key string) (*http.Response, error) {
	at := c.base.JoinPath(api.Prefix, path)
	at.RawQuery = query.Encode()
	req, err := http.NewRequestWithContext(ctx, method, at.String(), bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/json")
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if c.key != "" {
		req.Header.Set("Authorization", "Bearer "+c.key)
	}
	if c.tenant != "" {
		req.Header.Set(door.TenantHeader, c.tenant)
	}
	if key != "" {
		req.Header.Set("Idempotency-Key", key)
	}
	return c.http.Do(req)
}

// unreachable returns the error of a request without an answer.
func (c *connection) unreachable(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, context.DeadlineExceeded):
		err = fmt.Errorf("no answer within %s", answerTimeout)
	}
	var asked *url.Error
	if errors.As(err, &asked) {
		err = asked.Err // drop the request's long URL
	}
	return &UnreachableError{c.base.Host, err}
}

// read decodes an answer. It fails if the server is not of this version.
func (c *connection) read(text []byte, out any) error {
	if err := json.Unmarshal(text, out); err != nil {
		return fmt.Errorf("%s does not answer like a recourse server of this version: %w", c.base.Host, err)
	}
	return nil
}

// retryAfter returns how long an answer asks to wait; 0: it does not ask.
func retryAfter(h http.Header) time.Duration {
	n, err := strconv.Atoi(h.Get("Retry-After"))
	if err != nil || n < 0 {
		return 0
	}
	return time.Duration(n) * time.Second
}
