package app

import (
	"net/http"
	"time"

	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/escrowhttp"
)

// Escrow has the clients of the escrow services, for execution and lookups.
type Escrow struct {
	Executor escrow.Executor           // client of the default escrow service
	Targets  []postadjudication.Target // clients of the other escrow services

	client  *escrowhttp.Executor // Executor without wrap
	clients []*escrowhttp.Executor
	url     string

	// The escrow service for demonstrations; nil unless it was started here:
	embedded *EmbeddedEscrow
	wrap     func(*escrowhttp.Executor) escrow.Executor
	stop     func()
}

// OpenEscrow returns clients of the escrow services that the options name. It sends no request.
func (o *Options) OpenEscrow() (*Escrow, error) {
	return o.openEscrow(&Escrow{url: o.EscrowURL}, o.KeyLifetime.Span, o.InFlight)
}

// startEscrow returns OpenEscrow, or starts the escrow service for demonstrations if none is
// named. That service never forgets an operation key, unless the options give a key lifetime.
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
		lifetime = escrow.Forever
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
		one, err := escrowhttp.New(escrowhttp.Config{BaseURL: url, Header: header, KeyLifetime: lifetime, LookupLifetime: o.LookupLifetime.Span, InFlight: inFlight, Asynchronous: o.Asynchronous, ProxyFromEnvironment: o.Proxy})
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

// Close closes idle connections, and stops the escrow service that was started here.
func (e *Escrow) Close() {
	for _, one := range e.clients {
		one.Close()
	}
	if e.stop != nil {
		e.stop()
	}
}
