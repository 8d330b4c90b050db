//go:build unix

package main

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/term"

	"github.com/recourse-dev/recourse/internal/child"
)

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
