package testkit

import (
	"bytes"
	"net"
	"net/url"
	"sync"
	"testing"
)

// LossyPostgres is a proxy before a Postgres. It loses the answer to one statement, which the server executes.
type LossyPostgres struct {
	listener net.Listener
	to       string

	mu       sync.Mutex
	argument []byte // of the statement; nil: none
	resets   bool   // the connection is reset, and not closed
	lost     int
	conns    []net.Conn
	work     sync.WaitGroup
}

// NewLossyPostgres starts a proxy before the server of a URL, until the end of the test. It returns the URL through it.
func NewLossyPostgres(t testing.TB, databaseURL string) (p *LossyPostgres, through string) {
	t.Helper()
	u, err := url.Parse(databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	p = &LossyPostgres{to: u.Host}
	if p.listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	u.Host = p.listener.Addr().String()
	p.work.Go(p.accept)
	t.Cleanup(func() {
		_ = p.listener.Close()
		p.mu.Lock()
		for _, c := range p.conns {
			_ = c.Close() // its other end may be closed already
		}
		p.mu.Unlock()
		p.work.Wait()
	})
	return p, u.String()
}

// LoseAnswerTo loses the answer to the next statement with an argument: its connection is reset, or closed.
func (p *LossyPostgres) LoseAnswerTo(argument string, resets bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.argument, p.resets = []byte(argument), resets
}

// Lost returns how many answers were lost.
func (p *LossyPostgres) Lost() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lost
}

func (p *LossyPostgres) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", p.to)
		if err != nil {
			_ = client.Close()
			continue
		}
		p.mu.Lock()
		p.conns = append(p.conns, client, server)
		p.mu.Unlock()
		losing := make(chan struct{}, 1)
		p.work.Go(func() {
			relay(server, client, func(sent []byte) bool {
				p.mu.Lock()
				defer p.mu.Unlock()
				if p.argument != nil && bytes.Contains(sent, p.argument) {
					p.argument = nil
					p.lost++
					if p.resets {
						_ = client.(*net.TCPConn).SetLinger(0)
					}
					losing <- struct{}{}
				}
				return true
			})
		})
		p.work.Go(func() { relay(client, server, func([]byte) bool { return len(losing) == 0 }) })
	}
}

// relay copies what passes, and ends with the first that does not.
func relay(to, from net.Conn, passes func([]byte) bool) {
	defer func() { _ = to.Close() }() // its other end may be closed already
	for buf := make([]byte, 64<<10); ; {
		n, err := from.Read(buf)
		if err != nil || !passes(buf[:n]) {
			return
		}
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
	}
}
