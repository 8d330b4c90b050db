//go:build unix

package localpg

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	_ "github.com/lib/pq" // the driver of the readiness check

	"github.com/recourse-dev/recourse/internal/child"
)

// standardPort is reserved for the machine's own server.
const standardPort = 5432

// serverSpec says how to start postgres itself; with pg_ctl it would not be a child of this process.
func (s *Server) serverSpec(o Options) child.Server {
	connections := o.MaxConnections
	if connections == 0 {
		connections = DefaultMaxConnections
	}
	return child.Server{
		Name: "postgres", WellKnownPort: standardPort, Ready: s.ready, InUse: portInUse, Log: o.Log,
		Spec: func(port int) child.Spec {
			return child.Spec{
				Path: filepath.Join(s.bin, "postgres"), Args: s.arguments(port, connections), Dir: s.data,
				// An immediate shutdown, unlike SIGKILL, leaves no shared memory behind.
				Env: environment(), As: s.as, ParentDeathSignal: syscall.SIGQUIT,
			}
		},
	}
}

func (s *Server) arguments(port, connections int) []string {
	args := []string{"-D", s.data}
	set := func(name, value string) { args = append(args, "-c", name+"="+value) }
	set("listen_addresses", "127.0.0.1")
	set("port", strconv.Itoa(port))
	set("unix_socket_directories", "")
	set("max_connections", strconv.Itoa(connections))
	set("shared_buffers", "128MB")
	set("dynamic_shared_memory_type", "mmap") // in the data directory, and removed with it
	set("timezone", "UTC")
	if !s.durable {
		set("fsync", "off")
		set("synchronous_commit", "off")
		set("full_page_writes", "off")
		set("max_wal_size", "256MB") // the log may be in memory
	}
	return args
}

// ready returns nil if this cluster answers: another server may have got the port.
func (s *Server) ready(ctx context.Context, port, _ int) error {
	db, err := sql.Open("postgres", s.databaseURL(port, "postgres")+"&connect_timeout=5")
	if err != nil {
		return err
	}
	var one int
	const query = `select 1 where current_setting('data_directory') = $1`
	err = db.QueryRowContext(ctx, query, s.data).Scan(&one)
	return errors.Join(err, db.Close())
}

// portInUse reports whether the server ended because its port or, after a crash, its directory was still in use.
func portInUse(output string) bool {
	for _, text := range [...]string{
		"Address already in use", "pre-existing shared memory block",
	} {
		if strings.Contains(output, text) {
			return true
		}
	}
	return false
}
