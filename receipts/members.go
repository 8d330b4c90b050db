package receipts

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
)

var errNotCanonicalObject = errors.New("not a canonical object")

// members calls f with each member of a canonical JSON object: its key, which is a plain word, and the text
// of its value.
func members(object []byte, f func(key, value []byte) error) error {
	if len(object) < 2 || object[0] != '{' || object[len(object)-1] != '}' {
		return errNotCanonicalObject
	}
	for rest := object[1 : len(object)-1]; len(rest) > 0; {
		if rest[0] != '"' {
			return errNotCanonicalObject
		}
		end := bytes.IndexByte(rest[1:], '"') + 1
		if end < 1 || end+1 >= len(rest) || rest[end+1] != ':' {
			return errNotCanonicalObject
		}
		key := rest[1:end]
		rest = rest[end+2:]
		n := valueLen(rest)
		if n <= 0 || n < len(rest) && rest[n] != ',' {
			return errNotCanonicalObject
		}
		if err := f(key, rest[:n]); err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
		if n == len(rest) {
			return nil
		}
		rest = rest[n+1:]
	}
	return nil
}

// valueLen returns the length of the value that text begins with; 0 when it has no end.
func valueLen(text []byte) int {
	depth := 0
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '"':
			for i++; i < len(text) && text[i] != '"'; i++ {
				if text[i] == '\\' {
					i++
				}
			}
			if i >= len(text) {
				return 0
			}
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		case ',':
			if depth == 0 {
				return i
			}
		}
	}
	if depth != 0 {
		return 0
	}
	return len(text)
}

// unquoted returns a JSON string without its quotes, escapes as they are.
func unquoted(v []byte) []byte {
	if len(v) < 2 || v[0] != '"' {
		return nil
	}
	return v[1 : len(v)-1]
}

// text reads a JSON string.
func text(v []byte) (s string, err error) {
	if u := unquoted(v); u != nil && bytes.IndexByte(u, '\\') < 0 {
		return string(u), nil
	}
	err = json.Unmarshal(v, &s)
	return s, err
}

// digest reads a SHA-256 from hexadecimal digits.
func digest(into *[32]byte, digits string) error {
	if len(digits) != 2*len(into) {
		return errors.New("is not a SHA-256 in hexadecimal digits")
	}
	var d [32]byte
	var plain [2 * len(d)]byte // avoids an allocation in every submission
	copy(plain[:], digits)
	if _, err := hex.Decode(d[:], plain[:]); err != nil {
		return err
	}
	*into = d
	return nil
}
