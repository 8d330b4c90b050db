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

// errNotConfirmed is the answer to whoever was asked and did not say yes.
var errNotConfirmed = WithCode(ExitFailed, errors.New("not confirmed: nothing was changed"))

// YesFlag defines the flag that confirms what is asked.
func YesFlag(f *pflag.FlagSet, to *bool) {
	f.BoolVarP(to, "yes", "y", false, "do it without asking")
}

// NeedTerminal refuses, before anything is done, to go on where nobody could be asked.
func (sh *Shell) NeedTerminal(cmd *cobra.Command, yes bool) error {
	in, is := sh.In.(*os.File)
	if yes || is && term.IsTerminal(int(in.Fd())) {
		return nil
	}
	return Usage(cmd, errors.New("nobody can be asked here: add --yes to do it"))
}

// Confirm asks a person, beside the answer on standard output. Whoever interrupts the
// program has not said yes.
func (sh *Shell) Confirm(ctx context.Context, question string, yes bool) error {
	if yes {
		return nil
	}
	if _, err := fmt.Fprintf(sh.Err, "%s Type yes to go on: ", screen.Plain(question)); err != nil {
		return err
	}
	type answer struct {
		line string
		err  error
	}
	said := make(chan answer, 1)
	go func() {
		line, err := bufio.NewReader(sh.In).ReadString('\n')
		said <- answer{line, err}
	}()
	select {
	case <-ctx.Done():
		sh.Note("")
		return ctx.Err()
	case a := <-said:
		if a.err != nil && !errors.Is(a.err, io.EOF) {
			return a.err
		}
		if strings.TrimSpace(a.line) != "yes" {
			return errNotConfirmed
		}
		return nil
	}
}
