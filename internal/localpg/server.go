//go:build unix

package localpg

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/recourse-dev/recourse/internal/child"
)

// DefaultMaxConnections is the default of Options.MaxConnections.
const DefaultMaxConnections = 200

// Options of a private instance. The zero value is for tests: in memory if possible, nothing synced.
type Options struct {
	// Dir is made if it does not exist; its subdirectory "data" has the cluster. Stop keeps it. Empty: a temporary
	// directory, removed by Stop or, if this process is killed, by the next Start of any process.
	Dir string
	// Durable turns fsync and synchronous commits on: a commit survives a crash of the machine. Without it even Kill
	// and Immediate may lose the commits of about the last second; the data stays consistent.
	Durable bool
	// MaxConnections defaults to DefaultMaxConnections.
	MaxConnections int
	// Log receives the server's log. Nil: it is discarded.
	Log io.Writer
}

// Mode is how Restart shuts a running server down.
type Mode int

const (
	// Fast ends the sessions, writes a checkpoint and shuts down.
	Fast Mode = iota
	// Immediate aborts; the start recovers from the log, as after a crash: every commit if Durable.
	Immediate
)

func (m Mode) signal() syscall.Signal {
	if m == Immediate {
		return syscall.SIGQUIT
	}
	return syscall.SIGINT
}

// stopGrace is how long a shutdown may take before the next harder one.
const stopGrace = 20 * time.Second

// Server is a private instance. It is safe for concurrent use.
type Server struct {
	bin, data string
	password  string
	dir       *child.Dir
	as        *child.Identity
	durable   bool
	launch    child.Server

	mu      sync.Mutex
	port    int
	process *child.Process
	stopped bool
}

// ErrStopped is returned by a server after Stop.
var ErrStopped = errors.New("the private PostgreSQL was stopped")

// Start creates a cluster if necessary, and runs a server on it. It returns when the server has answered a connection.
func Start(ctx context.Context, o Options) (*Server, error) {
	bin, err := Find()
	if err != nil {
		return nil, err
	}
	as, err := child.Unprivileged("postgres")
	if err != nil {
		return nil, err
	}
	if err := as.CanReach(bin); err != nil {
		return nil, err
	}
	s := &Server{bin: bin, as: as, durable: o.Durable}
	if o.Dir == "" {
		s.dir, err = child.TempDir("pg", child.TempRoots(o.Durable), as, removeSharedMemory)
	} else {
		s.dir, err = child.PersistentDir(o.Dir, as)
	}
	if err != nil {
		return nil, err
	}
	s.data = filepath.Join(s.dir.Path, "data")
	s.launch = s.serverSpec(o)
	if err = s.initCluster(ctx); err == nil {
		s.process, s.port, err = s.launch.Serve(ctx, 0)
	}
	if err != nil {
		return nil, errors.Join(err, s.dir.Close())
	}
	if err := s.makeAppRole(ctx); err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	return s, nil
}

// URL returns the URL of a database of this server, with the password, for lib/pq. The database "postgres" exists.
func (s *Server) URL(database string) string {
	return s.databaseURL(s.port, database)
}

func (s *Server) databaseURL(port int, database string) string {
	return s.userURL(port, database, url.UserPassword(superuser, s.password))
}

func (s *Server) userURL(port int, database string, user *url.Userinfo) string {
	u := url.URL{
		Scheme: "postgres", User: user, Host: net.JoinHostPort("127.0.0.1", strconv.Itoa(port)),
		Path: "/" + database, RawQuery: "sslmode=disable",
	}
	return u.String()
}

// PID returns the id of the server's first process, the postmaster; after Kill and Stop that of the last one.
func (s *Server) PID() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.process.PID()
}

// Restart shuts the server down, if it is running, and starts it again on the same port and data. It returns when the
// server has answered a connection. After an error the server is down; Restart may be called again.
func (s *Server) Restart(ctx context.Context, mode Mode) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return ErrStopped
	}
	if err := s.process.Stop(stopGrace, mode.signal()); err != nil {
		return err
	}
	p, _, err := s.launch.Serve(ctx, s.port)
	if err != nil {
		return err
	}
	s.process = p
	return nil
}

// Kill ends the server with SIGKILL, like a crash: the postmaster, and its sessions if the system lists them (else they
// end by themselves). It returns when the postmaster has ended.
func (s *Server) Kill() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return ErrStopped
	}
	select {
	case <-s.process.Done():
		return nil // its process id may have been reused
	default:
	}
	sessions := childrenOf(s.process.PID())
	if err := s.process.Signal(syscall.SIGKILL); err != nil {
		return err
	}
	var errs error
	for _, pid := range sessions {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			errs = errors.Join(errs, err)
		}
	}
	<-s.process.Done()
	return errs
}

// Stop shuts the server down and removes a temporary directory. A second Stop does nothing.
func (s *Server) Stop() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return nil
	}
	s.stopped = true
	signals := []syscall.Signal{syscall.SIGINT, syscall.SIGQUIT}
	if s.dir.Temporary() {
		signals = signals[1:] // no checkpoint for data that will be removed
	}
	if err := s.process.Stop(stopGrace, signals...); err != nil {
		return fmt.Errorf("stopping the private PostgreSQL: %w", err)
	}
	if !s.dir.Temporary() {
		return nil
	}
	return errors.Join(removeSharedMemory(s.dir.Path), s.dir.Close())
}

// AppRole is a role of every instance that may connect and owns nothing. Its name needs no quotes.
const AppRole = "recourse_app"

// AppURL returns the URL of a database for AppRole.
func (s *Server) AppURL(database string) string {
	return s.userURL(s.port, database, url.UserPassword(AppRole, s.appPassword()))
}

// appPassword returns the password of AppRole. It is derived from the superuser's, so that a
// persistent directory needs no second file, and does not reveal it.
func (s *Server) appPassword() string {
	mac := hmac.New(sha256.New, []byte(s.password))
	mac.Write([]byte(AppRole))
	return hex.EncodeToString(mac.Sum(nil))
}

// makeAppRole creates AppRole unless it exists or the server is read-only.
func (s *Server) makeAppRole(ctx context.Context) (err error) {
	db, err := sql.Open("postgres", s.URL("postgres"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	var done bool
	if err := db.QueryRowContext(ctx, `select pg_is_in_recovery() or exists (select from pg_roles where rolname = $1)`, AppRole).Scan(&done); err != nil || done {
		return err
	}
	_, err = db.ExecContext(ctx, fmt.Sprintf("create role %s login password '%s'", AppRole, s.appPassword()))
	return err
}
