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
	code := cli.Execute(ctx, os.Args[1:], cli.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Getenv: os.Getenv})
	stop()
	os.Exit(code)
}
