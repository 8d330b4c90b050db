// Command recourse carries adjudicated escrow decisions to settled, or to a
// person's desk. See recourse --help.
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
	context.AfterFunc(ctx, stop) // a second signal ends it at once
	code := cli.Execute(ctx, os.Args[1:], cli.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Getenv: os.Getenv})
	os.Exit(code)
}
