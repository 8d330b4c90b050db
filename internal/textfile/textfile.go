package textfile

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"

	"golang.org/x/text/encoding/unicode"
	"golang.org/x/text/transform"
)

// ErrForm means that a file has a form that is not read. The error names the form.
var ErrForm = errors.New("the file can't be read as text")

// utf8Mark is the byte order mark of UTF-8.
const utf8Mark = "\xef\xbb\xbf"

// prefixes are what files of other forms begin with, the longest first.
var prefixes = []struct{ prefix, form string }{
	{"\xfd7zXZ\x00", "is compressed with xz"},
	{"\xff\xfe\x00\x00", "is UTF-32"},
	{"\x00\x00\xfe\xff", "is UTF-32"},
	{"\x28\xb5\x2f\xfd", "is compressed with zstd"},
	{"PK\x03\x04", "is a zip archive, such as a spreadsheet is"},
	{"BZh", "is compressed with bzip2"},
}

const (
	gzipPrefix   = "\x1f\x8b"
	littleEndian = "\xff\xfe"
	bigEndian    = "\xfe\xff"
	longest      = 6 // of the prefixes
)

// reader decides by its first bytes what it reads, at the first Read: standard input may not have any before.
type reader struct {
	from *bufio.Reader
	text io.Reader // nil before the first Read
}

// NewReader returns a Reader of the text in from. Its errors are those of from, of gzip, and ErrForm.
func NewReader(from io.Reader) io.Reader { return &reader{from: bufio.NewReader(from)} }

func (r *reader) Read(p []byte) (int, error) {
	if r.text == nil {
		text, err := open(r.from, true)
		if err != nil {
			return 0, err
		}
		r.text = text
	}
	return r.text.Read(p)
}

// open returns what reads the text after its first bytes.
func open(from *bufio.Reader, mayBePacked bool) (io.Reader, error) {
	begin, err := from.Peek(longest)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if mayBePacked && bytes.HasPrefix(begin, []byte(gzipPrefix)) {
		unpacked, err := gzip.NewReader(from)
		if err != nil {
			return nil, err
		}
		return open(bufio.NewReader(unpacked), false)
	}
	if err := refused(begin); err != nil {
		return nil, err
	}
	switch {
	case bytes.HasPrefix(begin, []byte(utf8Mark)):
		_, err := from.Discard(len(utf8Mark))
		return from, err
	case marked(begin):
		return transform.NewReader(from, unicode.UTF16(unicode.LittleEndian, unicode.ExpectBOM).NewDecoder()), nil
	}
	return from, nil
}

// marked reports whether a file begins with the byte order mark of UTF-16.
func marked(begin []byte) bool {
	return bytes.HasPrefix(begin, []byte(littleEndian)) || bytes.HasPrefix(begin, []byte(bigEndian))
}

// refused returns ErrForm for the first bytes of a file that is not read.
func refused(begin []byte) error {
	for _, p := range prefixes {
		if bytes.HasPrefix(begin, []byte(p.prefix)) {
			return fmt.Errorf("%w: it %s; save it as UTF-8", ErrForm, p.form)
		}
	}
	switch {
	case bytes.HasPrefix(begin, []byte(gzipPrefix)):
		return fmt.Errorf("%w: it is compressed with gzip more than once; unpack it first", ErrForm)
	case bytes.IndexByte(begin, 0) >= 0 && !marked(begin):
		return fmt.Errorf("%w: it is UTF-16 or UTF-32 without a byte order mark, or no text; save it as UTF-8", ErrForm)
	}
	return nil
}

// Plain returns where the text begins in a file of UTF-8 that begins with these bytes: after its byte order mark, if it
// has one. It is for who reads parts of a file by their place. ErrForm for a file of another form, which a Reader may
// read.
func Plain(begin []byte) (at int64, err error) {
	switch {
	case bytes.HasPrefix(begin, []byte(gzipPrefix)):
		return 0, fmt.Errorf("%w: it is compressed with gzip; unpack it first", ErrForm)
	case bytes.HasPrefix(begin, []byte(utf8Mark)):
		return int64(len(utf8Mark)), nil
	}
	if err := refused(begin); err != nil {
		return 0, err
	}
	if marked(begin) {
		return 0, fmt.Errorf("%w: it is UTF-16; save it as UTF-8", ErrForm)
	}
	return 0, nil
}

// Unix returns text with LF for each CRLF.
func Unix(text []byte) []byte { return bytes.ReplaceAll(text, []byte("\r\n"), []byte("\n")) }
