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

// Options of a private instance. With the zero value everything is in memory only.
type Options struct {
	// Dir has the append-only file, and is made if it does not exist. Stop keeps it. Empty: a temporary directory,
	// removed by Stop or, if this process is killed, by the next Start of any process.
	Dir string
	// AppendOnly writes every change to disk, synced once a second, so that it survives a restart.
	AppendOnly bool
	// Cluster makes it a node of a Redis Cluster without slots.
	Cluster bool
	// Log receives the server's log. Nil: it is discarded.
	Log io.Writer
}

// stopGrace is how long a shutdown may take before SIGKILL.
const stopGrace = 10 * time.Second

// Server is a private instance. It is safe for concurrent use.
type Server struct {
	dir      *child.Dir
	launch   child.Server
	password string

	mu      sync.Mutex
	port    int
	process *child.Process
	stopped bool
}

// ErrStopped is returned by a server after Stop.
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

// Addr returns host:port. It never changes.
func (s *Server) Addr() string { return address(s.port) }

// Password returns the server's password. It never changes.
func (s *Server) Password() string { return s.password }

// URL returns the URL of database 0, with the password, for go-redis and asynq.
func (s *Server) URL() string { return "redis://:" + s.password + "@" + s.Addr() + "/0" }

func address(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// PID returns the id of the server's process; after Kill and Stop that of the last one.
func (s *Server) PID() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.process.PID()
}

// Restart shuts the server down, if it is running, and starts it again on the same port: empty, unless AppendOnly. It
// returns when the server has answered. After an error the server is down; Restart may be called again.
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
