package cli

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
)

const (
	// remotePatience is how long a server may take for one answer.
	remotePatience = time.Minute
	remoteTries    = 3
	remoteMost     = 64 << 20 // of an answer that is read at once
)

// server asks a recourse that runs elsewhere, over its HTTP API.
type server struct {
	base        *url.URL
	key, tenant string
	client      *http.Client
}

// As of the transport that net/http has by itself.
const (
	handshakeLimit = 10 * time.Second
	idleLimit      = 90 * time.Second
)

// newServer reads the URL of a server. The key is shown to that server only: a redirect
// is not followed.
func newServer(base, key, tenant string, insecure, proxied bool) (*server, error) {
	u, err := url.Parse(base)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || strings.Trim(u.Path, "/") != "" {
		return nil, &exit{exitUsage, errors.New("--server must look like https://host:port, without a path, a name or a password")}
	}
	if strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return nil, &exit{exitUsage, errors.New("no access key is in $" + KeyVariable + ": those look like rck_ and letters")}
	}
	if key != "" && u.Scheme == "http" && !loopback(u.Hostname()) && !insecure {
		return nil, &exit{exitUsage, fmt.Errorf("the access key in $%s would travel to %s in the clear: name it with https, or add --insecure if nobody else can listen", KeyVariable, u.Host)}
	}
	transport := &http.Transport{ForceAttemptHTTP2: true, TLSHandshakeTimeout: handshakeLimit, IdleConnTimeout: idleLimit}
	if proxied { // unasked none is used: it would read the key on its way to an http URL
		transport.Proxy = http.ProxyFromEnvironment
	}
	return &server{base: u, key: key, tenant: tenant, client: &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// loopback reports whether a host is this machine.
func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

func (s *server) Close() error {
	s.client.CloseIdleConnections()
	return nil
}

func (s *server) get(ctx context.Context, path string, query url.Values, out any) error {
	text, err := s.ask(ctx, http.MethodGet, path, query, nil, "")
	if err != nil {
		return err
	}
	return s.read(text, out)
}

// post asks for something to be done, once: see order.
func (s *server) post(ctx context.Context, path string, body, out any) error {
	sent, err := json.Marshal(body)
	if err != nil {
		return err
	}
	return s.order(ctx, http.MethodPost, path, nil, sent, out)
}

// order asks for something to be done. Under its Idempotency-Key it is done once, however
// often it is sent: when an answer is lost it is asked for again.
func (s *server) order(ctx context.Context, method, path string, query url.Values, sent []byte, out any) error {
	key := rand.Text()
	for try := 1; ; try++ {
		text, err := s.ask(ctx, method, path, query, sent, key)
		if err == nil {
			return s.read(text, out)
		}
		wait, lost := again(err)
		if !lost || try == remoteTries || ctx.Err() != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(wait):
		}
	}
}

// again tells whether the same request may be sent again after an error, and when: the
// server asks for it, or it is not known whether it heard the request.
func again(err error) (wait time.Duration, may bool) {
	var p *problem
	var dial *net.OpError
	switch {
	case errors.As(err, &p):
		return min(p.after, 5*time.Second), p.after > 0 && (p.Status == http.StatusServiceUnavailable || p.Code == "idempotency_in_progress")
	case errors.As(err, &dial) && dial.Op == "dial":
		return 0, false
	}
	var lost *lostError
	return 100 * time.Millisecond, errors.As(err, &lost)
}

// lostError is a request of which no answer came.
type lostError struct{ error }

func (e *lostError) Unwrap() error { return e.error }

// ask sends a request once and reads its answer.
func (s *server) ask(ctx context.Context, method, path string, query url.Values, body []byte, key string) ([]byte, error) {
	within, cancel := context.WithTimeout(ctx, remotePatience)
	defer cancel()
	resp, err := s.send(within, method, path, query, body, key)
	if err != nil {
		return nil, s.lost(ctx, err)
	}
	defer resp.Body.Close() // only read from
	text, err := io.ReadAll(io.LimitReader(resp.Body, remoteMost+1))
	switch {
	case err != nil:
		return nil, s.lost(ctx, err)
	case len(text) > remoteMost:
		return nil, fmt.Errorf("%s answers more than %d bytes", s.base.Host, remoteMost)
	case resp.StatusCode/100 != 2 || resp.StatusCode == http.StatusAccepted: // planned, for somebody else to let run
		return nil, s.refused(resp, text)
	}
	return text, nil
}

func (s *server) send(ctx context.Context, method, path string, query url.Values, body []byte, key string) (*http.Response, error) {
	at := s.base.JoinPath(api.Prefix, path)
	at.RawQuery = query.Encode()
	req, err := http.NewRequestWithContext(ctx, method, at.String(), bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/json")
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if s.key != "" {
		req.Header.Set("Authorization", "Bearer "+s.key)
	}
	if s.tenant != "" {
		req.Header.Set(api.TenantHeader, s.tenant)
	}
	if key != "" {
		req.Header.Set("Idempotency-Key", key)
	}
	return s.client.Do(req)
}

// lost is the error of a request that got no answer.
func (s *server) lost(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, context.DeadlineExceeded):
		err = fmt.Errorf("no answer within %s", remotePatience)
	}
	var asked *url.Error
	if errors.As(err, &asked) {
		err = asked.Err // without the URL of the request, which is long and says nothing more
	}
	return &lostError{&exit{exitUnreachable, fmt.Errorf("the server %s: %w", s.base.Host, err)}}
}

// read reads an answer, which must be what this program expects of its servers.
func (s *server) read(text []byte, out any) error {
	if err := json.Unmarshal(text, out); err != nil {
		return fmt.Errorf("%s does not answer like a recourse of this version: %w", s.base.Host, err)
	}
	return nil
}

// retryAfter is the seconds that an answer asks to wait.
func retryAfter(h http.Header) time.Duration {
	n, err := strconv.Atoi(h.Get("Retry-After"))
	if err != nil || n < 0 {
		return 0
	}
	return time.Duration(n) * time.Second
}
