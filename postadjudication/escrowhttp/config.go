package escrowhttp

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/recourse-dev/recourse/postadjudication/escrow"
)

const (
	defaultMaxBody   = 64 << 10
	maxHeader        = 64 << 10
	idlePerHost      = 256
	dialLimit        = 5 * time.Second
	userAgent        = "recourse"
	idleConnLifetime = 30 * time.Second
)

// DefaultInFlight is the default of Config.InFlight.
const DefaultInFlight = escrow.DefaultInFlight

// Config describes one escrow service.
type Config struct {
	// BaseURL is the http or https URL to which the paths of the API are appended. It holds no
	// credentials (they belong in Header), query or fragment.
	BaseURL string
	// Header is sent with every request, such as Authorization.
	Header http.Header
	// Client makes the requests. Redirects are never followed. Nil means a new client: HTTP/1.1
	// with up to 256 idle connections. After a call without an answer the executor closes the client's idle connections.
	Client *http.Client
	// ProxyFromEnvironment calls the service through the proxy of HTTP_PROXY or HTTPS_PROXY if
	// Client is nil. A proxy reads everything sent to an http URL, Header included.
	ProxyFromEnvironment bool
	// KeyLifetime is the minimum time for which the service recognises an operation key.
	// [escrow.Forever] means that keys never expire. Zero means that it recognises
	// none, which is safe but costs the retries: no call follows one of unknown outcome. After
	// a single lost answer the service is looked up once, and a lookup that does not say
	// "executed" leads to a dispute.
	KeyLifetime time.Duration
	// LookupLifetime is how long after the first call a lookup still knows a key, if longer
	// than KeyLifetime. After it a lookup that finds nothing proves nothing, since a service
	// that has forgotten a key answers the same.
	LookupLifetime time.Duration
	// InFlight is how long a call may still be executed after the caller gave up, because it
	// waits in a proxy or in the queue of a slow service. Until then a lookup that finds
	// nothing proves nothing. It must be far more than the clock differences between the
	// executing machines. Zero means DefaultInFlight. Negative means that the service never
	// executes a call that it has not answered.
	InFlight time.Duration
	// Asynchronous is for a service that accepts calls and ends them later: how long after the first call an accepted
	// one is asked about. Then its outcome is unknown. It must be shorter than the time for which a lookup knows
	// a key. Zero means that the service ends each call with its answer: a 202 is an unknown outcome then.
	Asynchronous time.Duration
	// Table overrides the meaning of status codes. A status with class Executed is read as a
	// success, which its body must confirm.
	Table map[int]Verdict
	// MaxBody is the maximum size of a body in bytes; 0 means 64 KiB. A success with a longer
	// body is unreadable.
	MaxBody int64
	// Now is the clock for a Retry-After date if the answer has no Date; nil means time.Now.
	Now func() time.Time
}

// New checks the configuration and returns an Executor. It makes no request.
func New(c Config) (*Executor, error) {
	base, err := parseBase(c.BaseURL)
	if err != nil {
		return nil, err
	}
	header, err := checkedHeader(c.Header)
	if err != nil {
		return nil, err
	}
	if err := checkTable(c.Table); err != nil {
		return nil, err
	}
	if c.KeyLifetime < 0 {
		return nil, errors.New("escrowhttp: KeyLifetime is negative")
	}
	if c.LookupLifetime < 0 {
		return nil, errors.New("escrowhttp: LookupLifetime is negative")
	}
	if c.Asynchronous < 0 {
		return nil, errors.New("escrowhttp: Asynchronous is negative")
	}
	if c.Asynchronous > 0 && c.Asynchronous >= max(c.KeyLifetime, c.LookupLifetime) {
		return nil, errors.New("escrowhttp: Asynchronous is not shorter than the time for which a lookup knows an operation key: KeyLifetime or LookupLifetime")
	}
	if c.MaxBody < 0 {
		return nil, errors.New("escrowhttp: MaxBody is negative")
	}
	if c.InFlight == 0 {
		c.InFlight = DefaultInFlight
	}
	if c.MaxBody == 0 {
		c.MaxBody = defaultMaxBody
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return &Executor{
		executions:     base.JoinPath("v1", "executions"),
		header:         header,
		client:         withoutRedirects(c.Client, c.ProxyFromEnvironment),
		keyLifetime:    c.KeyLifetime,
		lookupLifetime: max(c.KeyLifetime, c.LookupLifetime),
		inFlight:       c.InFlight,
		acceptedFor:    c.Asynchronous,
		table:          maps.Clone(c.Table),
		maxBody:        c.MaxBody,
		now:            c.Now,
	}, nil
}

func parseBase(s string) (*url.URL, error) {
	u, err := url.Parse(s)
	if err != nil {
		// The parser's error quotes the URL, which may hold a password.
		return nil, errors.New("escrowhttp: BaseURL is not a URL")
	}
	switch {
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, errors.New("escrowhttp: BaseURL is neither http nor https")
	case u.Hostname() == "":
		return nil, errors.New("escrowhttp: BaseURL names no host")
	case u.User != nil:
		return nil, errors.New("escrowhttp: BaseURL holds credentials; give them in Header")
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		return nil, errors.New("escrowhttp: BaseURL has a query or a fragment")
	}
	if u.Path == "" {
		u.Path = "/" // else JoinPath makes a relative path, which is no request target
	}
	return u, nil
}

// checkedHeader refuses names and values that net/http would refuse at every call, where the
// error would look like an unknown outcome, and headers that the executor sets.
func checkedHeader(h http.Header) (http.Header, error) {
	out := http.Header{"User-Agent": {userAgent}}
	for name, values := range h {
		key := http.CanonicalHeaderKey(name)
		switch key {
		case "Idempotency-Key", "Recourse-Generation", "Recourse-Not-After", "Content-Type", "Content-Length", "Transfer-Encoding", "Accept", "Host", "Connection":
			return nil, fmt.Errorf("escrowhttp: header %s is set by the executor", key)
		}
		if name == "" || strings.ContainsFunc(name, func(r rune) bool { return !tokenRune(r) }) {
			return nil, fmt.Errorf("escrowhttp: %q is not a header name", name)
		}
		for _, v := range values {
			if strings.ContainsFunc(v, func(r rune) bool { return (r < ' ' && r != '\t') || r == 0x7f }) {
				return nil, fmt.Errorf("escrowhttp: the value of header %s has a control character", key)
			}
		}
		out[key] = append([]string(nil), values...)
	}
	return out, nil
}

func tokenRune(r rune) bool {
	return r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' ||
		r < 0x80 && strings.ContainsRune("!#$%&'*+-.^_`|~", r)
}

func checkTable(table map[int]Verdict) error {
	for status, v := range table {
		if status < 100 || status > 599 {
			return fmt.Errorf("escrowhttp: Table has status %d", status)
		}
		switch v.Class {
		case escrow.Executed, escrow.NotExecuted, escrow.Unknown:
		default:
			return fmt.Errorf("escrowhttp: Table gives status %d the class %q", status, v.Class)
		}
	}
	return nil
}

// withoutRedirects returns a copy of the client that returns redirects instead of following
// them.
func withoutRedirects(c *http.Client, proxied bool) *http.Client {
	client := http.Client{Transport: newTransport(proxied)}
	if c != nil {
		client = *c
	}
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &client
}

// newTransport speaks HTTP/1.1 only: with one connection per call, a reset of one does not
// affect another.
func newTransport(proxied bool) *http.Transport {
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	var proxy func(*http.Request) (*url.URL, error)
	if proxied {
		proxy = http.ProxyFromEnvironment
	}
	return &http.Transport{
		Proxy:                  proxy,
		DialContext:            (&net.Dialer{Timeout: dialLimit}).DialContext,
		Protocols:              &protocols,
		MaxIdleConns:           0, // bounded per host, and there is one host
		MaxIdleConnsPerHost:    idlePerHost,
		IdleConnTimeout:        idleConnLifetime,
		MaxResponseHeaderBytes: maxHeader,
		DisableCompression:     true,
	}
}
