//go:build unix

package child

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"time"
)

const (
	// portTries is how many ports are tried, if one is taken between the probe and the server's bind.
	portTries = 5
	// readyPoll is the time between two checks whether a server is ready.
	readyPoll = 10 * time.Millisecond
	// startLimit bounds a start whose context has no deadline.
	startLimit = 90 * time.Second
)

// Server says how to start a server on a port of loopback, and how to check that it is ready.
type Server struct {
	Name          string
	WellKnownPort int                      // its well-known port, never used
	Spec          func(port int) Spec      // output is set by Serve
	Ready         ReadyFunc                // called repeatedly
	InUse         func(output string) bool // whether its last output means that its port or directory is still in use
	Log           io.Writer                // receives a copy of its output; may be nil
}

// ReadyFunc returns nil if the server on port answers and is the process pid.
type ReadyFunc func(ctx context.Context, port, pid int) error

// Serve starts the server on port, or on a free one if port is 0, and returns when it is ready. If its port or
// directory is in use it is started again: on another free port, or on the given port until the context ends.
func (s Server) Serve(ctx context.Context, port int) (*Process, int, error) {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	for try := 1; ; try++ {
		at := port
		if port == 0 {
			var err error
			if at, err = freePort(s.WellKnownPort); err != nil {
				return nil, 0, err
			}
		}
		output := &tail{next: s.Log}
		p, err := s.startOnce(ctx, at, output)
		if err == nil {
			return p, at, nil
		}
		err = fmt.Errorf("%s did not start: %w%s", s.Name, err, output.summary())
		if !s.InUse(output.String()) || (port == 0 && try == portTries) || ctx.Err() != nil {
			return nil, 0, err
		}
		if pause(ctx, 5*readyPoll) != nil {
			return nil, 0, err
		}
	}
}

// startOnce starts the server and waits until it is ready, it has ended, or the context has ended.
func (s Server) startOnce(ctx context.Context, port int, output *tail) (*Process, error) {
	spec := s.Spec(port)
	spec.Stdout, spec.Stderr = output, output
	p, err := Start(spec)
	if err != nil {
		return nil, err
	}
	for {
		readyErr := s.Ready(ctx, port, p.PID())
		select {
		case <-p.Done():
			return nil, fmt.Errorf("it ended with code %d", p.Code())
		default:
		}
		if readyErr == nil {
			return p, nil
		}
		if err := pause(ctx, readyPoll); err != nil {
			return nil, errors.Join(err, readyErr, p.Stop(pipeGrace, spec.ParentDeathSignal))
		}
	}
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// freePort returns a port of loopback that is free now.
func freePort(excluded int) (int, error) {
	for {
		l, err := net.Listen("tcp4", "127.0.0.1:0")
		if err != nil {
			return 0, err
		}
		port := l.Addr().(*net.TCPAddr).Port
		if err := l.Close(); err != nil {
			return 0, err
		}
		if port != excluded {
			return port, nil
		}
	}
}

// summary returns the end of a server's output in one line, for an error.
func (t *tail) summary() string {
	lines := strings.Split(strings.TrimSpace(t.String()), "\n")
	lines = lines[max(0, len(lines)-5):]
	if text := strings.Join(lines, " | "); text != "" {
		return ": " + text
	}
	return ""
}

// tailSize is how much of a server's output is kept for errors.
const tailSize = 4 << 10

// tail keeps the end of the output and copies the output to another writer.
type tail struct {
	mu   sync.Mutex
	buf  []byte
	next io.Writer
}

// Write never fails: an error of the log must not stop the server.
func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf = append(t.buf, p...)
	if over := len(t.buf) - tailSize; over > 0 {
		t.buf = append(t.buf[:0], t.buf[over:]...)
	}
	if t.next != nil {
		if _, err := t.next.Write(p); err != nil {
			t.next = nil
		}
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.buf)
}
