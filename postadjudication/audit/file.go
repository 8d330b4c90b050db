package audit

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"slices"
	"time"

	"github.com/recourse-dev/recourse/internal/textfile"
	"github.com/recourse-dev/recourse/receipts"
)

// fileLine is a receipt in a file: one JSON object a line. Body and link are in base64, so that
// the bytes are those that were hashed.
type fileLine struct {
	Tenant  string           `json:"tenant"`
	Case    receipts.CaseID  `json:"case_id"`
	Seq     int64            `json:"sequence"`
	Run     receipts.RunID   `json:"run_id,omitzero"`
	Source  receipts.Source  `json:"source"`
	Subtype receipts.Subtype `json:"subtype"`
	Actor   string           `json:"actor"`
	At      time.Time        `json:"at"`
	Body    []byte           `json:"body"`
	Link    []byte           `json:"link"`
}

func lineOf(tenant string, r receipts.Receipt) fileLine {
	return fileLine{Tenant: tenant, Case: r.Case, Seq: r.Seq, Run: r.Run, Source: r.Source, Subtype: r.Subtype, Actor: r.Actor, At: r.At, Body: r.Body, Link: r.Link[:]}
}

func (l *fileLine) receipt() receipts.Receipt {
	r := receipts.Receipt{Case: l.Case, Seq: l.Seq, Run: l.Run, Tenant: l.Tenant, Source: l.Source, Subtype: l.Subtype, Actor: l.Actor, At: l.At.UTC(), Body: l.Body}
	copy(r.Link[:], l.Link)
	return r
}

// Written is what WriteFile or WriteCase wrote.
type Written struct {
	Receipts int64
	Heads    receipts.Heads // of each case, as its last receipt states it: it is not verified
}

// WriteFile writes the receipts of tenants, or of all tenants if none is given, as OpenFile reads
// them: by tenant, case and sequence, each tenant once. Receipts that are
// written to the database meanwhile may be missing. What was written before an error is no file to keep.
func WriteFile(ctx context.Context, r ReceiptReader, tenants []string, to io.Writer) (w Written, err error) {
	if len(tenants) == 0 {
		if tenants, err = r.Tenants(ctx); err != nil {
			return w, err
		}
	}
	tenants = slices.Compact(slices.Sorted(slices.Values(tenants)))
	out := newFileWriter(to)
	for _, tenant := range tenants {
		for one, err := range r.Receipts(ctx, tenant) {
			if err == nil {
				err = out.add(tenant, one)
			}
			if err != nil {
				return out.Written, err
			}
		}
	}
	return out.Written, out.lines.Flush()
}

// WriteCase is WriteFile for one case of a tenant. It returns ErrNotFound for a case without receipts.
func WriteCase(ctx context.Context, r ReceiptReader, tenant string, id receipts.CaseID, to io.Writer) (Written, error) {
	out := newFileWriter(to)
	for {
		page, err := r.Trail(ctx, tenant, id, out.Heads[id].Seq, singleTrailPage)
		if err != nil {
			return out.Written, err
		}
		for _, one := range page {
			if err := out.add(tenant, one); err != nil {
				return out.Written, err
			}
		}
		if len(page) < singleTrailPage {
			break
		}
	}
	if out.Receipts == 0 {
		return out.Written, ErrNotFound
	}
	return out.Written, out.lines.Flush()
}

// fileWriter writes receipts as lines of a file, in the order in which they come.
type fileWriter struct {
	Written
	lines *bufio.Writer
	json  *json.Encoder
}

func newFileWriter(to io.Writer) *fileWriter {
	lines := bufio.NewWriter(to)
	return &fileWriter{Written{Heads: receipts.Heads{}}, lines, json.NewEncoder(lines)}
}

func (w *fileWriter) add(tenant string, r receipts.Receipt) error {
	if err := w.json.Encode(lineOf(tenant, r)); err != nil {
		return err
	}
	w.Receipts++
	w.Heads[r.Case] = receipts.Head{Seq: r.Seq, Link: r.Link}
	return nil
}

// File is a ReceiptReader of a file that WriteFile wrote. It has receipts and no rows. It is safe for
// concurrent use.
type File struct {
	file    *os.File
	tenants []fileSpan                     // in order
	cases   map[receipts.CaseID][]fileCase // of one tenant, unless the file was tampered with
}

// fileSpan is where the receipts of a tenant are in a file.
type fileSpan struct {
	tenant     string
	begin, end int64
	cases      int // with runs
}

// fileCase is where the receipts of a tenant's case begin in a file.
type fileCase struct {
	tenant string
	begin  int64
}

// ErrFile means that a file can't be read as receipts. The error names the line.
var ErrFile = errors.New("audit: not a file of receipts")

// OpenFile opens a file of receipts, and reads it once to learn where each case begins. The error
// wraps ErrFile for a file that is compressed or no UTF-8, that is cut off within a line, whose lines are not such receipts, or
// are in another order. Close the file after use.
func OpenFile(path string) (_ *File, err error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	f := &File{file: file, cases: map[receipts.CaseID][]fileCase{}}
	if err := f.index(); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", path, err), file.Close())
	}
	return f, nil
}

// Close closes the file.
func (f *File) Close() error { return f.file.Close() }

// OnlyCase returns the case of a file that has only one, and its tenant.
func (f *File) OnlyCase() (tenant string, id receipts.CaseID, only bool) {
	if len(f.cases) != 1 {
		return "", id, false
	}
	for caseID, owners := range f.cases {
		tenant, id = owners[0].tenant, caseID
		only = len(owners) == 1
	}
	return tenant, id, only
}

// index finds the tenants and cases of the file.
func (f *File) index() error {
	prefix := make([]byte, 8)
	n, err := f.file.ReadAt(prefix, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	begin, err := textfile.Plain(prefix[:n])
	if err != nil {
		return fmt.Errorf("%w: %w", ErrFile, err)
	}
	var before fileLine
	number := 0
	for at, err := range f.lines(begin, -1) {
		number++
		if err != nil {
			return fmt.Errorf("%w: line %d: %w", ErrFile, number, err)
		}
		l := &at.line
		order := bytes.Compare(before.Case[:], l.Case[:])
		switch {
		case number == 1 || before.Tenant < l.Tenant:
			f.tenants = append(f.tenants, fileSpan{tenant: l.Tenant, begin: at.begin})
		case before.Tenant > l.Tenant || order > 0 || order == 0 && before.Seq >= l.Seq:
			return fmt.Errorf("%w: line %d: receipts are not in the order of tenant, case and sequence", ErrFile, number)
		}
		span := &f.tenants[len(f.tenants)-1]
		span.end = at.end
		if number == 1 || before.Tenant != l.Tenant || order != 0 {
			f.cases[l.Case] = append(f.cases[l.Case], fileCase{l.Tenant, at.begin})
			if !l.Run.IsZero() {
				span.cases++
			}
		}
		before = at.line
	}
	return nil
}

// placedLine is a line and its place in the file.
type placedLine struct {
	line       fileLine
	begin, end int64
}

// lines reads the lines of a part of the file; a negative end means its end.
func (f *File) lines(begin, end int64) iter.Seq2[placedLine, error] {
	return func(yield func(placedLine, error) bool) {
		length := int64(1<<63-1) - begin
		if end >= 0 {
			length = end - begin
		}
		in := bufio.NewReaderSize(io.NewSectionReader(f.file, begin, length), 1<<16)
		for at := begin; ; {
			text, err := in.ReadBytes('\n')
			if errors.Is(err, io.EOF) && len(text) == 0 {
				return
			}
			l := placedLine{begin: at, end: at + int64(len(text))}
			switch {
			case errors.Is(err, io.EOF):
				err = errors.New("the line is cut off")
			case err == nil:
				err = l.line.read(text)
			}
			if !yield(l, err) || err != nil {
				return
			}
			at = l.end
		}
	}
}

// read parses a line.
func (l *fileLine) read(text []byte) error {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	switch err := dec.Decode(l); {
	case err != nil:
		return err
	case dec.More():
		return errors.New("there is more than one object")
	case l.Tenant == "" || l.Case.IsZero() || l.Seq < 1 || len(l.Link) != len(receipts.Head{}.Link):
		return errors.New("tenant, case_id, sequence or link is missing")
	}
	return nil
}

// Tenants implements ReceiptReader.
func (f *File) Tenants(context.Context) (out []string, _ error) {
	for _, t := range f.tenants {
		out = append(out, t.tenant)
	}
	return out, nil
}

// Owners implements ReceiptReader.
func (f *File) Owners(_ context.Context, cases []receipts.CaseID) (map[receipts.CaseID][]string, error) {
	out := map[receipts.CaseID][]string{}
	for _, id := range cases {
		for _, c := range f.cases[id] {
			out[id] = append(out[id], c.tenant)
		}
	}
	return out, nil
}

// CountCases implements ReceiptReader.
func (f *File) CountCases(_ context.Context, tenants []string) (n int, _ error) {
	for _, t := range f.tenants {
		if slices.Contains(tenants, t.tenant) {
			n += t.cases
		}
	}
	return n, nil
}

// Receipts implements ReceiptReader.
func (f *File) Receipts(ctx context.Context, tenant string) iter.Seq2[receipts.Receipt, error] {
	return func(yield func(receipts.Receipt, error) bool) {
		for _, t := range f.tenants {
			if t.tenant != tenant {
				continue
			}
			for at, err := range f.lines(t.begin, t.end) {
				if err = errors.Join(err, ctx.Err()); !yield(at.line.receipt(), err) || err != nil {
					return
				}
			}
		}
	}
}

// Trail implements ReceiptReader.
func (f *File) Trail(ctx context.Context, tenant string, id receipts.CaseID, after int64, limit int) (out []receipts.Receipt, err error) {
	for _, c := range f.cases[id] {
		if c.tenant != tenant {
			continue
		}
		for at, err := range f.lines(c.begin, -1) {
			if err := errors.Join(err, ctx.Err()); err != nil {
				return nil, err
			}
			if at.line.Tenant != tenant || at.line.Case != id || len(out) == limit {
				break
			}
			if at.line.Seq > after {
				out = append(out, at.line.receipt())
			}
		}
	}
	return out, nil
}
