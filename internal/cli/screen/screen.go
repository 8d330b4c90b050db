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
	minScreen    = 60
	defaultWidth = 140 // without a terminal
	maxTextWidth = 140 // of paragraphs; longer lines are hard to read
)

// The escape sequences of a terminal.
const (
	bold  = "\x1b[1m"
	faint = "\x1b[2m"
	red   = "\x1b[31m"
	green = "\x1b[32m"
	reset = "\x1b[0m"
)

// Screen writes to a terminal, or plain text to any other writer. After the first write error it
// writes nothing more, and Err returns the error.
type Screen struct {
	out   io.Writer
	width int
	color bool
	whole bool // there is no terminal, so no column of a table is left out or moved
	err   error
}

// New returns a screen with the width that COLUMNS states, else of the terminal. It uses colours on
// terminals unless NO_COLOR is set.
func New(out io.Writer) *Screen {
	s := &Screen{out: out, width: defaultWidth, whole: true}
	if f, ok := out.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		if w, _, err := term.GetSize(int(f.Fd())); err == nil {
			s.width, s.whole = w, false
		}
		s.color = os.Getenv("NO_COLOR") == ""
	}
	if columns, err := strconv.Atoi(os.Getenv("COLUMNS")); err == nil && columns > 0 {
		s.width, s.whole = columns, false
	}
	s.width = max(s.width, minScreen)
	return s
}

// Err returns the first write error.
func (s *Screen) Err() error { return s.err }

// Title writes a heading after an empty line.
func (s *Screen) Title(format string, args ...any) {
	s.write("\n" + s.paint(bold, fmt.Sprintf(format, args...)) + "\n")
}

// Text writes a paragraph, wrapped to the width of the screen or of a readable line.
func (s *Screen) Text(format string, args ...any) {
	s.write(strings.Join(wrap(fmt.Sprintf(format, args...), min(s.width, maxTextWidth)), "\n") + "\n")
}

// Command writes a shell command. It does not wrap it, so that it can be copied.
func (s *Screen) Command(line string) { s.write("  " + line + "\n") }

// Good returns a word in green.
func (s *Screen) Good(word string) string { return s.paint(green, word) }

// Bad returns a word in red.
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

// sanitize replaces control characters except line ends and the colours of this package. Text from
// others, such as an escrow service, must not move the cursor or reverse the text direction.
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

// Plain replaces every terminal control character except line ends by U+FFFD.
func Plain(text string) string {
	return strings.Map(func(r rune) rune {
		if r != '\n' && isTerminalControl(r) {
			return utf8.RuneError
		}
		return r
	}, text)
}

// PlainJSON escapes these characters in JSON text. The JSON value stays the same.
func PlainJSON(text []byte) []byte {
	if !bytes.ContainsFunc(text, func(r rune) bool { return isTerminalControl(r) && r != '\n' }) {
		return text
	}
	var out []byte
	for _, r := range string(text) { // JSON has characters below space only as white space between tokens
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

// isTerminalControl reports whether a terminal may interpret a character: control characters, and
// format characters, which reverse the text direction or are invisible.
func isTerminalControl(r rune) bool { return unicode.In(r, unicode.Cc, unicode.Cf) }
