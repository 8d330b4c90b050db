package fakeescrow

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"
)

// Config is where the service listens and how long its slow words take.
type Config struct {
	Addr string           // "" means 127.0.0.1:0
	Late time.Duration    // how long after it paid a late call is answered; 0 means 600ms
	Hang time.Duration    // how long a hanging call is held at most; 0 means until its client goes away
	Now  func() time.Time // nil means time.Now

	KeyLifetime time.Duration // how long after its first call a key is forgotten; 0 means never
	// LookupLifetime is for how long lookups know a key, if longer than KeyLifetime.
	LookupLifetime time.Duration
	Wait           time.Duration // Retry-After of the word wait, in whole seconds; 0 means 1s
	Lookup         string        // the default word of lookups; "" means ok
	Lag            time.Duration // how far behind a lagging lookup is; 0 means 1s
}

const (
	defaultLate = 600 * time.Millisecond
	defaultLag  = time.Second
	defaultWait = time.Second
	headerLimit = 10 * time.Second
)

// Service is a running escrow service.
type Service struct {
	config  Config
	ledger  ledger
	server  *http.Server
	url     string
	end     context.CancelFunc // ends calls that are held
	running sync.WaitGroup     // the server, and its connections
}

// Start listens. The service answers when Start returns.
func Start(c Config) (*Service, error) {
	if c.Late < 0 || c.Hang < 0 || c.KeyLifetime < 0 || c.LookupLifetime < 0 || c.Wait < 0 || c.Lag < 0 {
		return nil, errors.New("fakeescrow: a duration is negative")
	}
	if c.Lookup == "" {
		c.Lookup = wordOK
	}
	if !slices.Contains(lookupWords, c.Lookup) {
		return nil, fmt.Errorf("fakeescrow: there is no lookup %q", c.Lookup)
	}
	if c.Lag == 0 {
		c.Lag = defaultLag
	}
	if c.Wait == 0 {
		c.Wait = defaultWait
	}
	if c.Addr == "" {
		c.Addr = "127.0.0.1:0"
	}
	if c.Late == 0 {
		c.Late = defaultLate
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	l, err := net.Listen("tcp", c.Addr)
	if err != nil {
		return nil, fmt.Errorf("fakeescrow: %w", err)
	}
	ctx, end := context.WithCancel(context.Background())
	s := &Service{config: c, ledger: newLedger(c), url: "http://" + l.Addr().String(), end: end}
	s.server = &http.Server{
		Handler:           s.routes(),
		ReadHeaderTimeout: headerLimit,
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ConnState:         s.count,
	}
	s.running.Go(func() {
		if err := s.server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			log.Printf("fakeescrow: stopped listening: %v", err)
		}
	})
	return s, nil
}

// count counts connections. A new one is reported by the accepting loop, which is
// counted itself, so that Close never returns too early.
func (s *Service) count(_ net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		s.running.Add(1)
	case http.StateClosed:
		s.running.Done()
	}
}

// URL is the base URL that escrowhttp.Config takes.
func (s *Service) URL() string { return s.url }

// Close ends the service as a power cut would: held calls get no answer. The ledger
// can still be read.
func (s *Service) Close() {
	s.end()
	if err := s.server.Close(); err != nil {
		log.Printf("fakeescrow: %v", err)
	}
	s.running.Wait()
}

// Repair makes every word mean ok from now on, as when the operators of the escrow
// service repair it. Calls that are already held stay held.
func (s *Service) Repair() { s.ledger.repair() }
