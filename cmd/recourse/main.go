// Command recourse executes adjudicated escrow decisions. A decision that cannot be executed
// becomes a dead letter, which a person handles. See recourse --help.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/recourse-dev/recourse/internal/cli"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	code := cli.Execute(ctx, os.Args[1:], cli.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Getenv: os.Getenv})
	os.Exit(code)
}
