package intake

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// Batch reads the items of the list called name, the one member of an object, as raw JSON:
//
//	{"adjudications":[{...},{...}]}
//
// It reads no further than the item after the last allowed one, and no further than the
// allowed length into an item. Errors: a *BatchError for a refusal, else the reader's error.
// It does not check the items strictly: see ParseObject.
func Batch(r io.Reader, name string, items, length int) ([]json.RawMessage, error) {
	b := batch{name: name, r: &boundedReader{in: r}}
	b.dec = json.NewDecoder(b.r)
	b.r.until = batchOverhead
	empty := &BatchError{Field: name, Problem: fmt.Sprintf("must have 1 to %d items, has 0", items)}
	if err := b.begin(); errors.Is(err, errNoList) {
		return nil, empty
	} else if err != nil {
		return nil, b.malformed(err)
	}
	var out []json.RawMessage
	for {
		b.r.until = b.dec.InputOffset() + int64(length) + batchOverhead
		if !b.dec.More() {
			break
		}
		if len(out) == items {
			return nil, &BatchError{Field: name, Problem: fmt.Sprintf("must have 1 to %d items, has more", items)}
		}
		item := fmt.Sprintf("%s[%d]", name, len(out))
		var text json.RawMessage
		err := b.dec.Decode(&text)
		if errors.Is(err, errBound) || err == nil && len(text) > length {
			return nil, &BatchError{Field: item, Problem: fmt.Sprintf("is over %d bytes", length)}
		}
		if err != nil {
			return nil, b.malformed(err)
		}
		out = append(out, text)
	}
	if err := b.end(); err != nil {
		return nil, b.malformed(err)
	}
	if len(out) == 0 {
		return nil, empty
	}
	return out, nil
}

// BatchError is the problem of a batch.
type BatchError struct {
	Field     string
	Problem   string
	Malformed bool // it is not JSON
}

func (e *BatchError) Error() string { return strings.TrimSpace(e.Field + " " + e.Problem) }

// batchOverhead is room for the text around an item: the name of the list, and white space.
const batchOverhead = 1024

var (
	errBound      = errors.New("intake: an item is over its limit")
	errNotOneList = errors.New("must be an object with one list")

	errNoList = errors.New("intake: an object without members")
)

type batch struct {
	name string // of the list
	r    *boundedReader
	dec  *json.Decoder
}

// begin reads up to the first item.
func (b batch) begin() error {
	for _, want := range []json.Token{json.Delim('{'), b.name, json.Delim('[')} {
		got, err := b.dec.Token()
		switch {
		case err != nil:
			return err
		case want == b.name && got == json.Delim('}'):
			return errNoList
		case got != want:
			return errNotOneList
		}
	}
	return nil
}

// end reads what follows the last item.
func (b batch) end() error {
	for _, want := range []json.Token{json.Delim(']'), json.Delim('}')} {
		if got, err := b.dec.Token(); err != nil {
			return err
		} else if got != want {
			return errNotOneList
		}
	}
	switch _, err := b.dec.Token(); {
	case err == nil:
		return errNotOneList
	case errors.Is(err, io.EOF):
		return nil
	default:
		return err
	}
}

// malformed returns the problem of the JSON, or the error of reading.
func (b batch) malformed(err error) error {
	var syntax *json.SyntaxError
	switch {
	case errors.Is(err, errNotOneList), errors.Is(err, errBound):
		return &BatchError{Problem: errNotOneList.Error() + ", " + b.name}
	case errors.As(err, &syntax):
		return &BatchError{Problem: fmt.Sprintf("is not JSON: %s at byte %d", syntax, syntax.Offset), Malformed: true}
	case b.r.err != nil && !errors.Is(b.r.err, io.EOF):
		return b.r.err
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return &BatchError{Problem: "is not JSON: it ends too early", Malformed: true}
	}
	return &BatchError{Problem: "is not JSON: " + err.Error(), Malformed: true}
}

// boundedReader returns errBound when more than its number of bytes is read.
type boundedReader struct {
	in          io.Reader
	read, until int64
	err         error // of in
}

func (r *boundedReader) Read(p []byte) (int, error) {
	if r.read >= r.until {
		return 0, errBound
	}
	n, err := r.in.Read(p[:min(int64(len(p)), r.until-r.read)])
	r.read += int64(n)
	r.err = err
	return n, err
}
