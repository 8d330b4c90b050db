package worker

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/recourse-dev/recourse/internal/fakeescrow"
	"github.com/recourse-dev/recourse/postadjudication"
)

// How an executor misbehaves beyond what its escrow service does; a request says it
// in payload.executor.
const (
	Stubborn = "stubborn" // its calls go on when their context has ended
	Lies     = "lies"     // it says that twice as much was moved
)

// odd is an executor that does what the request says.
type odd struct{ *fakeescrow.Panicking }

func (o odd) Execute(ctx context.Context, c postadjudication.Call) postadjudication.Answer {
	var request struct {
		Payload struct {
			Executor string `json:"executor"`
		} `json:"payload"`
	}
	if err := json.Unmarshal(c.Request, &request); err != nil {
		return postadjudication.Answer{Class: postadjudication.NotExecuted, Type: "request.unreadable", Message: err.Error()}
	}
	if request.Payload.Executor == Stubborn {
		ctx = context.WithoutCancel(ctx)
	}
	ctx = context.WithValue(ctx, attempted{}, fmt.Sprintf("%s.%d", c.Run, c.Attempt))
	a := o.Panicking.Execute(ctx, c)
	if request.Payload.Executor == Lies {
		a.Moved *= 2
	}
	return a
}

// attempted is the key of a context's attempt.
type attempted struct{}

// named tells the escrow service which attempt of which worker a call is.
type named struct {
	worker string
	next   http.RoundTripper
}

func (n named) RoundTrip(r *http.Request) (*http.Response, error) {
	attempt, ok := r.Context().Value(attempted{}).(string)
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

// client is as the executor's own, and names its calls.
func client(worker string) *http.Client {
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	return &http.Client{Transport: named{worker, &http.Transport{
		DialContext: (&net.Dialer{Timeout: dialLimit}).DialContext, Protocols: &protocols,
		MaxIdleConnsPerHost: idleConnections, IdleConnTimeout: idleLimit, DisableCompression: true,
	}}}
}
