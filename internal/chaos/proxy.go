package main

import (
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

// proxy forwards connections to a server and disturbs them.
type proxy struct {
	listener net.Listener
	target   func() string // the address of a server; empty: there is none now
	serving  sync.WaitGroup

	mu       sync.Mutex
	mode     proxyMode
	passable chan struct{} // closed unless the proxy is stalled
	delay    time.Duration // of every chunk, in both directions
	inFlight int           // chunks that are being forwarded
	links    map[*link]bool
}

// proxyMode is how the proxy treats bytes and new connections.
type proxyMode int

const (
	modePass  proxyMode = iota
	modeReset           // connections are reset, new ones too
	modeStall           // nothing is forwarded until it is healed, then everything is
)

// link is one connection through the proxy. A blackholed one discards what the client sends and
// never answers: to the client the server is connected and silent.
type link struct {
	client, server net.Conn
	blackholed     chan struct{}
	once           sync.Once
}

func newProxy(target string) (*proxy, error) {
	return newProxyTo(func() string { return target })
}

// newProxyTo returns a proxy that chooses a server for each connection.
func newProxyTo(target func() string) (*proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &proxy{listener: l, target: target, passable: make(chan struct{}), links: map[*link]bool{}}
	close(p.passable)
	p.serving.Go(p.accept)
	return p, nil
}

func (p *proxy) addr() string { return p.listener.Addr().String() }

func (p *proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return // closed
		}
		p.serving.Go(func() { p.serve(client) })
	}
}

func (p *proxy) serve(client net.Conn) {
	server, err := net.Dial("tcp", p.target())
	if err != nil {
		reset(client)
		return
	}
	l := &link{client: client, server: server, blackholed: make(chan struct{})}
	if !p.add(l) {
		l.reset()
		return
	}
	var both sync.WaitGroup
	both.Go(func() { p.pump(l, server, client) })
	both.Go(func() { p.pump(l, client, server) })
	both.Wait()
	p.mu.Lock()
	delete(p.links, l)
	p.mu.Unlock()
	l.reset()
}

func (p *proxy) add(l *link) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mode == modeReset {
		return false
	}
	p.links[l] = true
	return true
}

// pump copies bytes one way until either end is closed. On a blackholed link the client's end
// stays open, and what it sends is discarded.
func (p *proxy) pump(l *link, to, from net.Conn) {
	piece := make([]byte, 32<<10)
	for {
		n, err := from.Read(piece)
		if n > 0 {
			p.addInFlight(1)
			if p.forwarded(l) {
				if _, werr := to.Write(piece[:n]); werr != nil {
					err = errors.Join(err, werr)
				}
			}
			p.addInFlight(-1)
		}
		if err == nil {
			continue
		}
		select {
		case <-l.blackholed:
			if from == l.client {
				return // the client has given up
			}
			_, _ = io.Copy(io.Discard, l.client) // until it does
			return
		default:
			l.reset()
			return
		}
	}
}

func (p *proxy) addInFlight(more int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.inFlight += more
}

// idle reports whether nothing is being forwarded or held back.
func (p *proxy) idle() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mode != modeStall && p.inFlight == 0
}

// forwarded blocks as long as a chunk is held back, and reports whether it is delivered.
func (p *proxy) forwarded(l *link) bool {
	p.mu.Lock()
	open, delay := p.passable, p.delay
	p.mu.Unlock()
	select {
	case <-open:
	case <-l.blackholed:
		return false
	}
	if delay > 0 {
		time.Sleep(delay)
	}
	select {
	case <-l.blackholed:
		return false
	default:
		return true
	}
}

// setMode changes the mode, also for open connections.
func (p *proxy) setMode(mode proxyMode, delay time.Duration) {
	p.mu.Lock()
	if mode == modeStall && p.mode != modeStall {
		p.passable = make(chan struct{})
	}
	if mode != modeStall && p.mode == modeStall {
		close(p.passable)
	}
	p.mode, p.delay = mode, delay
	links := p.allLinks()
	p.mu.Unlock()
	if mode == modeReset {
		for _, l := range links {
			l.reset()
		}
	}
}

// blackhole makes the server silent on every open connection, for ever. New ones work.
func (p *proxy) blackhole() {
	p.mu.Lock()
	links := p.allLinks()
	p.mu.Unlock()
	for _, l := range links {
		l.once.Do(func() {
			close(l.blackholed)
			_ = l.server.Close() // for the server the client is gone
		})
	}
}

func (p *proxy) allLinks() (out []*link) {
	for l := range p.links {
		out = append(out, l)
	}
	return out
}

func (p *proxy) close() error {
	err := p.listener.Close()
	p.setMode(modeReset, 0)
	p.serving.Wait()
	return err
}

func (l *link) reset() {
	reset(l.client)
	reset(l.server)
}

// reset closes a connection by RST.
func reset(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // an error means that it is closed already
	}
	_ = c.Close()
}
