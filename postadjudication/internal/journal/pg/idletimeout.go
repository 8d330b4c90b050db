package pg

import (
	"context"
	"errors"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lib/pq"
)

// Limits on how long a read or write may block without a byte. A healthy server answers a
// statement within StatementTimeout, and a heartbeat at once. After these limits the peer
// is taken to be lost without notice: a switch dropped the connection, a machine lost its
// power. The driver alone would block until the kernel gives up, after a quarter of an hour
// or never.
const (
	BatchIdleLimit     = StatementTimeout + 3*time.Second
	HeartbeatIdleLimit = 8 * time.Second // less than the time after which a process is taken to be lost
	ReadIdleLimit      = time.Minute     // reads for people and callers may take long
)

// IdleTimeout knows all connections of a journal. When one times out, most others would
// too: all that have received nothing for as long are closed, and the next statements use
// new ones.
type IdleTimeout struct {
	mu    sync.Mutex
	conns map[*timedConn]struct{}
}

// NewIdleTimeout returns an IdleTimeout without connections.
func NewIdleTimeout() *IdleTimeout { return &IdleTimeout{conns: map[*timedConn]struct{}{}} }

// Dialer returns a dialer whose connections time out after limit without a byte.
func (s *IdleTimeout) Dialer(limit time.Duration) pq.Dialer { return &dialer{owner: s, limit: limit} }

// closeIdle closes the connections that have received nothing for at least limit.
func (s *IdleTimeout) closeIdle(limit time.Duration) {
	since := time.Now().Add(-limit).UnixNano()
	s.mu.Lock()
	var idle []*timedConn
	for c := range s.conns {
		if c.lastReadAt.Load() <= since {
			idle = append(idle, c)
		}
	}
	s.mu.Unlock()
	for _, c := range idle {
		_ = c.Close() // its user gets an error
	}
}

// dialer implements pq.Dialer.
type dialer struct {
	net.Dialer
	owner *IdleTimeout
	limit time.Duration
}

// DialContext connects.
func (d *dialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := d.Dialer.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	c := &timedConn{Conn: conn, owner: d.owner, limit: d.limit}
	c.lastReadAt.Store(time.Now().UnixNano())
	d.owner.mu.Lock()
	defer d.owner.mu.Unlock()
	d.owner.conns[c] = struct{}{}
	return c, nil
}

// Dial connects.
func (d *dialer) Dial(network, address string) (net.Conn, error) {
	return d.DialContext(context.Background(), network, address)
}

// DialTimeout connects within a timeout.
func (d *dialer) DialTimeout(network, address string, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	return d.DialContext(ctx, network, address)
}

// timedConn is a connection with an idle timeout, unless the driver has set a deadline.
type timedConn struct {
	net.Conn
	owner       *IdleTimeout
	limit       time.Duration
	hasDeadline atomic.Bool  // the driver has set a deadline
	lastReadAt  atomic.Int64 // when bytes were read last, in Unix nanoseconds
}

func (c *timedConn) Read(b []byte) (int, error) {
	if !c.hasDeadline.Load() {
		if err := c.Conn.SetReadDeadline(time.Now().Add(c.limit)); err != nil {
			return 0, err
		}
	}
	n, err := c.Conn.Read(b)
	if n > 0 {
		c.lastReadAt.Store(time.Now().UnixNano())
	}
	if errors.Is(err, os.ErrDeadlineExceeded) && !c.hasDeadline.Load() {
		c.owner.closeIdle(c.limit)
	}
	return n, err
}

func (c *timedConn) Write(b []byte) (int, error) {
	if !c.hasDeadline.Load() {
		if err := c.Conn.SetWriteDeadline(time.Now().Add(c.limit)); err != nil {
			return 0, err
		}
	}
	return c.Conn.Write(b)
}

// SetDeadline is called by the driver while it connects.
func (c *timedConn) SetDeadline(t time.Time) error {
	c.hasDeadline.Store(!t.IsZero())
	return c.Conn.SetDeadline(t)
}

func (c *timedConn) Close() error {
	c.owner.mu.Lock()
	delete(c.owner.conns, c)
	c.owner.mu.Unlock()
	return c.Conn.Close()
}
