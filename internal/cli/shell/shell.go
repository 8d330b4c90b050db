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
	"regexp"
	"strings"

	"github.com/recourse-dev/recourse/internal/cli/screen"
	"github.com/recourse-dev/recourse/internal/textfile"
)

// Streams are the input, the outputs and the environment of a command.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer
	Getenv   func(string) string
}

// Shell is the input and output of one command.
type Shell struct {
	Streams
	JSON bool // the answer is one JSON object

	answered bool // the answer was written, so an error is no second JSON object
}

// Answer writes v as the one JSON object of the command.
func (sh *Shell) Answer(v any) error {
	sh.answered = true
	return sh.Encode(v)
}

// Answering declares that the command writes its JSON objects itself. A later error is then not
// written as an object.
func (sh *Shell) Answering() { sh.answered = true }

// Encode writes v as JSON with terminal control characters escaped.
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

// Screen returns a screen on standard output.
func (sh *Shell) Screen() *screen.Screen { return screen.New(sh.Out) }

// Note writes a line for people to standard error.
func (sh *Shell) Note(what string) {
	// A note that cannot be written must not fail the command.
	_, _ = fmt.Fprintln(sh.Err, what)
}

// Report writes an error as one line to standard error, and with asJSON as an object to standard
// output, unless the answer was written.
func (sh *Shell) Report(err error, code int, asJSON bool) {
	line := oneLine(err)
	if line != "" {
		if _, werr := fmt.Fprintf(sh.Err, "recourse: %s\n", screen.Plain(line)); werr != nil {
			return // there is nowhere left to report an error
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

// packageName is the package that begins the text of an error. It does not help the user.
var packageName = regexp.MustCompile(`^(access|archive|asynqredis|audit|background|bulk|escrowhttp|jobs|journal|lease|plans|postadjudication|receipts|references|replay|retention|retrypolicy|settlement|trail|webhooks): `)

// oneLine returns the text of an error without line breaks; joined errors are separated by "; ".
func oneLine(err error) string {
	parts := strings.FieldsFunc(err.Error(), func(r rune) bool { return r == '\n' || r == '\r' })
	for i, part := range parts {
		parts[i] = packageName.ReplaceAllString(part, "")
	}
	return strings.Join(parts, "; ")
}

// Open opens a text file that an argument names, in each form that package textfile reads; - is standard input.
func (sh *Shell) Open(name string) (io.ReadCloser, error) {
	if name == "-" {
		return io.NopCloser(textfile.NewReader(sh.In)), nil
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, WithCode(ExitUsage, err)
	}
	return struct {
		io.Reader
		io.Closer
	}{textfile.NewReader(f), f}, nil
}

// CheckNew refuses the name of a file that exists, unless force says that it may be replaced. An empty name, and "-" for
// standard output, name no file.
func CheckNew(name string, force bool) error {
	if name == "" || name == "-" || force {
		return nil
	}
	switch _, err := os.Lstat(name); {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return WithCode(ExitUsage, err)
	}
	return WithCode(ExitUsage, fmt.Errorf("%s exists: name another file, or give --force to replace it", name))
}

// WriteFile writes a file atomically: after an error or a crash an existing file is unchanged.
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

// nameFile replaces the path of the temporary file in an error by name.
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
