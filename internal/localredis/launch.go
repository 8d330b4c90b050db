//go:build unix

package localredis

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/recourse-dev/recourse/internal/child"
)

const (
	// standardPort is reserved for the machine's own server.
	standardPort = 6379
	databases    = 64
	clusterBus   = 10_000 // how far a node's cluster bus port is below its own
	// readyTimeout bounds one check whether the server is ready.
	readyTimeout = 2 * time.Second
)

// serverSpec says how to start redis-server. Its files are in the subdirectory "data", which only it may use.
func serverSpec(path string, dir *child.Dir, as *child.Identity, password string, o Options) (child.Server, error) {
	data := filepath.Join(dir.Path, "data")
	if err := as.MakeDir(data); err != nil {
		return child.Server{}, err
	}
	config := filepath.Join(data, "redis.conf") // not an argument: every user of the machine can read those
	if err := as.WriteSecret(config, "requirepass "+password+"\n"); err != nil {
		return child.Server{}, err
	}
	appendOnly := "no"
	if o.AppendOnly {
		appendOnly = "yes"
	}
	return child.Server{
		Name: "redis-server", WellKnownPort: standardPort, Ready: ready(password), Log: o.Log,
		InUse: func(output string) bool { return strings.Contains(output, "Address already in use") },
		Spec: func(port int) child.Spec {
			args := []string{
				config, "--bind", "127.0.0.1", "--port", strconv.Itoa(port), "--dir", data, "--daemonize", "no",
				"--databases", strconv.Itoa(databases), "--save", "", "--appendonly", appendOnly,
				"--maxmemory-policy", "noeviction",
			}
			if o.Cluster {
				// The default bus port is ten thousand higher, which may be above the last port.
				args = append(args, "--cluster-enabled", "yes", "--cluster-port", strconv.Itoa(port-clusterBus))
			}
			return child.Spec{Path: path, Dir: data, As: as, ParentDeathSignal: syscall.SIGKILL, Env: []string{"LC_ALL=C", "TZ=UTC"}, Args: args}
		},
	}, nil
}

// ready returns nil if the started process answers on port: another server may have got the port. A
// server that is still loading its file answers INFO, but not PING.
func ready(password string) child.ReadyFunc {
	return func(ctx context.Context, port, pid int) error { return isReady(ctx, password, port, pid) }
}

func isReady(ctx context.Context, password string, port, pid int) (err error) {
	dialer := net.Dialer{Timeout: readyTimeout}
	conn, err := dialer.DialContext(ctx, "tcp", address(port))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	if err := conn.SetDeadline(time.Now().Add(readyTimeout)); err != nil {
		return err
	}
	if _, err := io.WriteString(conn, "AUTH "+password+"\r\nPING\r\nINFO server\r\nQUIT\r\n"); err != nil {
		return err
	}
	lines := bufio.NewScanner(conn)
	for _, want := range []string{"+OK", "+PONG"} {
		if !lines.Scan() || lines.Text() != want {
			return fmt.Errorf("redis-server answers %q: %w", lines.Text(), errors.Join(lines.Err(), errNotReady))
		}
	}
	for lines.Scan() {
		if lines.Text() == "process_id:"+strconv.Itoa(pid) {
			return nil
		}
	}
	return errors.Join(lines.Err(), errNotReady)
}

var errNotReady = errors.New("not this server, or not ready")

// ErrNotFound reports that this machine has no redis-server, and how to install it.
var ErrNotFound = errors.New("no redis-server found: `sudo apt-get install redis-server` (Debian, Ubuntu), " +
	"`brew install redis` (macOS), `sudo dnf install redis` (Fedora), or set REDIS_BINDIR")

// Find returns the path of redis-server: in REDIS_BINDIR if set, and then no other; else on PATH; else
// ErrNotFound.
func Find() (string, error) {
	const program = "redis-server"
	if dir := os.Getenv("REDIS_BINDIR"); dir != "" {
		path, err := exec.LookPath(filepath.Join(dir, program))
		if err != nil {
			return "", fmt.Errorf("REDIS_BINDIR=%s does not have the program %s", dir, program)
		}
		return filepath.Abs(path)
	}
	path, err := exec.LookPath(program)
	if err != nil {
		return "", ErrNotFound
	}
	return filepath.Abs(path)
}
