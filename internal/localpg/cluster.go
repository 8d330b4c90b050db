//go:build unix

package localpg

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/recourse-dev/recourse/internal/child"
)

// superuser owns the cluster.
const superuser = "postgres"

// initGrace is how long a cancelled initdb may take to clean up.
const initGrace = 5 * time.Second

// initCluster creates the data directory if it does not exist. It creates it beside its place and renames it when
// complete, so that a directory with that name is always complete.
func (s *Server) initCluster(ctx context.Context) error {
	switch _, err := dataVersion(s.data); {
	case err == nil:
		return s.readPassword()
	case !errors.Is(err, os.ErrNotExist):
		return err
	}
	s.password = child.Password()
	if err := s.as.WriteSecret(s.passwordFile(), s.password); err != nil {
		return err
	}
	unfinished := s.data + ".new"
	if err := os.RemoveAll(unfinished); err != nil {
		return err
	}
	if err := s.as.MakeDir(unfinished); err != nil {
		return err
	}
	// MD5 is enough for a random password. SCRAM takes 2.5 ms for each connection, 16 ms under the race detector, and
	// tests make thousands of connections.
	args := []string{"-D", unfinished, "-A", "md5", "--pwfile", s.passwordFile(), "-U", superuser, "--locale=C", "--encoding=UTF8"}
	if !s.durable || s.dir.Temporary() {
		args = append(args, "-N") // no sync: after a power cut a temporary cluster is useless anyway
	}
	if err := s.runInit(ctx, unfinished, args); err != nil {
		return err
	}
	if err := os.Rename(unfinished, s.data); err != nil {
		return err
	}
	parent, err := os.Open(s.dir.Path)
	if err != nil {
		return err
	}
	return errors.Join(parent.Sync(), parent.Close())
}

// passwordFile has the superuser's password, to open a persistent directory again.
func (s *Server) passwordFile() string { return filepath.Join(s.dir.Path, "password") }

// readPassword reads the password of an existing cluster.
func (s *Server) readPassword() error {
	text, err := os.ReadFile(s.passwordFile())
	if errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("the cluster in %s has no password: it was made by an earlier version, or its file was removed; choose another directory", s.dir.Path)
	}
	s.password = string(text)
	return err
}

func (s *Server) runInit(ctx context.Context, dir string, args []string) error {
	var output bytes.Buffer
	p, err := child.Start(child.Spec{
		Path: filepath.Join(s.bin, "initdb"), Args: args, Dir: dir, Env: environment(), As: s.as,
		Stdout: &output, Stderr: &output, ParentDeathSignal: syscall.SIGTERM,
	})
	if err != nil {
		return fmt.Errorf("initdb: %w", err)
	}
	select {
	case <-p.Done():
	case <-ctx.Done():
		return errors.Join(ctx.Err(), p.Stop(initGrace, syscall.SIGTERM))
	}
	if code := p.Code(); code != 0 {
		return fmt.Errorf("initdb ended with code %d: %s", code, strings.Join(strings.Fields(output.String()), " "))
	}
	return nil
}

// environment is the programs' environment: English messages, which this package parses, and no PG* variable of the caller.
func environment() []string {
	env := []string{"LC_ALL=C", "TZ=UTC", "PATH=" + os.Getenv("PATH")}
	if libraries := os.Getenv("LD_LIBRARY_PATH"); libraries != "" {
		env = append(env, "LD_LIBRARY_PATH="+libraries)
	}
	return env
}
