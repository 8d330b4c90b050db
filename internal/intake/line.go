package intake

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"iter"

	"github.com/recourse-dev/recourse/postadjudication"
)

// MaxLine is the maximum length of a line without its line end, in bytes.
const MaxLine = 64 << 10

// Line is a line that is not blank.
type Line struct {
	Number       int // from 1, counting blank lines
	Adjudication postadjudication.Adjudication
	Problems     []Problem // empty if and only if the adjudication is readable and valid
	// Unsafe reports that all problems are secrets or format characters. Submit may still
	// answer the adjudication, if it was accepted before.
	Unsafe bool
}

// Problem is a problem of a line. Field is empty for the line as a whole.
type Problem struct {
	Line    int    `json:"line"`
	Field   string `json:"field,omitempty"`
	Problem string `json:"problem"`
}

func (p Problem) Error() string {
	if p.Field == "" {
		return fmt.Sprintf("line %d: %s", p.Line, p.Problem)
	}
	return fmt.Sprintf("line %d: %s %s", p.Line, p.Field, p.Problem)
}

// Lines yields one line after the other. An error is an error of reading and ends the
// iteration; the problems of a line are in its Problems.
func Lines(r io.Reader) iter.Seq2[Line, error] {
	return func(yield func(Line, error) bool) {
		in := bufio.NewReaderSize(r, MaxLine+2) // with room for "\r\n"
		for n := 1; ; n++ {
			text, tooLong, err := next(in)
			if err != nil && !errors.Is(err, io.EOF) {
				yield(Line{Number: n}, fmt.Errorf("line %d: %w", n, err))
				return
			}
			if tooLong || len(bytes.TrimSpace(text)) > 0 {
				if !yield(parse(n, text, tooLong), nil) {
					return
				}
			}
			if err != nil {
				return
			}
		}
	}
}

// next reads a line. A line that is too long is read to its end and not returned. text is
// valid until the next call.
func next(in *bufio.Reader) (text []byte, tooLong bool, err error) {
	text, err = in.ReadSlice('\n')
	for errors.Is(err, bufio.ErrBufferFull) {
		tooLong = true
		_, err = in.ReadSlice('\n')
	}
	text = bytes.TrimSuffix(bytes.TrimSuffix(text, []byte("\n")), []byte("\r"))
	return text, tooLong || len(text) > MaxLine, err
}

func parse(n int, text []byte, tooLong bool) Line {
	l := Line{Number: n}
	if tooLong {
		l.Problems = []Problem{{Line: n, Problem: fmt.Sprintf("is longer than %d bytes", MaxLine)}}
		return l
	}
	p := parser{line: n}
	l.Adjudication = p.adjudication(text)
	if len(p.problems) == 0 {
		p.check(l.Adjudication)
	}
	l.Problems, l.Unsafe = p.problems, p.unsafe
	return l
}
