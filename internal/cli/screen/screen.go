package screen

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"golang.org/x/term"
)

const (
	minWidth     = 60
	defaultWidth = 140 // where there is no terminal to ask
	maxWidth     = 140
)

// The escape sequences of a terminal.
const (
	bold  = "\x1b[1m"
	faint = "\x1b[2m"
	red   = "\x1b[31m"
	green = "\x1b[32m"
	reset = "\x1b[0m"
)

// Screen writes to a terminal, or to anything else in plain text. The first error
// of writing is kept and ends all writing.
type Screen struct {
	out   io.Writer
	width int
	color bool
	err   error
}

// New looks at what it writes to: a terminal says how wide it is, else COLUMNS
// does. Colours are for terminals, and NO_COLOR turns them off.
func New(out io.Writer) *Screen {
	s := &Screen{out: out, width: defaultWidth}
	if columns, err := strconv.Atoi(os.Getenv("COLUMNS")); err == nil {
		s.width = columns
	}
	if f, ok := out.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		if w, _, err := term.GetSize(int(f.Fd())); err == nil {
			s.width = w
		}
		s.color = os.Getenv("NO_COLOR") == ""
	}
	s.width = min(max(s.width, minWidth), maxWidth)
	return s
}

// Err is the first error of writing.
func (s *Screen) Err() error { return s.err }

// Title begins a part.
func (s *Screen) Title(format string, args ...any) {
	s.write("\n" + s.paint(bold, fmt.Sprintf(format, args...)) + "\n")
}

// Text writes a paragraph, wrapped to the width.
func (s *Screen) Text(format string, args ...any) {
	s.write(strings.Join(wrap(fmt.Sprintf(format, args...), s.width), "\n") + "\n")
}

// Command writes a line for a shell, which is not wrapped so that it can be copied.
func (s *Screen) Command(line string) { s.write("  " + line + "\n") }

// Good marks a word as such.
func (s *Screen) Good(word string) string { return s.paint(green, word) }

// Bad marks a word that asks for attention.
func (s *Screen) Bad(word string) string { return s.paint(red, word) }

func (s *Screen) paint(sequence, word string) string {
	if !s.color || word == "" {
		return word
	}
	return sequence + word + reset
}

func (s *Screen) write(what string) {
	if s.err == nil {
		_, s.err = io.WriteString(s.out, s.sanitize(what))
	}
}

// sanitize leaves of the control characters only line ends and our own colours. What a
// screen shows was written by others too, as an escrow service, and must neither move the
// cursor nor turn the order of what is read.
func (s *Screen) sanitize(what string) string {
	if !s.color {
		return Plain(what)
	}
	var out strings.Builder
	for len(what) > 0 {
		at, next := len(what), ""
		for _, own := range []string{bold, faint, red, green, reset} {
			if i := strings.Index(what, own); i >= 0 && i < at {
				at, next = i, own
			}
		}
		out.WriteString(Plain(what[:at]) + next)
		what = what[at+len(next):]
	}
	return out.String()
}

// Plain is a text with a mark in the place of every character that a terminal obeys, but
// for line ends.
func Plain(text string) string {
	return strings.Map(func(r rune) rune {
		if r != '\n' && isTerminalControl(r) {
			return utf8.RuneError
		}
		return r
	}, text)
}

// PlainJSON is JSON with an escape in the place of every such character. It means the same.
func PlainJSON(text []byte) []byte {
	if !bytes.ContainsFunc(text, func(r rune) bool { return isTerminalControl(r) && r != '\n' }) {
		return text
	}
	var out []byte
	for _, r := range string(text) { // control characters below a blank are white space or escaped already
		switch {
		case !isTerminalControl(r) || r < ' ':
			out = utf8.AppendRune(out, r)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			out = fmt.Appendf(out, `\u%04x\u%04x`, high, low)
		default:
			out = fmt.Appendf(out, `\u%04x`, r)
		}
	}
	return out
}

// isTerminalControl reports whether a terminal may obey a character: control characters, and those of
// format, which turn the order of what is read or show nothing.
func isTerminalControl(r rune) bool { return unicode.In(r, unicode.Cc, unicode.Cf) }
