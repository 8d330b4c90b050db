//go:build unix

package localredis

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/recourse-dev/recourse/internal/child"
)

// Options of a private instance. The zero value keeps everything in memory only.
type Options struct {
	// Dir keeps the append-only file, and is made if it isn't there; Stop leaves it. Empty: a temporary directory
	// that Stop removes, and if we are killed, the next Start of any process.
	Dir string
	// AppendOnly writes every change to disk, synced once a second, so that a restart finds it.
	AppendOnly bool
	// Cluster makes it a node of a Cluster, which has no slots yet.
	Cluster bool
	// Log gets the server's log. Nil: none is kept.
	Log io.Writer
}

// stopGrace is how long a shutdown may take before SIGKILL.
const stopGrace = 10 * time.Second

// Server is a private instance. Its methods may be called by any goroutine.
type Server struct {
	dir      *child.Dir
	launch   child.Server
	password string

	mu      sync.Mutex
	port    int
	process *child.Process
	stopped bool
}

// ErrStopped is the answer of a server that Stop has ended.
var ErrStopped = errors.New("the private Redis was stopped")

// Start runs a server. It returns when the server has answered.
func Start(ctx context.Context, o Options) (*Server, error) {
	path, err := Find()
	if err != nil {
		return nil, err
	}
	as, err := child.Unprivileged("redis")
	if err != nil {
		return nil, err
	}
	if err := as.CanReach(path); err != nil {
		return nil, err
	}
	s := &Server{password: child.Password()}
	if o.Dir == "" {
		nothing := func(string) error { return nil }
		s.dir, err = child.TempDir("redis", child.TempRoots(o.AppendOnly), as, nothing)
	} else {
		s.dir, err = child.PersistentDir(o.Dir, as)
	}
	if err != nil {
		return nil, err
	}
	if s.launch, err = serverSpec(path, s.dir, as, s.password, o); err == nil {
		s.process, s.port, err = s.launch.Serve(ctx, 0)
	}
	if err != nil {
		return nil, errors.Join(err, s.dir.Close())
	}
	return s, nil
}

// Addr is host:port, the same for the server's whole life.
func (s *Server) Addr() string { return address(s.port) }

// Password is what the server asks for, the same for its whole life.
func (s *Server) Password() string { return s.password }

// URL of database 0, with the password, in the form that go-redis and asynq parse.
func (s *Server) URL() string { return "redis://:" + s.password + "@" + s.Addr() + "/0" }

func address(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// PID of the server's process, of the last one after Kill and Stop.
func (s *Server) PID() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.process.PID()
}

// Restart shuts the server down, if it still runs, and starts it again on the same port: empty, unless AppendOnly. It
// returns when the server has answered; after an error it is down, and may be restarted again.
func (s *Server) Restart(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return ErrStopped
	}
	if err := s.process.Stop(stopGrace, syscall.SIGTERM); err != nil {
		return err
	}
	p, _, err := s.launch.Serve(ctx, s.port)
	if err != nil {
		return err
	}
	s.process = p
	return nil
}

// Kill ends the server with SIGKILL and returns when it has ended.
func (s *Server) Kill() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return ErrStopped
	}
	return s.process.Stop(0)
}

// Stop shuts the server down and removes a temporary directory. A second Stop does nothing.
func (s *Server) Stop() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return nil
	}
	s.stopped = true
	if err := s.process.Stop(stopGrace, syscall.SIGTERM); err != nil {
		return fmt.Errorf("stopping the private Redis: %w", err)
	}
	return s.dir.Close()
}
