package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/lib/pq"

	"github.com/recourse-dev/recourse/internal/cli/doctor"
	"github.com/recourse-dev/recourse/internal/cli/shell"
)

// Streams are the input, the outputs and the environment of a command.
type Streams = shell.Streams

// Execute runs a command line and returns its exit code:
//
//	0  done
//	1  something failed or was refused, or an invariant is broken
//	2  bad usage or bad input
//	3  Postgres or Redis cannot be reached
//	4  the schema is missing, older or newer
//	5  a plan was stored, and another person has to run it
//
// When ctx ends, the command stops gracefully.
func Execute(ctx context.Context, args []string, s Streams) int {
	sh := &shell.Shell{Streams: s}
	root := rootCommand(sh)
	root.SetArgs(args)
	root.SetIn(s.In)
	root.SetOut(s.Out)
	root.SetErr(s.Err)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return shell.ExitOK
	}
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		err = errInterrupted
	}
	if errors.Is(err, pq.ErrSSLNotSupported) {
		err = fmt.Errorf("%w; %s", err, doctor.NoTLSRemedy)
	}
	code := shell.CodeOf(err)
	sh.Report(err, code, wantsJSON(args))
	return code
}

// wantsJSON reports whether args ask for JSON. An error may have come before the flags were parsed.
func wantsJSON(args []string) bool {
	for _, a := range args {
		switch a {
		case "--json", "--json=true":
			return true
		case "--":
			return false
		}
	}
	return false
}

var (
	errInvariantBroken = errors.New("an invariant is broken")
	errInterrupted     = errors.New("interrupted")
)
