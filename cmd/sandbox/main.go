//go:build unix

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"golang.org/x/term"

	"github.com/recourse-dev/recourse/internal/child"
)

// The exit codes that are not the command's.
const (
	exitUsage       = 64
	exitUnavailable = 69
	exitFailed      = 70 // the command ended well, but something could not be cleared away
	exitCannotRun   = 126
	exitNotFound    = 127
	exitSignal      = 128 // and the signal's number
)

const usage = `usage: sandbox [-durable=false] COMMAND [ARGUMENT...]
Runs COMMAND with RECOURSE_DATABASE_URL, RECOURSE_OWNER_DATABASE_URL and RECOURSE_REDIS_URL naming a private Postgres and Redis.
`

func main() {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	os.Exit(run(os.Args[1:], signals, os.Stderr))
}

// run is the whole life of a sandbox; it returns the exit code.
func run(args []string, signals <-chan os.Signal, messages io.Writer) int {
	flags := flag.NewFlagSet("sandbox", flag.ContinueOnError)
	flags.SetOutput(messages)
	flags.Usage = func() {
		printf(messages, "%s", usage)
		flags.PrintDefaults()
	}
	durable := flags.Bool("durable", true, "keep fsync on, so that timings are those of a real server")
	err := flags.Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err != nil {
		return exitUsage
	}
	if flags.NArg() == 0 {
		flags.Usage()
		return exitUsage
	}
	servers, code := prepare(*durable, signals, messages)
	if code != 0 {
		return code
	}
	code = runCommand(flags.Args(), servers.environment(os.Environ()), signals, messages)
	if err := servers.stop(); err != nil {
		printf(messages, "sandbox: %v\n", err)
		if code == 0 {
			code = exitFailed
		}
	}
	return code
}

// prepare installs what is missing and starts the servers. A signal meanwhile ends it.
func prepare(durable bool, signals <-chan os.Signal, messages io.Writer) (*servers, int) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	type answer struct {
		servers *servers
		err     error
	}
	ready := make(chan answer, 1)
	go func() {
		err := newInstaller(messages).ensure(ctx)
		var s *servers
		if err == nil {
			s, err = startServers(ctx, durable)
		}
		ready <- answer{s, err}
	}()
	select {
	case sig := <-signals:
		cancel()
		if a := <-ready; a.err == nil {
			if err := a.servers.stop(); err != nil {
				printf(messages, "sandbox: %v\n", err)
			}
		}
		return nil, exitSignal + int(sig.(syscall.Signal))
	case a := <-ready:
		if a.err != nil {
			printf(messages, "sandbox: %v\n", a.err)
			return nil, exitUnavailable
		}
		return a.servers, 0
	}
}

// printf writes for a person. Where nobody can be told, the exit code still says it.
func printf(messages io.Writer, format string, args ...any) {
	_, _ = fmt.Fprintf(messages, format, args...)
}

// runCommand runs args with our input and outputs until it ends, passing signals on, and returns its exit code.
//
// It leads a process group of its own, so that nothing it started outlives it; at a terminal it stays in ours, for
// only the group in the foreground may read from it.
func runCommand(args, env []string, signals <-chan os.Signal, messages io.Writer) int {
	path, err := exec.LookPath(args[0])
	if err != nil {
		printf(messages, "sandbox: %v\n", err)
		if errors.Is(err, os.ErrPermission) {
			return exitCannotRun
		}
		return exitNotFound
	}
	terminal := term.IsTerminal(int(os.Stdin.Fd()))
	p, err := child.Start(child.Spec{
		Path: path, Args: args[1:], Env: env, Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
		ParentDeathSignal: syscall.SIGKILL, ShareGroup: terminal, KillGroupWithParent: true,
	})
	if err != nil {
		printf(messages, "sandbox: %v\n", err)
		return exitCannotRun
	}
	for {
		select {
		case sig := <-signals:
			if terminal && sig == syscall.SIGINT {
				continue // the terminal has sent it to the command too
			}
			if err := p.SignalGroup(sig.(syscall.Signal)); err != nil {
				printf(messages, "sandbox: passing on %v: %v\n", sig, err)
			}
		case <-p.Done():
			if err := p.SignalGroup(syscall.SIGKILL); err != nil {
				printf(messages, "sandbox: ending what the command left running: %v\n", err)
			}
			return p.Code()
		}
	}
}
