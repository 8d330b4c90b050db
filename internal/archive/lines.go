package archive

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
)

// Encode is the content of a file of records: one JSON object a line, compressed.
func Encode[T any](records []T) ([]byte, error) {
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	e := json.NewEncoder(z)
	e.SetEscapeHTML(false)
	for i := range records {
		if err := e.Encode(records[i]); err != nil {
			return nil, fmt.Errorf("archive: record %d: %w", i, err)
		}
	}
	if err := z.Close(); err != nil {
		return nil, fmt.Errorf("archive: %w", err)
	}
	return out.Bytes(), nil
}

// Read gives the records of all files whose names begin with a prefix, in the order
// of the names. Of those with the same id it gives the first: it remembers the ids
// that it has seen, and nothing else. A file that can't be read ends the reading with
// its error; none is passed over.
func Read[T any, ID comparable](ctx context.Context, s Store, prefix string, id func(T) ID) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		seen := map[ID]struct{}{}
		var none T
		for name, err := range s.Names(ctx, prefix) {
			if err != nil {
				yield(none, err)
				return
			}
			for record, err := range lines[T](ctx, s, name) {
				if err != nil {
					yield(none, fmt.Errorf("archive: read %s: %w", name, err))
					return
				}
				if _, twice := seen[id(record)]; twice {
					continue
				}
				seen[id(record)] = struct{}{}
				if !yield(record, nil) {
					return
				}
			}
		}
	}
}

func lines[T any](ctx context.Context, s Store, name string) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var none T
		f, err := s.Open(ctx, name)
		if err != nil {
			yield(none, err)
			return
		}
		more, err := decode(f, yield)
		if err = errors.Join(err, f.Close()); err != nil && more {
			yield(none, err)
		}
	}
}

// decode gives each line. more is false when nobody wants another.
func decode[T any](f io.Reader, yield func(T, error) bool) (more bool, err error) {
	z, err := gzip.NewReader(f)
	if err != nil {
		return true, err
	}
	for d := json.NewDecoder(z); ; {
		var record T
		err := d.Decode(&record)
		if errors.Is(err, io.EOF) {
			return true, nil // also the checksum of what was read is right
		}
		if err != nil {
			return true, err
		}
		if !yield(record, nil) {
			return false, nil
		}
	}
}
