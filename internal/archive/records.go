package archive

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
)

// Encode returns the content of a file of records: JSON lines, gzipped.
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

// Read returns the records of all files whose names begin with prefix, in the order of the
// names. Of each id it returns one record: the one with the highest rank, and among those the
// last. It reads every file twice, first to find these records; in memory it keeps the names
// and ids only. It does not read files that are put after it started. An error of a file ends
// the reading. No file is skipped, except one that is removed before it is first opened; a
// file that is removed later ends the reading with an error.
func Read[T any, ID comparable](ctx context.Context, s Store, prefix string, id func(T) ID, rank func(T) int64) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var none T
		names, best, err := indexRecords(ctx, s, prefix, id, rank)
		if err != nil {
			yield(none, err)
			return
		}
		for file, name := range names {
			line := 0
			for record, err := range lines[T](ctx, s, name) {
				if err != nil {
					yield(none, fmt.Errorf("archive: read %s: %w", name, err))
					return
				}
				if b := best[id(record)]; b.file == file && b.line == line && !yield(record, nil) {
					return
				}
				line++
			}
		}
	}
}

// recordPlace is the place of the best record of an id.
type recordPlace struct {
	rank       int64
	file, line int
}

// indexRecords lists the files and finds the best record of each id.
func indexRecords[T any, ID comparable](ctx context.Context, s Store, prefix string, id func(T) ID, rank func(T) int64) (names []string, best map[ID]recordPlace, err error) {
	best = map[ID]recordPlace{}
	for name, err := range s.Names(ctx, prefix) {
		if err != nil {
			return nil, nil, err
		}
		here, gone := recordPlace{file: len(names)}, false
		for record, err := range lines[T](ctx, s, name) {
			if gone = here.line == 0 && errors.Is(err, fs.ErrNotExist) && !stillListed(ctx, s, name); gone {
				break // removed as needless: see Remover
			}
			if err != nil {
				return nil, nil, fmt.Errorf("archive: read %s: %w", name, err)
			}
			here.rank = rank(record)
			if before, twice := best[id(record)]; !twice || here.rank >= before.rank {
				best[id(record)] = here
			}
			here.line++
		}
		if !gone {
			names = append(names, name)
		}
	}
	return names, best, nil
}

// stillListed reports whether a file is still listed. It returns true if the listing fails.
func stillListed(ctx context.Context, s Store, name string) bool {
	for listed, err := range s.Names(ctx, name) {
		if err != nil || listed == name {
			return true
		}
	}
	return false
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

// decode yields each line. more is false when yield returned false.
func decode[T any](f io.Reader, yield func(T, error) bool) (more bool, err error) {
	z, err := gzip.NewReader(f)
	if err != nil {
		return true, err
	}
	for d := json.NewDecoder(z); ; {
		var record T
		err := d.Decode(&record)
		if errors.Is(err, io.EOF) {
			return true, nil // io.EOF also means that the checksum is right
		}
		if err != nil {
			return true, err
		}
		if !yield(record, nil) {
			return false, nil
		}
	}
}
