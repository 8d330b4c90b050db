package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/recourse-dev/recourse/internal/child"
)

// buildProduct builds the command recourse of the tree that the bench is part of, into a directory.
func buildProduct(ctx context.Context, dir string) (binary string, err error) {
	binary = filepath.Join(dir, "recourse")
	build := exec.CommandContext(ctx, "go", "build", "-o", binary, "./cmd/recourse")
	build.Dir = filepath.Join("..", "..") // the bench is run in its own folder
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building recourse: %w\n%s", err, out)
	}
	return binary, nil
}

// productOf builds the product if a workload needs it. remove removes it.
func productOf(ctx context.Context, o options) (binary string, remove func() error, err error) {
	if !slices.ContainsFunc(o.workloads, ofServer) {
		return "", func() error { return nil }, nil
	}
	dir, err := os.MkdirTemp("", "recourse-bench-")
	if err != nil {
		return "", nil, err
	}
	remove = func() error { return os.RemoveAll(dir) }
	if binary, err = buildProduct(ctx, dir); err != nil {
		return "", nil, errors.Join(err, remove())
	}
	return binary, remove, nil
}

// serverProcess is a process of recourse serve, as users run it, with an escrow service for demonstrations.
type serverProcess struct {
	*child.Process
	url    string
	client jobClient
}

// startServer starts a server, and returns when it serves. Flags are added to those that it needs.
func (j job) startServer(ctx context.Context, flags ...string) (*serverProcess, error) {
	stdout, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	args := append([]string{"serve", "--json", "--embedded", "--tenant", "bench", "--listen", "127.0.0.1:0", "--log-level", "error"}, flags...)
	p, err := child.Start(child.Spec{
		Path: j.Binary, Args: args, Env: j.serverEnvironment(), Stdout: write, Stderr: os.Stderr, ParentDeathSignal: syscall.SIGKILL,
	})
	_ = write.Close() // the child has its own
	if err != nil {
		return nil, err
	}
	defer context.AfterFunc(ctx, func() { _ = p.Signal(syscall.SIGKILL) })()
	var serving struct {
		URL string `json:"url"`
	}
	if err := json.NewDecoder(stdout).Decode(&serving); err != nil {
		_ = p.Stop(0)
		return nil, fmt.Errorf("recourse serve wrote no address: %w", err)
	}
	go func() {
		_, _ = io.Copy(io.Discard, stdout)
		_ = stdout.Close()
	}()
	return &serverProcess{p, serving.URL, newJobClient(serving.URL)}, nil
}

// serverEnvironment is this process's without what would configure the server, such as the GOGC of
// other workloads.
func (j job) serverEnvironment() []string {
	env := []string{"RECOURSE_DATABASE_URL=" + j.DatabaseURL, "RECOURSE_REDIS_URL=" + j.RedisURL, "RECOURSE_WEBHOOK_KEY=" + webhookKey}
	for _, variable := range os.Environ() {
		if !strings.HasPrefix(variable, "RECOURSE_") && !strings.HasPrefix(variable, "GOGC=") {
			env = append(env, variable)
		}
	}
	return env
}

// serverGrace is how long a server may take to stop.
const serverGrace = 20 * time.Second

func (p *serverProcess) stop() error { return p.Stop(serverGrace, syscall.SIGTERM) }

// kill ends the server with SIGKILL, and returns when it has ended.
func (p *serverProcess) kill() { _ = p.Stop(0) }
