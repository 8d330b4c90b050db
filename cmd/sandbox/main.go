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

// The exit codes of the sandbox itself.
const (
	exitUsage       = 64
	exitUnavailable = 69
	exitFailed      = 70 // the command succeeded, but the cleanup failed
	exitCannotRun   = 126
	exitNotFound    = 127
	exitSignal      = 128 // plus the signal's number
)

const usage = `usage: sandbox [-durable=false] [-test-programs] COMMAND [ARGUMENT...]
Runs COMMAND with RECOURSE_DATABASE_URL, RECOURSE_OWNER_DATABASE_URL and RECOURSE_REDIS_URL naming a private Postgres and Redis.
`

func main() {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	os.Exit(run(os.Args[1:], signals, os.Stderr))
}

// run runs the sandbox and returns the exit code.
func run(args []string, signals <-chan os.Signal, messages io.Writer) int {
	flags := flag.NewFlagSet("sandbox", flag.ContinueOnError)
	flags.SetOutput(messages)
	flags.Usage = func() {
		printf(messages, "%s", usage)
		flags.PrintDefaults()
	}
	durable := flags.Bool("durable", true, "keep fsync on in Postgres, for realistic timings")
	testPrograms := flags.Bool("test-programs", false, "also install Node.js with npm and LibreOffice Calc if they are missing; some tests run them")
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
	servers, code := prepare(*durable, *testPrograms, signals, messages)
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

// prepare installs missing programs and starts the servers. A signal cancels it.
func prepare(durable, testPrograms bool, signals <-chan os.Signal, messages io.Writer) (*servers, int) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	type answer struct {
		servers *servers
		err     error
	}
	ready := make(chan answer, 1)
	go func() {
		err := newInstaller(messages, testPrograms).ensure(ctx)
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

// printf writes a message. It ignores write errors: the exit code still reports the result.
func printf(messages io.Writer, format string, args ...any) {
	_, _ = fmt.Fprintf(messages, format, args...)
}

// runCommand runs args with the sandbox's input and outputs, passes signals on, and returns the exit code.
//
// The command leads its own process group, so that none of its processes outlives it. At a terminal it stays in the
// sandbox's group, because only the foreground group may read from the terminal.
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
				continue // the terminal sent it to the command, too
			}
			if err := p.SignalGroup(sig.(syscall.Signal)); err != nil {
				printf(messages, "sandbox: passing on %v: %v\n", sig, err)
			}
		case <-p.Done():
			if err := p.SignalGroup(syscall.SIGKILL); err != nil {
				printf(messages, "sandbox: killing processes that the command left running: %v\n", err)
			}
			return p.Code()
		}
	}
}
