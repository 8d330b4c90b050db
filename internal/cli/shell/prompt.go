package shell

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"github.com/recourse-dev/recourse/internal/cli/screen"
)

// errNotConfirmed is returned if a person did not answer yes.
var errNotConfirmed = WithCode(ExitFailed, errors.New("not confirmed: nothing was changed"))

// YesFlag defines --yes, which answers the confirmation.
func YesFlag(f *pflag.FlagSet, to *bool) {
	f.BoolVarP(to, "yes", "y", false, "do not ask for confirmation")
}

// NeedTerminal returns an error if a confirmation is needed and standard input is not a terminal.
// Call it before anything is changed.
func (sh *Shell) NeedTerminal(cmd *cobra.Command, yes bool) error {
	in, is := sh.In.(*os.File)
	if yes || is && term.IsTerminal(int(in.Fd())) {
		return nil
	}
	return Usage(cmd, errors.New("standard input is not a terminal, so confirmation is impossible: add --yes"))
}

// Confirm asks a person on standard error, unless yes is set. It returns an error if the answer
// is not yes, or if ctx ends first.
func (sh *Shell) Confirm(ctx context.Context, question string, yes bool) error {
	if yes {
		return nil
	}
	if _, err := fmt.Fprintf(sh.Err, "%s Type yes to continue: ", screen.Plain(question)); err != nil {
		return err
	}
	type answer struct {
		line string
		err  error
	}
	answered := make(chan answer, 1)
	go func() {
		line, err := bufio.NewReader(sh.In).ReadString('\n')
		answered <- answer{line, err}
	}()
	select {
	case <-ctx.Done():
		sh.Note("")
		return ctx.Err()
	case a := <-answered:
		if a.err != nil && !errors.Is(a.err, io.EOF) {
			return a.err
		}
		if strings.TrimSpace(a.line) != "yes" {
			return errNotConfirmed
		}
		return nil
	}
}
