package sheet

import (
	"bufio"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// Writer writes lines with as many cells as its header. Only one goroutine may use it.
type Writer struct {
	out  *bufio.Writer
	line []string
}

// NewWriter returns a Writer, and writes the header.
func NewWriter(out io.Writer, header ...string) (*Writer, error) {
	w := &Writer{bufio.NewWriter(out), make([]string, len(header))}
	for i, name := range header {
		w.line[i] = EscapeFormula(visible(name))
		if strings.ContainsAny(w.line[i], "\",;\r\n ") {
			w.line[i] = quoted(w.line[i])
		}
	}
	return w, w.end()
}

// Write writes a line of strings, numbers, times and booleans; nil is an empty cell. For a cell
// of any other type it returns an error and writes nothing.
func (w *Writer) Write(cells ...any) error {
	if len(cells) != len(w.line) {
		return fmt.Errorf("sheet: the line has %d cells, the header %d", len(cells), len(w.line))
	}
	for i, cell := range cells {
		text, err := cellText(cell)
		if err != nil {
			return err
		}
		w.line[i] = text
	}
	return w.end()
}

// end writes the line.
func (w *Writer) end() error {
	_, err := w.out.WriteString(strings.Join(w.line, ",") + "\r\n")
	return err
}

// quoted returns text in quotes, with line ends as in RFC 4180.
func quoted(text string) string {
	return `"` + inQuotes.Replace(text) + `"`
}

var inQuotes = strings.NewReplacer(`"`, `""`, "\r", "", "\n", "\r\n")

// Flush writes buffered lines to the underlying writer.
func (w *Writer) Flush() error {
	return w.out.Flush()
}

func cellText(cell any) (string, error) {
	switch v := cell.(type) {
	case nil:
		return "", nil
	case string:
		return quoted(EscapeFormula(visible(v))), nil
	case int:
		return strconv.Itoa(v), nil
	case int64:
		return strconv.FormatInt(v, 10), nil
	case bool:
		return strconv.FormatBool(v), nil
	case time.Time:
		return v.UTC().Format(time.RFC3339Nano), nil
	}
	return "", fmt.Errorf("sheet: a cell can't be a %T", cell)
}

// visible returns text with U+FFFD for each character that a terminal obeys or nobody sees: controls other than tab
// and line ends, and format characters, such as ESC and those that turn the order of what follows. A byte order mark
// at the beginning is left to EscapeFormula.
func visible(text string) string {
	rest := strings.TrimLeft(text, "\ufeff")
	return text[:len(text)-len(rest)] + strings.Map(func(r rune) rune {
		if unicode.In(r, unicode.Cc, unicode.Cf) && r != '\t' && r != '\r' && r != '\n' {
			return unicode.ReplacementChar
		}
		return r
	}, rest)
}

// formulaPrefixes are the first characters of texts that spreadsheets interpret: those of
// formulas, white space that some strip before they parse, and the full-width forms that
// some treat the same.
const formulaPrefixes = "=+-@\t\r\n'＝＋－＠"

// EscapeFormula returns text as a cell that no spreadsheet takes for a formula: neither the
// whole, nor what follows a semicolon, where some start a new cell. It drops a byte order mark
// at the beginning. A program that reads the cell removes an apostrophe at its beginning and those after semicolons.
func EscapeFormula(text string) string {
	text = afterSemicolon.ReplaceAllString(strings.TrimLeft(text, "\ufeff"), ";'$1")
	if text != "" && strings.ContainsAny(firstRune(text), formulaPrefixes) {
		return "'" + text
	}
	return text
}

// afterSemicolon matches what would start a formula in a new cell, also after a quote.
var afterSemicolon = regexp.MustCompile(`;([=+\-@\t\r\n'＝＋－＠"\x{feff}])`)

// firstRune returns the first character of a text.
func firstRune(text string) string {
	for i := range text {
		if i > 0 {
			return text[:i]
		}
	}
	return text
}
