package postgres

import (
	"context"
	"errors"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// How long a connection may be waited for without a single byte. A server that is
// well answers a statement within its time limit, and a beat at once; past that the
// other end is gone and nobody has told us: a switch forgot the connection, a
// machine lost its power. The driver alone would wait until the kernel gives up, a
// quarter of an hour or never.
const (
	silenceLimit = statementLimit + 3*time.Second
	beatSilence  = 8 * time.Second // less than a process is given to show its life
	readSilence  = time.Minute     // what people ask may take long
)

// silence knows all connections of a journal. When one has been waited for in vain,
// so would be most others: all that have said nothing for as long are closed, and
// the next statements go over new ones.
type silence struct {
	mu   sync.Mutex
	open map[*heard]struct{}
}

func newSilence() *silence { return &silence{open: map[*heard]struct{}{}} }

// within is the dialer of connections that may be silent for a time.
func (s *silence) within(limit time.Duration) *dialer { return &dialer{of: s, limit: limit} }

// fell closes what has said nothing for as long as the limit that was passed.
func (s *silence) fell(limit time.Duration) {
	since := time.Now().Add(-limit).UnixNano()
	s.mu.Lock()
	var mute []*heard
	for c := range s.open {
		if c.last.Load() <= since {
			mute = append(mute, c)
		}
	}
	s.mu.Unlock()
	for _, c := range mute {
		_ = c.Close() // whoever uses it finds out
	}
}

// dialer makes the driver's connections.
type dialer struct {
	net.Dialer
	of    *silence
	limit time.Duration
}

// DialContext connects.
func (d *dialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := d.Dialer.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	c := &heard{Conn: conn, of: d.of, limit: d.limit}
	c.last.Store(time.Now().UnixNano())
	d.of.mu.Lock()
	defer d.of.mu.Unlock()
	d.of.open[c] = struct{}{}
	return c, nil
}

// Dial connects.
func (d *dialer) Dial(network, address string) (net.Conn, error) {
	return d.DialContext(context.Background(), network, address)
}

// DialTimeout connects within a time.
func (d *dialer) DialTimeout(network, address string, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	return d.DialContext(ctx, network, address)
}

// heard is a connection whose silence is bounded, unless the driver bounds it itself.
type heard struct {
	net.Conn
	of      *silence
	limit   time.Duration
	bounded atomic.Bool  // the driver has set a deadline
	last    atomic.Int64 // when something was heard, in Unix nanoseconds
}

func (c *heard) Read(b []byte) (int, error) {
	if !c.bounded.Load() {
		if err := c.Conn.SetReadDeadline(time.Now().Add(c.limit)); err != nil {
			return 0, err
		}
	}
	n, err := c.Conn.Read(b)
	if n > 0 {
		c.last.Store(time.Now().UnixNano())
	}
	if errors.Is(err, os.ErrDeadlineExceeded) && !c.bounded.Load() {
		c.of.fell(c.limit)
	}
	return n, err
}

func (c *heard) Write(b []byte) (int, error) {
	if !c.bounded.Load() {
		if err := c.Conn.SetWriteDeadline(time.Now().Add(c.limit)); err != nil {
			return 0, err
		}
	}
	return c.Conn.Write(b)
}

// SetDeadline is how the driver bounds a connection while it is being made.
func (c *heard) SetDeadline(t time.Time) error {
	c.bounded.Store(!t.IsZero())
	return c.Conn.SetDeadline(t)
}

func (c *heard) Close() error {
	c.of.mu.Lock()
	delete(c.of.open, c)
	c.of.mu.Unlock()
	return c.Conn.Close()
}
