package deadletter

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/recourse-dev/recourse/internal/sheet"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/settlement"
)

// Format is a file format of letters.
type Format string

// The formats. All have the same letters in the same order. Amounts are in minor units next to
// their currency.
const (
	JSON  Format = "json"  // one array, one letter per line
	JSONL Format = "jsonl" // one letter per line
	CSV   Format = "csv"   // for programs and spreadsheets, with a header; see internal/sheet for its cells
	Excel Format = "excel" // CSV of which a spreadsheet keeps ids, times and long numbers as they are
)

// Formats lists all formats.
var Formats = []Format{JSON, JSONL, CSV, Excel}

// Exported counts what an export wrote.
type Exported struct {
	Letters   int `json:"letters"`
	Scanned   int `json:"scanned"`   // letters read
	Undecided int `json:"undecided"` // of these: excluded because evaluating the condition failed
}

// Export writes the letters of a tenant that a filter selects and that meet a condition (see
// Condition; empty: all), oldest death first, in constant memory. It excludes letters that die
// after its start, whatever the filter.
//
// On an error, out has received whole letters only, as many as counted, unless out itself
// failed. A reader can detect a cut by out: the last line has no end, or the JSON array has
// none. If the query is invalid, nothing is written.
//
// With a condition it takes at most two minutes, then fails with a *refusal.FieldError of where. It
// returns ErrTooManyConditions while too many conditions are being evaluated.
func (l Letters) Export(ctx context.Context, f Filter, where string, format Format, out io.Writer) (Exported, error) {
	return l.s.Export(ctx, l.tenant, f, where, format, out, exportTimeLimit)
}

// exportTimeLimit is the time limit of an export with a condition. An export without one
// computes nothing, so its reader determines the duration.
const exportTimeLimit = 2 * time.Minute

// Export is Letters.Export with a time limit for a condition.
func (s *Searcher) Export(ctx context.Context, tenant string, f Filter, where string, format Format, out io.Writer, limit time.Duration) (Exported, error) {
	var done Exported
	if !slices.Contains(Formats, format) {
		return done, &refusal.FieldError{Field: "format", Problem: fmt.Sprintf("must be one of %v", Formats)}
	}
	w, err := s.newLetterScan(ctx, tenant, f, where, OldestFirst, "")
	if err != nil {
		return done, err
	}
	defer w.where.Done()
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
			return done, errors.Join(ConditionError(fmt.Sprintf("took over %v for the first %d letters. Narrow the filter", limit, done.Scanned)), buffer.Flush())
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

// exporter writes letters in one format.
type exporter interface {
	letter(l Letter) error
	end() error
}

func newExporter(format Format, out *bufio.Writer) (exporter, error) {
	switch format {
	case CSV:
		return newCSVExporter(out, sheet.NewWriter)
	case Excel:
		return newCSVExporter(out, sheet.NewTextWriter)
	case JSON:
		return &jsonArrayExporter{out: out}, nil
	}
	return jsonLinesExporter{out}, nil
}

// jsonLinesExporter writes one letter per line, in whole lines.
type jsonLinesExporter struct{ out *bufio.Writer }

func (e jsonLinesExporter) letter(l Letter) error {
	line, err := json.Marshal(l)
	if err != nil {
		return err
	}
	return writeUnsplit(e.out, append(line, '\n'))
}

func (jsonLinesExporter) end() error { return nil }

// writeUnsplit flushes the buffer first if it would split the line.
func writeUnsplit(out *bufio.Writer, line []byte) error {
	if out.Buffered() > 0 && len(line) > out.Available() {
		if err := out.Flush(); err != nil {
			return err
		}
	}
	_, err := out.Write(line)
	return err
}

// jsonArrayExporter writes an array with one letter per line. Only end closes the array.
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

// letterColumns are the columns of the formats CSV and Excel.
var letterColumns = []struct {
	name string
	cell func(l *Letter) any
}{
	{"run_id", func(l *Letter) any { return l.Run.String() }},
	{"case_id", func(l *Letter) any { return l.Case.String() }},
	{"family", func(l *Letter) any { return l.Family }},
	{"queue", func(l *Letter) any { return l.Queue }},
	{"job_type", func(l *Letter) any { return l.JobType }},
	{"transaction_receipt_id", func(l *Letter) any { return l.Transaction }},
	{"submission_receipt_id", func(l *Letter) any { return l.Submission }},
	{"escrow_reference", func(l *Letter) any { return l.Escrow }},
	{"outcome", func(l *Letter) any { return string(l.Outcome) }},
	{"amount_minor", func(l *Letter) any { return minorCell(l.Amount) }},
	{"amount_currency", func(l *Letter) any { return currencyCell(l.Amount) }},
	{"at_risk_minor", func(l *Letter) any { return minorCell(l.AtRisk) }},
	{"at_risk_currency", func(l *Letter) any { return currencyCell(l.AtRisk) }},
	{"letter", func(l *Letter) any { return string(l.Status) }},
	{"dead_lettered_at", func(l *Letter) any { return l.DeadAt }},
	{"age_seconds", func(l *Letter) any { return int64(time.Duration(l.Age) / time.Second) }},
	{"reason_code", func(l *Letter) any { return l.ReasonCode }},
	{"outcome_class", func(l *Letter) any { return string(l.Class) }},
	{"attempts", func(l *Letter) any { return l.Attempts }},
	{"error_type", func(l *Letter) any { return l.failure().Type }},
	{"error_code", func(l *Letter) any { return l.failure().Code }},
	{"error_message", func(l *Letter) any { return l.failure().Message }},
	{"signature", func(l *Letter) any { return l.Signature }},
	{"replay_count", func(l *Letter) any { return l.Replays }},
	{"replayed_by", func(l *Letter) any { return l.ReplayedBy }},
	{"last_seen_at", func(l *Letter) any { return l.LastSeenAt }},
	{"held", func(l *Letter) any { return l.Held }},
	{"reprocess_eligible", func(l *Letter) any { return l.Reprocess }},
	{"manual_review_required", func(l *Letter) any { return l.Review }},
	{"expires_at", func(l *Letter) any { return timeCell(l.ExpiresAt) }},
	{"dispatch_reference", func(l *Letter) any { return l.Dispatch }},
	{"can_fork", func(l *Letter) any { return l.CanFork }},
	{"refused_by", func(l *Letter) any { return string(l.RefusedBy) }},
}

func minorCell(m *settlement.Money) any {
	if m == nil {
		return nil
	}
	return m.Minor
}

func currencyCell(m *settlement.Money) any {
	if m == nil {
		return nil
	}
	return m.Currency
}

func timeCell(t *time.Time) any {
	if t == nil {
		return nil
	}
	return *t
}

// csvExporter writes letters as CSV, in whole lines.
type csvExporter struct {
	out   *bufio.Writer
	line  bytes.Buffer
	sheet *sheet.Writer
}

func newCSVExporter(out *bufio.Writer, newWriter func(io.Writer, ...string) (*sheet.Writer, error)) (*csvExporter, error) {
	e := &csvExporter{out: out}
	names := make([]string, len(letterColumns))
	for i, c := range letterColumns {
		names[i] = c.name
	}
	var err error
	e.sheet, err = newWriter(&e.line, names...)
	return e, err
}

func (e *csvExporter) letter(l Letter) error {
	cells := make([]any, len(letterColumns))
	for i, c := range letterColumns {
		cells[i] = c.cell(&l)
	}
	if err := e.sheet.Write(cells...); err != nil {
		return err
	}
	return e.flush()
}

// flush writes the finished lines to out.
func (e *csvExporter) flush() error {
	if err := e.sheet.Flush(); err != nil {
		return err
	}
	defer e.line.Reset()
	return writeUnsplit(e.out, e.line.Bytes())
}

// end writes the header if there is no letter.
func (e *csvExporter) end() error { return e.flush() }
