package postadjudication

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"
)

// ExportFormat is how letters are written.
type ExportFormat string

// The formats. In all of them amounts are minor units beside their currency, and the
// letters are the same, in the same order.
const (
	JSON  ExportFormat = "json"  // one array, of a letter a line
	JSONL ExportFormat = "jsonl" // a letter a line
	CSV   ExportFormat = "csv"   // for spreadsheets, with a header; see internal/sheet for its cells
)

// ExportFormats are all formats.
var ExportFormats = []ExportFormat{JSON, JSONL, CSV}

// Exported is what an export wrote.
type Exported struct {
	Letters   int `json:"letters"`
	Scanned   int `json:"scanned"`   // looked at
	Undecided int `json:"undecided"` // of these: left out since the condition could not be told
}

// Export writes the letters of a tenant that a filter selects and that meet a
// condition (see LetterExpr; empty for all), the oldest death first, with as much
// memory for a million as for a thousand. Letters that die from its beginning on are
// none of them, if the filter says when they died or not.
//
// When it fails, whole letters only have been handed to out, those that are counted
// unless it is out that failed. What out itself cuts off can be told: a line without
// its end is none, and an array without its end is not JSON. Nothing is written when
// the query makes no sense.
//
// With a condition it takes at most two minutes, then fails with a *FieldError of where,
// and returns ErrTooManyConditions while too many are worked on.
func (s *Service) Export(ctx context.Context, tenant string, f LetterFilter, where string, format ExportFormat, out io.Writer) (Exported, error) {
	return s.export(ctx, tenant, f, where, format, out, exportTimeLimit)
}

// exportTimeLimit is how long an export with a condition may take. Without one nothing is
// computed, and whoever reads decides how long it takes.
const exportTimeLimit = 2 * time.Minute

func (s *Service) export(ctx context.Context, tenant string, f LetterFilter, where string, format ExportFormat, out io.Writer, limit time.Duration) (Exported, error) {
	var done Exported
	if !slices.Contains(ExportFormats, format) {
		return done, &FieldError{Field: "format", Problem: fmt.Sprintf("must be one of %v", ExportFormats)}
	}
	w, err := s.newLetterScan(ctx, tenant, f, where, OldestFirst, "")
	if err != nil {
		return done, err
	}
	defer w.where.done()
	deadline := time.Now().Add(limit)
	if began := w.at.asOf.Add(time.Microsecond); w.filter.To.IsZero() || began.Before(w.filter.To) {
		w.filter.To = began
	}
	buffer := bufio.NewWriterSize(out, exportBuffer)
	to, err := newExporter(format, buffer)
	if err != nil {
		return done, err
	}
	for !w.done() {
		if w.where != nil && time.Now().After(deadline) {
			return done, errors.Join(conditionError(fmt.Sprintf("took over %v: %d letters were looked at, and others follow. Narrow the filter", limit, done.Scanned)), buffer.Flush())
		}
		l, matches, err := w.next(ctx, scanPage)
		done.Scanned, done.Undecided = w.scanned, w.undecided
		if err != nil {
			return done, errors.Join(err, buffer.Flush())
		}
		if !matches {
			continue
		}
		if err := to.letter(l); err != nil {
			return done, err
		}
		done.Letters++
	}
	return done, errors.Join(to.end(), buffer.Flush())
}

const exportBuffer = 64 << 10

// exporter writes letters in a format.
type exporter interface {
	letter(l Letter) error
	end() error
}

func newExporter(format ExportFormat, out *bufio.Writer) (exporter, error) {
	switch format {
	case CSV:
		return newCSVExporter(out)
	case JSON:
		return &jsonArrayExporter{out: out}, nil
	}
	return jsonLinesExporter{out}, nil
}

// jsonLinesExporter writes a letter a line, whole lines at a time.
type jsonLinesExporter struct{ out *bufio.Writer }

func (e jsonLinesExporter) letter(l Letter) error {
	line, err := json.Marshal(l)
	if err != nil {
		return err
	}
	return writeUnsplit(e.out, append(line, '\n'))
}

func (jsonLinesExporter) end() error { return nil }

// writeUnsplit lets no flush of the buffer's own cut a line in two.
func writeUnsplit(out *bufio.Writer, line []byte) error {
	if out.Buffered() > 0 && len(line) > out.Available() {
		if err := out.Flush(); err != nil {
			return err
		}
	}
	_, err := out.Write(line)
	return err
}

// jsonArrayExporter writes an array of a letter a line. It is closed at the end only.
type jsonArrayExporter struct {
	out     *bufio.Writer
	letters int
}

func (e *jsonArrayExporter) letter(l Letter) error {
	line, err := json.Marshal(l)
	if err != nil {
		return err
	}
	between := ",\n"
	if e.letters == 0 {
		between = "[\n"
	}
	e.letters++
	return writeUnsplit(e.out, append([]byte(between), line...))
}

func (e *jsonArrayExporter) end() error {
	closing := "\n]\n"
	if e.letters == 0 {
		closing = "[]\n"
	}
	return writeUnsplit(e.out, []byte(closing))
}
