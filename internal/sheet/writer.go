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
	"unicode/utf16"
)

// Writer writes lines with as many cells as its header. Only one goroutine may use it.
type Writer struct {
	out     *bufio.Writer
	line    []string
	textual bool // texts, times and long numbers are formulas
}

// NewWriter returns a Writer, and writes the header.
func NewWriter(out io.Writer, header ...string) (*Writer, error) {
	w := &Writer{out: bufio.NewWriter(out), line: make([]string, len(header))}
	return w, w.header(header)
}

// NewTextWriter is NewWriter for a file that a spreadsheet opens without a question: it begins with a byte order mark,
// and texts, times and numbers of more than 15 digits are written as formulas of a text, ="007". A spreadsheet keeps
// them to the character, while it would read 007 as 7, 1-2 as a date, and of a longer number 15 digits only. A text
// that has a semicolon or a line end, or is longer than a formula's may be, is written as NewWriter writes it.
func NewTextWriter(out io.Writer, header ...string) (*Writer, error) {
	w := &Writer{out: bufio.NewWriter(out), line: make([]string, len(header)), textual: true}
	if _, err := w.out.WriteString("\ufeff"); err != nil {
		return nil, err
	}
	return w, w.header(header)
}

func (w *Writer) header(names []string) error {
	for i, name := range names {
		w.line[i] = EscapeFormula(visible(name))
		if strings.ContainsAny(w.line[i], "\",;\r\n ") {
			w.line[i] = quoted(w.line[i])
		}
	}
	return w.end()
}

// Write writes a line of strings, numbers, times and booleans; nil is an empty cell. For a cell
// of any other type it returns an error and writes nothing.
func (w *Writer) Write(cells ...any) error {
	if len(cells) != len(w.line) {
		return fmt.Errorf("sheet: the line has %d cells, the header %d", len(cells), len(w.line))
	}
	for i, cell := range cells {
		text, err := w.cell(cell)
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

func (w *Writer) cell(of any) (string, error) {
	switch v := of.(type) {
	case nil:
		return "", nil
	case string:
		return w.text(visible(v)), nil
	case int:
		return w.number(int64(v)), nil
	case int64:
		return w.number(v), nil
	case bool:
		return strconv.FormatBool(v), nil
	case time.Time:
		at := v.UTC().Format(time.RFC3339Nano)
		if w.textual {
			at = w.text(at)
		}
		return at, nil
	}
	return "", fmt.Errorf("sheet: a cell can't be a %T", of)
}

// maxFormulaText is the longest text in a formula, in UTF-16 units.
const maxFormulaText = 255

func (w *Writer) text(v string) string {
	if !w.textual || v == "" || strings.ContainsAny(v, ";\r\n") || len(utf16.Encode([]rune(v))) > maxFormulaText {
		return quoted(EscapeFormula(v))
	}
	return quoted(`="` + strings.ReplaceAll(strings.TrimLeft(v, "\ufeff"), `"`, `""`) + `"`)
}

func (w *Writer) number(v int64) string {
	text := strconv.FormatInt(v, 10)
	if w.textual && len(strings.TrimPrefix(text, "-")) > 15 {
		return w.text(text)
	}
	return text
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
