package app

import (
	"net/http"
	"time"

	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/escrowhttp"
)

// Escrow is whom settlements are executed by, and asked about.
type Escrow struct {
	Executor postadjudication.Executor // of the default one
	Targets  []postadjudication.Target // beside it

	client  *escrowhttp.Executor // of the default one
	clients []*escrowhttp.Executor
	url     string

	// Of the escrow service for demonstrations; nil unless it was started here:
	embedded *EmbeddedEscrow
	wrap     func(*escrowhttp.Executor) postadjudication.Executor
	stop     func()
}

// OpenEscrow makes the clients of the escrow services that the options name. It calls nobody.
func (o *Options) OpenEscrow() (*Escrow, error) {
	return o.openEscrow(&Escrow{url: o.EscrowURL}, o.KeyLifetime.Span, o.InFlight)
}

// startEscrow starts the escrow service for demonstrations when none is named. That
// one never forgets an operation key, unless the options say so.
func (o *Options) startEscrow() (*Escrow, error) {
	if o.EscrowURL != "" {
		return o.OpenEscrow()
	}
	e := &Escrow{}
	if err := e.embed(); err != nil {
		return nil, err
	}
	lifetime := o.KeyLifetime.Span
	if !o.KeyLifetime.Given {
		lifetime = postadjudication.Forever
	}
	return o.openEscrow(e, lifetime, -1)
}

func (o *Options) openEscrow(e *Escrow, lifetime, inFlight time.Duration) (*Escrow, error) {
	named, err := o.targets()
	if err != nil {
		e.Close()
		return nil, err
	}
	authorization := o.Authorization
	if e.embedded != nil {
		authorization = ""
	}
	open := func(url, authorization string) (*escrowhttp.Executor, error) {
		header := http.Header{}
		if authorization != "" {
			header.Set("Authorization", authorization)
		}
		one, err := escrowhttp.New(escrowhttp.Config{BaseURL: url, Header: header, KeyLifetime: lifetime, LookupLifetime: o.LookupLifetime.Span, InFlight: inFlight, ProxyFromEnvironment: o.Proxy})
		if err != nil {
			e.Close()
			return nil, optionError("the escrow service: %v", err)
		}
		e.clients = append(e.clients, one)
		return one, nil
	}
	if e.client, err = open(e.url, authorization); err != nil {
		return nil, err
	}
	e.Executor = e.client
	if e.wrap != nil {
		e.Executor = e.wrap(e.client)
	}
	for _, t := range named {
		next := postadjudication.Target{Name: t.name}
		if t.url != "" {
			authorization := ""
			if o.TargetAuthorization != nil {
				authorization = o.TargetAuthorization(t.name)
			}
			if next.Executor, err = open(t.url, authorization); err != nil {
				return nil, err
			}
		}
		e.Targets = append(e.Targets, next)
	}
	return e, nil
}

// Close lets go of connections, and ends the escrow service that was started here.
func (e *Escrow) Close() {
	for _, one := range e.clients {
		one.Close()
	}
	if e.stop != nil {
		e.stop()
	}
}
