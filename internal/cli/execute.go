package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/lib/pq"
	"github.com/spf13/cobra"

	"github.com/recourse-dev/recourse/internal/cli/doctor"
	"github.com/recourse-dev/recourse/internal/cli/screen"
)

// Streams are what a command reads and writes.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer
	Getenv   func(string) string
}

// Execute runs a command line and returns its exit code:
//
//	0  done
//	1  something failed or was refused, or an invariant is broken
//	2  bad usage or bad input
//	3  Postgres or Redis cannot be reached
//	4  the schema is missing, older or newer
//
// The context ends what runs, gracefully.
func Execute(ctx context.Context, args []string, s Streams) int {
	c := &command{Streams: s}
	root := c.root()
	root.SetArgs(args)
	root.SetIn(s.In)
	root.SetOut(s.Out)
	root.SetErr(s.Err)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitOK
	}
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		err = errInterrupted
	}
	code := codeOf(err)
	c.complain(err, code, jsonAsked(args))
	return code
}

// command is one call of the program.
type command struct {
	Streams
	json bool
	told bool // the answer was written, and says itself what is wrong
}

// complain writes one line for people, and for programs an object in the place of
// the answer.
func (c *command) complain(err error, code int, asJSON bool) {
	line := oneLine(err)
	if errors.Is(err, pq.ErrSSLNotSupported) {
		line += "; " + doctor.WithoutTLS
	}
	if line != "" {
		if _, werr := fmt.Fprintf(c.Err, "recourse: %s\n", screen.Plain(line)); werr != nil {
			return // nobody reads what goes wrong here
		}
	}
	if asJSON && !c.told {
		type failure struct {
			Message string `json:"message"`
			Code    int    `json:"exit_code"`
		}
		if err := c.encode(map[string]failure{"error": {line, code}}); err != nil {
			return
		}
	}
}

// oneLine is an error without line breaks: joined errors are put after each other.
func oneLine(err error) string {
	parts := strings.FieldsFunc(err.Error(), func(r rune) bool { return r == '\n' || r == '\r' })
	for i, part := range parts { // which package says so is of no use here
		parts[i] = strings.TrimPrefix(strings.TrimPrefix(part, "postadjudication: "), "retrypolicy: ")
	}
	return strings.Join(parts, "; ")
}

// jsonAsked is asked when flags may not have been parsed.
func jsonAsked(args []string) bool {
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

// answer writes a value as the one JSON object of a command.
func (c *command) answer(v any) error {
	c.told = true
	return c.encode(v)
}

// encode writes JSON in which no character is one that a terminal obeys.
func (c *command) encode(v any) error {
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return err
	}
	_, err := c.Out.Write(screen.PlainJSON(text.Bytes()))
	return err
}

// usage makes wrong flags and arguments exit 2, with a pointer to the help.
func usage(cmd *cobra.Command, err error) error {
	return &exit{exitUsage, fmt.Errorf("%w; see %s --help", err, cmd.CommandPath())}
}

var (
	errBroken      = errors.New("an invariant is broken")
	errInterrupted = errors.New("interrupted")
)

// brief is a length of time without the zeros at its end: 1h for 1h0m0s.
func brief(span string) string {
	if strings.HasSuffix(span, "m0s") {
		span = strings.TrimSuffix(span, "0s")
	}
	if strings.HasSuffix(span, "h0m") {
		span = strings.TrimSuffix(span, "0m")
	}
	return span
}

// plural counts things.
func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
