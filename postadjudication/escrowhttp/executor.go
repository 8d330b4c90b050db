package escrowhttp

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/recourse-dev/recourse/internal/redact"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
)

// notAfterFormat has always as many decimals: readers of times differ in which numbers of them they take. A time is cut, never
// rounded up.
const notAfterFormat = "2006-01-02T15:04:05.000Z07:00"

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
	acceptedFor    time.Duration
	table          map[int]Verdict
	maxBody        int64
	now            func() time.Time
}

var (
	_ escrow.Executor        = (*Executor)(nil)
	_ escrow.Lookuper        = (*Executor)(nil)
	_ escrow.InFlighter      = (*Executor)(nil)
	_ escrow.LookupLifetimer = (*Executor)(nil)
	_ escrow.Asynchronous    = (*Executor)(nil)
	_ escrow.Addressed       = (*Executor)(nil)
)

// Address returns the URL of executions.
func (e *Executor) Address() string { return e.executions.String() }

// Execute posts the request once and classifies the answer. It returns when the service has
// answered or ctx is done.
func (e *Executor) Execute(ctx context.Context, c escrow.Call) escrow.Answer {
	ctx, endSpan := startSpan(ctx, "execute")
	return endSpan(e.leaveConnections(e.execute(ctx, c)))
}

// leaveConnections closes idle connections after a call without an answer, so that the next call dials. What keeps one
// connection silent (a NAT or a proxy that has forgotten it) keeps the others of its age silent too, and each of them
// would cost an attempt.
func (e *Executor) leaveConnections(a escrow.Answer) escrow.Answer {
	if a.Type == TypeTimeout || a.Type == TypeNoAnswer {
		e.client.CloseIdleConnections()
	}
	return a
}

func (e *Executor) execute(ctx context.Context, c escrow.Call) escrow.Answer {
	ctx, cancel := withDeadline(ctx)
	defer cancel()
	x := exchange{call: c, cancel: cancel, maxBody: e.maxBody, now: e.now, asynchronous: e.acceptedFor > 0}
	req := e.request(x.watchConnection(ctx), http.MethodPost, e.executions, c)
	req.Header.Set("Content-Type", "application/json")
	setFenceHeaders(req.Header, c)
	// GetBody stays unset. With it, net/http would treat the Idempotency-Key as permission to
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
	switch _, overridden := e.table[resp.StatusCode]; {
	case v.Class == escrow.Executed:
		return x.execution(ctx, resp)
	case resp.StatusCode == http.StatusAccepted && x.asynchronous && !overridden:
		return x.acceptance(ctx, resp)
	}
	return x.decidedByStatus(resp, v)
}

// Lookup reads what became of the operation key. Any answer other than the two that the package
// comment defines is Unknown; Config.Table does not apply. Whether an answer of "not executed"
// proves anything is up to the caller, by InFlight and LookupLifetime.
func (e *Executor) Lookup(ctx context.Context, c escrow.Call) escrow.Answer {
	ctx, endSpan := startSpan(ctx, "look up")
	return endSpan(e.leaveConnections(e.lookUp(ctx, c)))
}

func (e *Executor) lookUp(ctx context.Context, c escrow.Call) escrow.Answer {
	ctx, cancel := withDeadline(ctx)
	defer cancel()
	x := exchange{call: c, cancel: cancel, maxBody: e.maxBody, now: e.now, asynchronous: e.acceptedFor > 0}
	req := e.request(ctx, http.MethodGet, e.executions.JoinPath(c.OperationKey.String()), c)

	resp, err := e.client.Do(req)
	if err != nil {
		a := x.transportFailure(ctx, err)
		a.Class = escrow.Unknown // this GET was not sent; the calls before it were
		return a
	}
	closeSwitchedProtocol(resp)
	defer resp.Body.Close()
	switch {
	case resp.StatusCode == http.StatusOK:
		return x.execution(ctx, resp)
	case resp.StatusCode == http.StatusAccepted && x.asynchronous:
		return x.acceptance(ctx, resp)
	case resp.StatusCode == http.StatusNotFound:
		return x.provenAbsence(ctx, resp)
	default:
		v := defaultVerdict(resp.StatusCode)
		v.Class, v.Retry = escrow.Unknown, true
		return x.decidedByStatus(resp, v)
	}
}

// KeyLifetime returns Config.KeyLifetime.
func (e *Executor) KeyLifetime() time.Duration { return e.keyLifetime }

// LookupLifetime returns Config.LookupLifetime, at least KeyLifetime.
func (e *Executor) LookupLifetime() time.Duration { return e.lookupLifetime }

// InFlight returns Config.InFlight or its default.
func (e *Executor) InFlight() time.Duration { return e.inFlight }

// AcceptedFor returns Config.Asynchronous.
func (e *Executor) AcceptedFor() time.Duration { return e.acceptedFor }

// Close closes idle connections. Calls in flight are not affected.
func (e *Executor) Close() { e.client.CloseIdleConnections() }

func (e *Executor) request(ctx context.Context, method string, u *url.URL, c escrow.Call) *http.Request {
	h := e.header.Clone()
	h.Set("Accept", "application/json")
	h.Set("Idempotency-Key", c.OperationKey.String())
	injectTrace(ctx, h)
	return (&http.Request{
		Method: method, URL: u, Host: u.Host, Header: h,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}).WithContext(ctx)
}

// setFenceHeaders sets the headers by which the escrow service can refuse a late or outdated
// request: see the package comment.
func setFenceHeaders(h http.Header, c escrow.Call) {
	if c.Generation > 0 {
		h.Set("Recourse-Generation", strconv.Itoa(c.Generation))
	}
	if !c.NotAfter.IsZero() {
		h.Set("Recourse-Not-After", c.NotAfter.UTC().Format(notAfterFormat))
	}
}

func withDeadline(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, maxCallTime)
}

// exchange is one request and its response.
type exchange struct {
	call    escrow.Call
	cancel  context.CancelFunc // ends the exchange, including a read of its body
	maxBody int64
	now     func() time.Time

	asynchronous bool // the service may accept the call and end it later

	connected atomic.Bool // a connection was made, so bytes may have been sent
}

func (x *exchange) watchConnection(ctx context.Context) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) { x.connected.Store(true) },
	})
}

// closeSwitchedProtocol closes the connection of a 101 answer, which we never ask for. net/http
// returns that connection as the body and does not close it with the context, so a read could
// block for as long as the service likes.
func closeSwitchedProtocol(resp *http.Response) {
	if resp.StatusCode == http.StatusSwitchingProtocols {
		resp.Body.Close()
		resp.Body = http.NoBody
	}
}

func statusCode(resp *http.Response) string { return strconv.Itoa(resp.StatusCode) }

var traceContext propagation.TraceContext

// startSpan starts the span of a call if ctx has a trace. Without a trace, endSpan only returns
// the answer.
func startSpan(ctx context.Context, name string) (_ context.Context, endSpan func(escrow.Answer) escrow.Answer) {
	parent := trace.SpanFromContext(ctx)
	if !parent.SpanContext().IsValid() {
		return ctx, func(a escrow.Answer) escrow.Answer { return a }
	}
	tracer := parent.TracerProvider().Tracer("github.com/recourse-dev/recourse/postadjudication/escrowhttp")
	ctx, span := tracer.Start(ctx, name, trace.WithSpanKind(trace.SpanKindClient))
	return ctx, func(a escrow.Answer) escrow.Answer {
		span.SetAttributes(attribute.String("recourse.outcome_class", string(a.Class)), attribute.String("recourse.code", redact.Text(a.Code)))
		if a.Class != escrow.Executed {
			span.SetStatus(codes.Error, a.Type)
		}
		span.End()
		return a
	}
}

// injectTrace sends the trace of ctx to the escrow service as traceparent.
func injectTrace(ctx context.Context, h http.Header) {
	if trace.SpanContextFromContext(ctx).IsValid() {
		traceContext.Inject(ctx, propagation.HeaderCarrier(h))
	}
}

// transportFailure classifies a request without a response. It is proven unsent only if no
// connection was made and the error is of a dial: a transport that does not report connections
// must not turn a lost answer into proof.
func (x *exchange) transportFailure(ctx context.Context, err error) escrow.Answer {
	a := escrow.Answer{
		Class: escrow.Unknown, Retry: true,
		Type: TypeNoAnswer, Message: oneLine(cause(err).Error()),
	}
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		a.Type = TypeTimeout
	case ctx.Err() != nil:
	case !x.connected.Load() && isDialError(err):
		a.Class, a.Type = escrow.NotExecuted, TypeConnectionRefused
	case isTimeout(err):
		a.Type = TypeTimeout
	}
	return a
}

// unsentAnswer is the answer if the last byte was not sent: the service has no whole request to
// execute.
func unsentAnswer(stale error) escrow.Answer {
	return escrow.Answer{Class: escrow.NotExecuted, Retry: true, Type: TypeUnsent, Message: oneLine(stale.Error())}
}

// isDialError reports whether the error is of a dial.
func isDialError(err error) bool {
	var dns *net.DNSError
	var op *net.OpError
	return errors.Is(err, syscall.ECONNREFUSED) || errors.As(err, &dns) ||
		errors.As(err, &op) && op.Op == "dial"
}

func isTimeout(err error) bool {
	var t net.Error
	return errors.As(err, &t) && t.Timeout()
}

// cause removes the method and URL that net/http puts before its errors: they contain the
// operation key, so that equal failures would differ.
func cause(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}
