package journaltest

import (
	"bytes"
	"crypto/md5"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/url"
	"sync"
	"testing"
)

// Pooler behaves like a connection pooler such as PgBouncer: a server that lends its
// clients sessions of its own, each for a transaction or for good. It refuses run-time
// settings in the startup packet, as PgBouncer does by default.
type Pooler struct {
	t           testing.TB
	upstream    *url.URL
	SessionMode bool // lends a session for good; else for a transaction
	Rotates     bool // lends the session that was idle longest; else the one used last
	listener    net.Listener

	mu       sync.Mutex
	idle     []*serverSession
	startups int // of clients
	conns    []net.Conn
	closed   bool
	serving  sync.WaitGroup
}

// serverSession is a session of the pooler with the real server.
type serverSession struct {
	net.Conn
	greeting []byte // its parameters, which clients receive
}

// PoolerTo starts a pooler in front of the database of a URL, with some idle sessions.
func PoolerTo(t testing.TB, databaseURL string, p *Pooler, sessions int) (through string) {
	t.Helper()
	u, err := url.Parse(databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	p.t, p.upstream = t, u
	for range sessions {
		s, err := p.connect()
		if err != nil {
			t.Fatal(err)
		}
		p.idle = append(p.idle, s)
	}
	if p.listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	p.serving.Go(p.accept)
	t.Cleanup(func() {
		_ = p.listener.Close()
		p.mu.Lock()
		p.closed = true
		for _, c := range p.conns {
			_ = c.Close() // the peer may have closed it first
		}
		p.mu.Unlock()
		p.serving.Wait()
	})
	own := *u
	own.Host = p.listener.Addr().String()
	return own.String()
}

// Startups returns how many clients have sent the startup packet.
func (p *Pooler) Startups() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.startups
}

func (p *Pooler) track(c net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.conns = append(p.conns, c); p.closed {
		_ = c.Close()
	}
}

func (p *Pooler) accept() {
	for {
		c, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.track(c)
		p.serving.Go(func() { p.serve(c) })
	}
}

// connect opens a session with the real server, which requests an MD5 password.
func (p *Pooler) connect() (*serverSession, error) {
	c, err := net.Dial("tcp", p.upstream.Host)
	if err != nil {
		return nil, err
	}
	p.track(c)
	body := binary.BigEndian.AppendUint32(nil, 3<<16)
	for _, s := range []string{"user", p.upstream.User.Username(), "database", p.upstream.Path[1:], "client_encoding", "UTF8", "datestyle", "ISO, MDY", ""} {
		body = append(append(body, s...), 0)
	}
	if _, err := c.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(body)+4)), body...)); err != nil {
		return nil, err
	}
	s := &serverSession{Conn: c}
	for {
		kind, message, err := readMessage(c)
		if err != nil || kind == 'Z' {
			return s, err
		}
		switch {
		case kind == 'S':
			s.greeting = append(s.greeting, message...)
		case kind == 'R' && binary.BigEndian.Uint32(message[5:]) == 5:
			if err := p.answer(c, message[9:]); err != nil {
				return nil, err
			}
		}
	}
}

// answer sends the password, hashed with the server's salt.
func (p *Pooler) answer(c net.Conn, salt []byte) error {
	password, _ := p.upstream.User.Password()
	inner := fmt.Sprintf("%x", md5.Sum([]byte(password+p.upstream.User.Username())))
	text := fmt.Sprintf("md5%x\x00", md5.Sum(append([]byte(inner), salt...)))
	_, err := c.Write(append(binary.BigEndian.AppendUint32([]byte{'p'}, uint32(len(text)+4)), text...))
	return err
}

func (p *Pooler) borrow() (*serverSession, error) {
	p.mu.Lock()
	if n := len(p.idle); n > 0 {
		s := p.idle[n-1]
		if p.Rotates {
			s, p.idle = p.idle[0], p.idle[1:]
		} else {
			p.idle = p.idle[:n-1]
		}
		p.mu.Unlock()
		return s, nil
	}
	p.mu.Unlock()
	return p.connect()
}

func (p *Pooler) release(s *serverSession) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.idle = append(p.idle, s)
}

// serve serves one client until either side closes.
func (p *Pooler) serve(client net.Conn) {
	defer client.Close()
	var length [4]byte
	if _, err := io.ReadFull(client, length[:]); err != nil {
		return
	}
	startup := make([]byte, binary.BigEndian.Uint32(length[:])-4)
	if _, err := io.ReadFull(client, startup); err != nil {
		return
	}
	params := map[string]string{}
	for words := bytes.Split(startup[4:], []byte{0}); len(words) > 1 && len(words[0]) > 0; words = words[2:] {
		params[string(words[0])] = string(words[1])
	}
	p.mu.Lock()
	p.startups++
	p.mu.Unlock()
	for name := range params {
		switch name {
		case "user", "database", "client_encoding", "datestyle", "application_name":
		default:
			text := "SERROR\x00C08P01\x00Munsupported startup parameter: " + name + "\x00\x00"
			_, _ = client.Write(append(binary.BigEndian.AppendUint32([]byte{'E'}, uint32(len(text)+4)), text...)) // the client closes next
			return
		}
	}
	s, err := p.borrow()
	if err != nil {
		p.t.Errorf("pooler can't connect to the server: %v", err)
		return
	}
	hello := append([]byte{'R', 0, 0, 0, 8, 0, 0, 0, 0}, s.greeting...)
	hello = append(hello, 'K', 0, 0, 0, 12, 0, 0, 0, 1, 0, 0, 0, 1, 'Z', 0, 0, 0, 5, 'I')
	if !p.SessionMode {
		p.release(s)
		s = nil
	}
	if _, err := client.Write(hello); err == nil {
		p.relay(client, s)
	}
}

// relay copies messages to the server, and the answers to the client at the end of each
// query.
func (p *Pooler) relay(client net.Conn, s *serverSession) {
	for {
		kind, message, err := readMessage(client)
		if err != nil || kind == 'X' {
			return
		}
		if s == nil {
			if s, err = p.borrow(); err != nil {
				return
			}
		}
		if _, err := s.Write(message); err != nil {
			return
		}
		if kind != 'Q' && kind != 'S' {
			continue
		}
		for kind != 'Z' {
			if kind, message, err = readMessage(s); err != nil {
				return
			}
			if _, err := client.Write(message); err != nil {
				return
			}
		}
		if message[5] == 'I' && !p.SessionMode {
			p.release(s)
			s = nil
		}
	}
}

// readMessage reads one message of the protocol; message includes the kind.
func readMessage(r io.Reader) (kind byte, message []byte, err error) {
	message = make([]byte, 5)
	if _, err := io.ReadFull(r, message); err != nil {
		return 0, nil, err
	}
	body := make([]byte, binary.BigEndian.Uint32(message[1:])-4)
	if _, err := io.ReadFull(r, body); err != nil {
		return 0, nil, err
	}
	return message[0], append(message, body...), nil
}
