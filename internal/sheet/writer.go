package sheet

import (
	"bufio"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Writer writes lines of as many cells as its header has. It is for one goroutine.
type Writer struct {
	out  *bufio.Writer
	line []string
}

// NewWriter writes the header.
func NewWriter(out io.Writer, header ...string) (*Writer, error) {
	w := &Writer{bufio.NewWriter(out), make([]string, len(header))}
	for i, name := range header {
		w.line[i] = EscapeFormula(name)
		if strings.ContainsAny(w.line[i], "\",;\r\n ") {
			w.line[i] = quoted(w.line[i])
		}
	}
	return w, w.end()
}

// Write writes a line of texts, numbers, times and flags; nil is an empty cell. Any
// other cell is a mistake of the caller's, and nothing is written.
func (w *Writer) Write(cells ...any) error {
	if len(cells) != len(w.line) {
		return fmt.Errorf("sheet: a line of %d cells under a header of %d", len(cells), len(w.line))
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

// quoted is a text in quotes, with its ends of line as RFC 4180 has them.
func quoted(text string) string {
	return `"` + inQuotes.Replace(text) + `"`
}

var inQuotes = strings.NewReplacer(`"`, `""`, "\r", "", "\n", "\r\n")

// Flush hands what was written to the writer below.
func (w *Writer) Flush() error {
	return w.out.Flush()
}

func cellText(cell any) (string, error) {
	switch v := cell.(type) {
	case nil:
		return "", nil
	case string:
		return quoted(EscapeFormula(v)), nil
	case int:
		return strconv.Itoa(v), nil
	case int64:
		return strconv.FormatInt(v, 10), nil
	case bool:
		return strconv.FormatBool(v), nil
	case time.Time:
		return v.UTC().Format(time.RFC3339Nano), nil
	}
	return "", fmt.Errorf("sheet: a %T can't be a cell", cell)
}

// formulaPrefixes are the first characters of what spreadsheets take for more than text: those
// of formulas, white space that they strip before they look, and their full-width
// forms, which some take for the same.
const formulaPrefixes = "=+-@\t\r\n'＝＋－＠"

// EscapeFormula is a text as a cell that no spreadsheet takes for a formula: neither all of it, nor
// what follows a semicolon, where a spreadsheet may begin a new cell. A byte order mark at
// its beginning is left out. Text undoes the rest.
func EscapeFormula(text string) string {
	text = afterSemicolon.ReplaceAllString(strings.TrimLeft(text, "\ufeff"), ";'$1")
	if text != "" && strings.ContainsAny(firstRune(text), formulaPrefixes) {
		return "'" + text
	}
	return text
}

// afterSemicolon finds what would begin a formula in a cell of its own, also behind a quote.
var afterSemicolon = regexp.MustCompile(`;([=+\-@\t\r\n'＝＋－＠"\x{feff}])`)

// firstRune is a text's first character.
func firstRune(text string) string {
	for i := range text {
		if i > 0 {
			return text[:i]
		}
	}
	return text
}

// UnescapeFormula is the text that Safe made a cell of.
func UnescapeFormula(cell string) string {
	return strings.ReplaceAll(strings.TrimPrefix(cell, "'"), ";'", ";")
}
