package app

import (
	"net/http"

	"github.com/recourse-dev/recourse/internal/fakeescrow"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/escrowhttp"
)

// escrow is whom settlements are executed by.
type escrow struct {
	executor postadjudication.Executor
	calls    *escrowhttp.Executor
	embedded *fakeescrow.Service // nil unless it was started here
	url      string
}

// openEscrow starts the escrow service for demonstrations when none is named. That
// one never forgets an operation key, unless the options say so.
func openEscrow(o Options) (*escrow, error) {
	e := &escrow{url: o.EscrowURL}
	lifetime, inFlight := o.KeyLifetime.Span, o.InFlight
	if e.url == "" {
		service, err := fakeescrow.Start(fakeescrow.Config{})
		if err != nil {
			return nil, err
		}
		e.embedded, e.url, inFlight = service, service.URL(), -1
		if !o.KeyLifetime.Said {
			lifetime = postadjudication.Forever
		}
	}
	header := http.Header{}
	if o.Authorization != "" && e.embedded == nil {
		header.Set("Authorization", o.Authorization)
	}
	calls, err := escrowhttp.New(escrowhttp.Config{BaseURL: e.url, Header: header, KeyLifetime: lifetime, LookupLifetime: o.LookupLifetime.Span, InFlight: inFlight})
	if err != nil {
		e.close()
		return nil, wrong("the escrow service: %v", err)
	}
	e.calls, e.executor = calls, calls
	if e.embedded != nil {
		e.executor = fakeescrow.NewPanicking(calls)
	}
	return e, nil
}

func (e *escrow) close() {
	if e.calls != nil {
		e.calls.Close()
	}
	if e.embedded != nil {
		e.embedded.Close()
	}
}
