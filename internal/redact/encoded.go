package redact

import (
	"encoding/base64"
	"unicode"
	"unicode/utf8"
)

const (
	minEncoded     = 18  // a card of 13 digits in base64
	maxEncoded     = 512 // longer text is a file
	cloudKeyLen    = 40  // of Amazon: 30 bytes in base64
	minKindChanges = 12  // changes between kinds of characters in such a key; a path has few
)

// encoded replaces the base64 that begins at i if it is a cloud key, or text with a secret in it.
func (sc *scanner) encoded(i int) (int, bool) {
	s := sc.s
	if sc.inner || (i > 0 && isBase64(s[i-1])) {
		return 0, false
	}
	end := i
	for end < len(s) && isBase64(s[end]) {
		end++
	}
	padded := end
	for padded < len(s) && s[padded] == '=' && padded < end+2 {
		padded++
	}
	if end-i == cloudKeyLen && padded == end && kindChanges(s[i:end]) >= minKindChanges {
		return sc.replace(i, end, RedactedMark), true
	}
	if end-i < minEncoded || end-i > maxEncoded || !decodesToText(s[i:i+4]) {
		return 0, false
	}
	var buf [maxEncoded]byte
	text, ok := unbase64(buf[:], s[i:end])
	if !ok {
		return 0, false
	}
	inside := scanner{s: string(text), issuedOnly: true, inner: true}
	inside.run()
	if inside.out == nil {
		return 0, false
	}
	return sc.replace(i, padded, RedactedMark), true
}

// isBase64 reports whether c is in one of the two alphabets.
func isBase64(c byte) bool { return isAlnum(c) || c == '+' || c == '/' || c == '-' || c == '_' }

// decodesToText reports whether four characters of base64 decode to three of ASCII text.
func decodesToText(four string) bool {
	var buf [3]byte
	text, ok := unbase64(buf[:], four)
	return ok && len(text) == len(buf)
}

// unbase64 decodes base64 without padding, and reports whether the result is text.
func unbase64(buf []byte, s string) ([]byte, bool) {
	n, err := base64.RawStdEncoding.Decode(buf, []byte(s))
	if err != nil {
		if n, err = base64.RawURLEncoding.Decode(buf, []byte(s)); err != nil {
			return nil, false
		}
	}
	text := buf[:n]
	if !utf8.Valid(text) {
		return nil, false
	}
	for _, r := range string(text) {
		if !unicode.IsPrint(r) && r != '\n' && r != '\r' && r != '\t' {
			return nil, false
		}
	}
	return text, true
}

// kindChanges counts the changes between lower case, upper case and digits in text of the alphabet of Amazon's keys. It
// returns 0 for another alphabet, or if a kind is missing.
func kindChanges(s string) int {
	count, kinds, last := 0, 0, 0
	for i := range len(s) {
		kind := 0
		switch c := s[i]; {
		case isDigit(c):
			kind = 1
		case 'a' <= c && c <= 'z':
			kind = 2
		case 'A' <= c && c <= 'Z':
			kind = 4
		case c == '-' || c == '_':
			return 0
		}
		kinds |= kind
		if kind != last {
			count++
		}
		last = kind
	}
	if kinds != 7 {
		return 0
	}
	return count
}
