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

// initGrace is how long a cancelled initdb may clean up.
const initGrace = 5 * time.Second

// initCluster makes the data directory if it isn't there: beside its place and moved in when complete, so that a
// directory with that name is always whole.
func (s *Server) initCluster(ctx context.Context) error {
	if _, err := major(s.data); err == nil || !errors.Is(err, os.ErrNotExist) {
		return err
	}
	unfinished := s.data + ".new"
	if err := os.RemoveAll(unfinished); err != nil {
		return err
	}
	if err := s.as.MakeDir(unfinished); err != nil {
		return err
	}
	args := []string{"-D", unfinished, "-A", "trust", "-U", superuser, "--locale=C", "--encoding=UTF8"}
	if !s.durable || s.dir.Temporary() {
		args = append(args, "-N") // no sync: a power cut ends a temporary cluster anyway
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

func (s *Server) runInit(ctx context.Context, dir string, args []string) error {
	var output bytes.Buffer
	p, err := child.Start(child.Spec{
		Path: filepath.Join(s.bin, "initdb"), Args: args, Dir: dir, Env: environment(), As: s.as,
		Stdout: &output, Stderr: &output, Orphaned: syscall.SIGTERM,
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

// environment is all that the programs need: English messages that we can read, no PG* variable of the caller.
func environment() []string {
	env := []string{"LC_ALL=C", "TZ=UTC", "PATH=" + os.Getenv("PATH")}
	if libraries := os.Getenv("LD_LIBRARY_PATH"); libraries != "" {
		env = append(env, "LD_LIBRARY_PATH="+libraries)
	}
	return env
}
