package main

import (
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

// proxy stands before a server and spoils the network on the way to it.
type proxy struct {
	listener net.Listener
	target   string
	serving  sync.WaitGroup

	mu    sync.Mutex
	way   way
	open  chan struct{} // closed unless the way is stalled
	delay time.Duration // of every piece, in both directions
	held  int           // pieces that are on their way
	links map[*link]bool
}

// way is how the network is for bytes and new connections.
type way int

const (
	passing way = iota
	cut         // connections are reset, new ones too
	stalled     // nothing gets through until it is healed, then everything does
)

// link is one connection through the proxy. A deaf one swallows what it is given for
// ever and says nothing: to the client a server that is there and does not answer.
type link struct {
	client, server net.Conn
	deaf           chan struct{}
	deafen         sync.Once
}

func newProxy(target string) (*proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &proxy{listener: l, target: target, open: make(chan struct{}), links: map[*link]bool{}}
	close(p.open)
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
	server, err := net.Dial("tcp", p.target)
	if err != nil {
		reset(client)
		return
	}
	l := &link{client: client, server: server, deaf: make(chan struct{})}
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
	if p.way == cut {
		return false
	}
	p.links[l] = true
	return true
}

// pump carries bytes one way until either end is gone. Of a deaf link the client's
// end is kept, and what it says is thrown away.
func (p *proxy) pump(l *link, to, from net.Conn) {
	piece := make([]byte, 32<<10)
	for {
		n, err := from.Read(piece)
		if n > 0 {
			p.holds(1)
			if p.through(l) {
				if _, werr := to.Write(piece[:n]); werr != nil {
					err = errors.Join(err, werr)
				}
			}
			p.holds(-1)
		}
		if err == nil {
			continue
		}
		select {
		case <-l.deaf:
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

func (p *proxy) holds(more int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held += more
}

// empty reports whether nothing is on its way, and nothing is held up.
func (p *proxy) empty() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.way != stalled && p.held == 0
}

// through waits as long as the way makes a piece wait, and reports whether it gets there.
func (p *proxy) through(l *link) bool {
	p.mu.Lock()
	open, delay := p.open, p.delay
	p.mu.Unlock()
	select {
	case <-open:
	case <-l.deaf:
		return false
	}
	if delay > 0 {
		time.Sleep(delay)
	}
	select {
	case <-l.deaf:
		return false
	default:
		return true
	}
}

// set changes the way, for connections that are there too.
func (p *proxy) set(w way, delay time.Duration) {
	p.mu.Lock()
	if w == stalled && p.way != stalled {
		p.open = make(chan struct{})
	}
	if w != stalled && p.way == stalled {
		close(p.open)
	}
	p.way, p.delay = w, delay
	links := p.all()
	p.mu.Unlock()
	if w == cut {
		for _, l := range links {
			l.reset()
		}
	}
}

// deafen makes every connection that is there half-open, for ever. New ones work.
func (p *proxy) deafen() {
	p.mu.Lock()
	links := p.all()
	p.mu.Unlock()
	for _, l := range links {
		l.deafen.Do(func() {
			close(l.deaf)
			_ = l.server.Close() // the server is told that the client is gone
		})
	}
}

func (p *proxy) all() (out []*link) {
	for l := range p.links {
		out = append(out, l)
	}
	return out
}

func (p *proxy) close() error {
	err := p.listener.Close()
	p.set(cut, 0)
	p.serving.Wait()
	return err
}

func (l *link) reset() {
	reset(l.client)
	reset(l.server)
}

// reset ends a connection without a farewell.
func reset(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // a connection that is gone needs none
	}
	_ = c.Close()
}
