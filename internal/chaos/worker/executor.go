package worker

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/recourse-dev/recourse/internal/fakeescrow"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
)

// How an executor misbehaves beyond its escrow service; a request has it in
// payload.executor.
const (
	IgnoresCancel = "stubborn" // its calls continue after their context has ended
	Misreports    = "lies"     // it reports twice the sum that was moved
	Renames       = "renames"  // as IgnoresCancel, and each attempt names another reference of the payment
)

// misbehavingExecutor is an executor that misbehaves as the request asks.
type misbehavingExecutor struct {
	*fakeescrow.Panicking
	received func(Statement) // is called with each payment that the executor returns
}

// Statement is a payment that an attempt, or a lookup of its run, stated under an operation key.
type Statement struct {
	Key, Run  string
	Attempt   int
	Moved     int64
	Reference string
	Lookup    bool // a lookup stated it
}

// Lookup looks up, and tells what was paid: a person's finding of the same payment may name another reference.
func (o misbehavingExecutor) Lookup(ctx context.Context, c escrow.Call) escrow.Answer {
	a := o.Panicking.Lookup(ctx, c)
	if a.Class == escrow.Executed {
		o.received(Statement{c.OperationKey.String(), c.Run.String(), c.Attempt, a.Moved, a.Reference, true})
	}
	return a
}

func (o misbehavingExecutor) Execute(ctx context.Context, c escrow.Call) escrow.Answer {
	var request struct {
		Payload struct {
			Executor string `json:"executor"`
		} `json:"payload"`
	}
	if err := json.Unmarshal(c.Request, &request); err != nil {
		return escrow.Answer{Class: escrow.NotExecuted, Type: "request.unreadable", Message: err.Error()}
	}
	if request.Payload.Executor == IgnoresCancel || request.Payload.Executor == Renames {
		ctx = context.WithoutCancel(ctx)
	}
	ctx = context.WithValue(ctx, attemptKey{}, fmt.Sprintf("%s.%d", c.Run, c.Attempt))
	a := o.Panicking.Execute(ctx, c)
	if request.Payload.Executor == Misreports {
		a.Moved *= 2
	}
	if request.Payload.Executor == Renames && a.Reference != "" {
		a.Reference += fmt.Sprintf("-%d", c.Attempt)
	}
	if a.Class == escrow.Executed {
		o.received(Statement{c.OperationKey.String(), c.Run.String(), c.Attempt, a.Moved, a.Reference, false})
	}
	return a
}

// attemptKey is the context key of the attempt.
type attemptKey struct{}

// callTagger adds headers with the worker and the attempt to each call.
type callTagger struct {
	worker string
	next   http.RoundTripper
}

func (n callTagger) RoundTrip(r *http.Request) (*http.Response, error) {
	attempt, ok := r.Context().Value(attemptKey{}).(string)
	if !ok {
		return n.next.RoundTrip(r) // a lookup
	}
	own := *r
	own.Header = r.Header.Clone()
	own.Header.Set("Chaos-Worker", n.worker)
	own.Header.Set("Chaos-Attempt", attempt)
	return n.next.RoundTrip(&own)
}

const (
	idleConnections = 256
	dialLimit       = 5 * time.Second
	idleLimit       = 30 * time.Second
)

// taggedClient returns a client as the executor's own, with a callTagger.
func taggedClient(worker string) *http.Client {
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	return &http.Client{Transport: callTagger{worker, &http.Transport{
		DialContext: (&net.Dialer{Timeout: dialLimit}).DialContext, Protocols: &protocols,
		MaxIdleConnsPerHost: idleConnections, IdleConnTimeout: idleLimit, DisableCompression: true,
	}}}
}
