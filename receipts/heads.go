package receipts

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// headsTitle is the first line of a heads file. Another format has another number.
const headsTitle = "recourse heads 1"

// Heads are heads of cases, saved away from the receipts or to be saved.
type Heads map[CaseID]Head

// MarshalText writes the line "recourse heads 1", then a line "<case> <sequence> <base64 of the link>" for
// each case, in the order of their text. A head without receipts is an error: it would prove nothing.
func (heads Heads) MarshalText() ([]byte, error) {
	out := append(make([]byte, 0, 32+100*len(heads)), headsTitle+"\n"...)
	for _, c := range slices.SortedFunc(maps.Keys(heads), compareCases) {
		h := heads[c]
		if h.Seq < 1 || h.Seq > MaxInteger {
			return nil, fmt.Errorf("receipts: head of case %s has the sequence %d", c, h.Seq)
		}
		out = append(appendHead(out, c, h), '\n')
	}
	return out, nil
}

// UnmarshalText reads what MarshalText writes, and nothing else: another order, spelling, or white space, a
// case given twice, or a last line without its end is an error naming the line. It leaves heads as they
// were if it returns an error.
func (heads *Heads) UnmarshalText(text []byte) error {
	rest, ok := bytes.CutPrefix(text, []byte(headsTitle+"\n"))
	if !ok {
		return errors.New("receipts: heads line 1: want \"" + headsTitle + "\"")
	}
	read := make(Heads)
	var last CaseID
	for n := 2; len(rest) > 0; n++ {
		line, after, ended := bytes.Cut(rest, []byte{'\n'})
		if !ended {
			return fmt.Errorf("receipts: heads line %d: cut off", n)
		}
		c, h, err := parseHead(string(line))
		if err != nil {
			return fmt.Errorf("receipts: heads line %d: %w", n, err)
		}
		if n > 2 && compareCases(last, c) >= 0 {
			return fmt.Errorf("receipts: heads line %d: case out of order or repeated", n)
		}
		read[c] = h
		last, rest = c, after
	}
	*heads = read
	return nil
}

func appendHead(dst []byte, c CaseID, h Head) []byte {
	dst = appendUUID(dst, c)
	dst = append(dst, ' ')
	dst = strconv.AppendInt(dst, h.Seq, 10)
	dst = append(dst, ' ')
	return base64.StdEncoding.AppendEncode(dst, h.Link[:])
}

func parseHead(line string) (CaseID, Head, error) {
	var h Head
	words := strings.Split(line, " ")
	if len(words) != 3 {
		return CaseID{}, h, errors.New("want \"<case> <sequence> <link>\"")
	}
	c, err := ParseCaseID(words[0])
	if err != nil {
		return c, h, err
	}
	h.Seq, err = strconv.ParseInt(words[1], 10, 64)
	if err != nil || h.Seq < 1 || h.Seq > MaxInteger {
		return c, h, fmt.Errorf("%.20q is not a sequence", words[1])
	}
	link, err := base64.StdEncoding.DecodeString(words[2])
	if err != nil || len(link) != len(h.Link) {
		return c, h, fmt.Errorf("%.60q is not a link", words[2])
	}
	copy(h.Link[:], link)
	// The parsers above accept "+1", upper case and loose base64; comparing with the written form does not.
	if string(appendHead(nil, c, h)) != line {
		return c, h, errors.New("not written the one way heads are written")
	}
	return c, h, nil
}
