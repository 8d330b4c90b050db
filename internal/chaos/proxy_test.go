package main

import (
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"
)

// echoServer is a server that echoes its input.
func echoServer(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = io.Copy(c, c) // until either end is gone
				_ = c.Close()
			}()
		}
	}()
	return l.Addr().String()
}

func proxied(t *testing.T, server string) (*proxy, net.Conn) {
	t.Helper()
	p, err := newProxy(server)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.close(); err != nil {
			t.Error(err)
		}
	})
	return p, dial(t, p)
}

func dial(t *testing.T, p *proxy) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", p.addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() }) // the test may have closed it
	return c
}

// writes sends a byte and reports what came back within the limit.
func writes(c net.Conn, limit time.Duration) error {
	if _, err := c.Write([]byte("x")); err != nil {
		return err
	}
	return reads(c, limit)
}

func reads(c net.Conn, limit time.Duration) error {
	if err := c.SetReadDeadline(time.Now().Add(limit)); err != nil {
		return err
	}
	_, err := io.ReadFull(c, make([]byte, 1))
	return err
}

const replyTimeout, quietFor = 5 * time.Second, 100 * time.Millisecond

func TestTheProxyIsSlowInBothDirections(t *testing.T) {
	t.Parallel()
	p, c := proxied(t, echoServer(t))
	if err := writes(c, replyTimeout); err != nil {
		t.Fatal(err)
	}
	p.setMode(modePass, 50*time.Millisecond)
	began := time.Now()
	if err := writes(c, replyTimeout); err != nil || time.Since(began) < 100*time.Millisecond {
		t.Errorf("%v after %s", err, time.Since(began))
	}
}

func TestTheProxyCutsWhatIsThereAndWhatComes(t *testing.T) {
	t.Parallel()
	p, c := proxied(t, echoServer(t))
	if err := writes(c, replyTimeout); err != nil {
		t.Fatal(err)
	}
	p.setMode(modeReset, 0)
	if err := reads(c, replyTimeout); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a connection that is cut: %v", err)
	}
	next, err := net.Dial("tcp", p.addr()) // may be cut before it is made
	if err == nil {
		err = writes(next, replyTimeout)
		if cerr := next.Close(); cerr != nil {
			t.Error(cerr)
		}
	}
	if err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a new connection: %v", err)
	}
	p.setMode(modePass, 0)
	if err := writes(dial(t, p), replyTimeout); err != nil {
		t.Errorf("after it was healed: %v", err)
	}
}

func TestTheProxyHoldsBackDataWhileStalled(t *testing.T) {
	t.Parallel()
	p, c := proxied(t, echoServer(t))
	p.setMode(modeStall, 0)
	if err := writes(c, quietFor); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("something got through: %v", err)
	}
	p.setMode(modePass, 0)
	if err := reads(c, replyTimeout); err != nil {
		t.Errorf("after it was healed: %v", err)
	}
}

func TestABlackholedConnectionStaysOpenAndSilent(t *testing.T) {
	t.Parallel()
	p, c := proxied(t, echoServer(t))
	if err := writes(c, replyTimeout); err != nil {
		t.Fatal(err)
	}
	p.blackhole()
	p.setMode(modePass, 0)
	for range 2 {
		if err := writes(c, quietFor); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("the blackholed connection: %v", err)
		}
	}
	if err := writes(dial(t, p), replyTimeout); err != nil {
		t.Errorf("a new connection: %v", err)
	}
}
