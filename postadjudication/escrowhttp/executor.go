package escrowhttp

import (
	"context"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/recourse-dev/recourse/postadjudication"
)

// maxCallTime bounds a call whose context has no deadline.
const maxCallTime = 5 * time.Minute

// Executor calls one escrow service. It is safe for concurrent use.
type Executor struct {
	executions     *url.URL
	header         http.Header
	client         *http.Client
	keyLifetime    time.Duration
	lookupLifetime time.Duration
	inFlight       time.Duration
	table          map[int]Verdict
	maxBody        int64
	now            func() time.Time
}

var (
	_ postadjudication.Executor        = (*Executor)(nil)
	_ postadjudication.Lookuper        = (*Executor)(nil)
	_ postadjudication.InFlighter      = (*Executor)(nil)
	_ postadjudication.LookupLifetimer = (*Executor)(nil)
	_ postadjudication.Addressed       = (*Executor)(nil)
)

// Address returns the URL that executions are posted to and looked up at.
func (e *Executor) Address() string { return e.executions.String() }

// Execute posts the request once and classifies the answer. It returns when the
// service has answered or ctx has ended.
func (e *Executor) Execute(ctx context.Context, c postadjudication.Call) postadjudication.Answer {
	ctx, endSpan := startSpan(ctx, "execute")
	return endSpan(e.execute(ctx, c))
}

func (e *Executor) execute(ctx context.Context, c postadjudication.Call) postadjudication.Answer {
	ctx, cancel := withDeadline(ctx)
	defer cancel()
	x := exchange{call: c, cancel: cancel, maxBody: e.maxBody, now: e.now}
	req := e.request(x.watchConnection(ctx), http.MethodPost, e.executions, c)
	req.Header.Set("Content-Type", "application/json")
	setFenceHeaders(req.Header, c)
	// GetBody stays unset. With it, net/http would take the Idempotency-Key as leave to
	// replay the request on a new connection.
	body := newGatedBody(c.Request, c.Fresh)
	req.Body, req.ContentLength = body, int64(len(c.Request))

	resp, err := e.client.Do(req)
	stale := body.end()
	switch {
	case err != nil && stale != nil:
		return unsentAnswer(stale)
	case err != nil:
		return x.transportFailure(ctx, err)
	}
	closeSwitchedProtocol(resp)
	defer resp.Body.Close()
	v := e.verdict(resp.StatusCode)
	if v.Class == postadjudication.Executed {
		return x.execution(ctx, resp)
	}
	return x.decidedByStatus(resp, v)
}

// Lookup asks what became of the operation key. Every answer but the two that the
// wire defines is Unknown; the outcome table does not apply to it. Whether an answer that
// nothing was executed proves anything is for the caller to judge, by InFlight and
// LookupLifetime.
func (e *Executor) Lookup(ctx context.Context, c postadjudication.Call) postadjudication.Answer {
	ctx, endSpan := startSpan(ctx, "look up")
	return endSpan(e.lookUp(ctx, c))
}

func (e *Executor) lookUp(ctx context.Context, c postadjudication.Call) postadjudication.Answer {
	ctx, cancel := withDeadline(ctx)
	defer cancel()
	x := exchange{call: c, cancel: cancel, maxBody: e.maxBody, now: e.now}
	req := e.request(ctx, http.MethodGet, e.executions.JoinPath(c.OperationKey.String()), c)

	resp, err := e.client.Do(req)
	if err != nil {
		a := x.transportFailure(ctx, err)
		a.Class = postadjudication.Unknown // this GET was not sent; the calls before it were
		return a
	}
	closeSwitchedProtocol(resp)
	defer resp.Body.Close()
	switch resp.StatusCode {
	case http.StatusOK:
		return x.execution(ctx, resp)
	case http.StatusNotFound:
		return x.provenAbsence(ctx, resp)
	default:
		v := defaultVerdict(resp.StatusCode)
		v.Class, v.Retry = postadjudication.Unknown, true
		return x.decidedByStatus(resp, v)
	}
}

// KeyLifetime is the lifetime that the executor was configured with.
func (e *Executor) KeyLifetime() time.Duration { return e.keyLifetime }

// LookupLifetime is how long the service tells what became of a key, as configured.
func (e *Executor) LookupLifetime() time.Duration { return e.lookupLifetime }

// InFlight is how long a call that was given up may still be executed, as configured.
func (e *Executor) InFlight() time.Duration { return e.inFlight }

// Close closes connections that are idle. Calls in flight are not touched.
func (e *Executor) Close() { e.client.CloseIdleConnections() }

func (e *Executor) request(ctx context.Context, method string, u *url.URL, c postadjudication.Call) *http.Request {
	h := e.header.Clone()
	h.Set("Accept", "application/json")
	h.Set("Idempotency-Key", c.OperationKey.String())
	injectTrace(ctx, h)
	return (&http.Request{
		Method: method, URL: u, Host: u.Host, Header: h,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}).WithContext(ctx)
}

// setFenceHeaders tells the escrow service from when on, and after which other request, it is to
// refuse this one: see the package comment.
func setFenceHeaders(h http.Header, c postadjudication.Call) {
	if c.Generation > 0 {
		h.Set("Recourse-Generation", strconv.Itoa(c.Generation))
	}
	if !c.NotAfter.IsZero() {
		h.Set("Recourse-Not-After", c.NotAfter.UTC().Format(time.RFC3339Nano))
	}
}

func withDeadline(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, maxCallTime)
}

// exchange is one request and what came back.
type exchange struct {
	call      postadjudication.Call
	cancel    context.CancelFunc // ends the exchange, so that a read of its body ends
	maxBody   int64
	now       func() time.Time
	connected atomic.Bool // a connection was made, so bytes may have been sent
}

func (x *exchange) watchConnection(ctx context.Context) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) { x.connected.Store(true) },
	})
}

// closeSwitchedProtocol closes the connection of an answer that switched protocols, which we never
// ask for. net/http gives it as the body and no longer ends it with the context, so that
// reading it would wait for as long as the service likes.
func closeSwitchedProtocol(resp *http.Response) {
	if resp.StatusCode == http.StatusSwitchingProtocols {
		resp.Body.Close()
		resp.Body = http.NoBody
	}
}

func statusCode(resp *http.Response) string { return strconv.Itoa(resp.StatusCode) }
