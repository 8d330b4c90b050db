package shell

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/recourse-dev/recourse/internal/cli/screen"
)

// Streams are what a command reads and writes.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer
	Getenv   func(string) string
}

// Shell is one call of the program.
type Shell struct {
	Streams
	JSON bool // the answer is one JSON object

	answered bool // the answer was written, and says itself what is wrong
}

// Answer writes a value as the one JSON object of a command.
func (sh *Shell) Answer(v any) error {
	sh.answered = true
	return sh.Encode(v)
}

// Answering says that the command writes its answer itself, object by object: what is wrong
// after that is no object of its own.
func (sh *Shell) Answering() { sh.answered = true }

// Encode writes JSON in which no character is one that a terminal obeys.
func (sh *Shell) Encode(v any) error {
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return err
	}
	_, err := sh.Out.Write(screen.PlainJSON(text.Bytes()))
	return err
}

// Screen writes the answer for people.
func (sh *Shell) Screen() *screen.Screen { return screen.New(sh.Out) }

// Note tells people what goes on, beside the answer.
func (sh *Shell) Note(what string) {
	// Standard error is a courtesy: the answer does not depend on it.
	_, _ = fmt.Fprintln(sh.Err, what)
}

// Report writes an error as one line for people, and for programs as an object in the place
// of the answer.
func (sh *Shell) Report(err error, code int, asJSON bool) {
	line := oneLine(err)
	if line != "" {
		if _, werr := fmt.Fprintf(sh.Err, "recourse: %s\n", screen.Plain(line)); werr != nil {
			return // nobody reads what goes wrong here
		}
	}
	if asJSON && !sh.answered {
		type failure struct {
			Message string `json:"message"`
			Code    int    `json:"exit_code"`
		}
		if err := sh.Encode(map[string]failure{"error": {line, code}}); err != nil {
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

// Open opens a file that an argument names; - is standard input.
func (sh *Shell) Open(name string) (io.ReadCloser, error) {
	if name == "-" {
		return io.NopCloser(sh.In), nil
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, WithCode(ExitUsage, err)
	}
	return f, nil
}

// WriteFile writes a file whole or not at all: one of that name that is there already is
// only replaced by a whole one.
func WriteFile(name string, write func(io.Writer) error) (err error) {
	part, err := os.CreateTemp(filepath.Dir(name), "."+filepath.Base(name)+".*.part")
	if err != nil {
		return nameFile(name, err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(part.Name()))
		}
	}()
	if err := write(part); err != nil {
		return errors.Join(err, part.Close())
	}
	if err := errors.Join(part.Sync(), part.Close()); err != nil {
		return err
	}
	return nameFile(name, os.Rename(part.Name(), name))
}

// nameFile tells an error by the name that was asked for.
func nameFile(name string, err error) error {
	var path *fs.PathError
	var link *os.LinkError
	switch {
	case errors.As(err, &path):
		return &fs.PathError{Op: "write", Path: name, Err: path.Err}
	case errors.As(err, &link):
		return &fs.PathError{Op: "write", Path: name, Err: link.Err}
	}
	return err
}
