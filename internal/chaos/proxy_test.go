package main

import (
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"
)

// echo is a server that says back what it is told.
func echo(t *testing.T) string {
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

func before(t *testing.T, server string) (*proxy, net.Conn) {
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

// says sends a byte and reports what came back within the limit.
func says(c net.Conn, limit time.Duration) error {
	if _, err := c.Write([]byte("x")); err != nil {
		return err
	}
	return hears(c, limit)
}

func hears(c net.Conn, limit time.Duration) error {
	if err := c.SetReadDeadline(time.Now().Add(limit)); err != nil {
		return err
	}
	_, err := io.ReadFull(c, make([]byte, 1))
	return err
}

const soon, never = 5 * time.Second, 100 * time.Millisecond

func TestTheProxyIsSlowInBothDirections(t *testing.T) {
	t.Parallel()
	p, c := before(t, echo(t))
	if err := says(c, soon); err != nil {
		t.Fatal(err)
	}
	p.set(passing, 50*time.Millisecond)
	began := time.Now()
	if err := says(c, soon); err != nil || time.Since(began) < 100*time.Millisecond {
		t.Errorf("%v after %s", err, time.Since(began))
	}
}

func TestTheProxyCutsWhatIsThereAndWhatComes(t *testing.T) {
	t.Parallel()
	p, c := before(t, echo(t))
	if err := says(c, soon); err != nil {
		t.Fatal(err)
	}
	p.set(cut, 0)
	if err := hears(c, soon); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a connection that is cut: %v", err)
	}
	next, err := net.Dial("tcp", p.addr()) // may be cut before it is made
	if err == nil {
		err = says(next, soon)
		if cerr := next.Close(); cerr != nil {
			t.Error(cerr)
		}
	}
	if err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a new connection: %v", err)
	}
	p.set(passing, 0)
	if err := says(dial(t, p), soon); err != nil {
		t.Errorf("after it was healed: %v", err)
	}
}

func TestTheProxyHoldsBackWhatIsSaidWhileItIsStalled(t *testing.T) {
	t.Parallel()
	p, c := before(t, echo(t))
	p.set(stalled, 0)
	if err := says(c, never); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("something got through: %v", err)
	}
	p.set(passing, 0)
	if err := hears(c, soon); err != nil {
		t.Errorf("after it was healed: %v", err)
	}
}

func TestADeafConnectionStaysOpenAndSilentForEver(t *testing.T) {
	t.Parallel()
	p, c := before(t, echo(t))
	if err := says(c, soon); err != nil {
		t.Fatal(err)
	}
	p.deafen()
	p.set(passing, 0)
	for range 2 {
		if err := says(c, never); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("the deaf connection: %v", err)
		}
	}
	if err := says(dial(t, p), soon); err != nil {
		t.Errorf("a new connection: %v", err)
	}
}
