package sheet

import (
	"encoding/csv"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
)

// Writer writes lines of as many cells as its header has. It is for one goroutine.
type Writer struct {
	out  *csv.Writer
	line []string
}

// NewWriter writes the header.
func NewWriter(out io.Writer, header ...string) (*Writer, error) {
	w := &Writer{csv.NewWriter(out), make([]string, len(header))}
	w.out.UseCRLF = true
	for i, name := range header {
		w.line[i] = Safe(name)
	}
	return w, w.out.Write(w.line)
}

// Write writes a line of texts, numbers, times and flags; nil is an empty cell. Any
// other cell is a mistake of the caller's, and nothing is written.
func (w *Writer) Write(cells ...any) error {
	if len(cells) != len(w.line) {
		return fmt.Errorf("sheet: a line of %d cells under a header of %d", len(cells), len(w.line))
	}
	for i, cell := range cells {
		text, err := textOf(cell)
		if err != nil {
			return err
		}
		w.line[i] = text
	}
	return w.out.Write(w.line)
}

// Flush hands what was written to the writer below.
func (w *Writer) Flush() error {
	w.out.Flush()
	return w.out.Error()
}

func textOf(cell any) (string, error) {
	switch v := cell.(type) {
	case nil:
		return "", nil
	case string:
		return Safe(v), nil
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

// formula are the first characters of what spreadsheets take for more than text: those
// of formulas, white space that they strip before they look, and their full-width
// forms, which some take for the same.
const formula = "=+-@\t\r\n'＝＋－＠"

// Safe is a text as a cell that no spreadsheet takes for a formula. Text undoes it.
func Safe(text string) string {
	if text != "" && strings.ContainsAny(firstOf(text), formula) {
		return "'" + text
	}
	return text
}

// firstOf is a text's first character.
func firstOf(text string) string {
	for i := range text {
		if i > 0 {
			return text[:i]
		}
	}
	return text
}

// Text is the text that Safe made a cell of.
func Text(cell string) string { return strings.TrimPrefix(cell, "'") }
