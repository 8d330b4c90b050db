package redact

import (
	"encoding/base32"
	"encoding/base64"
	"encoding/hex"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	minEncoded     = 18  // a card of 13 digits in base64
	minBase32      = 21  // the same in base32
	minHexText     = 26  // and in hexadecimal
	maxEncoded     = 512 // longer text is a file
	cloudKeyLen    = 40  // of Amazon: 30 bytes in base64
	minKindChanges = 12  // changes between kinds of characters in such a key; a path has few
)

// encoded replaces the base64, base32 or hexadecimal that begins at i if it is a cloud key, or text with a secret in it.
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
	decoded := inBase64(sc, i, end) || inBase32(sc, i, end) || inHex(sc, i, end)
	if !decoded {
		return 0, false
	}
	for padded < len(s) && s[padded] == '=' { // base32 has up to six
		padded++
	}
	return sc.replace(i, padded, RedactedMark), true
}

// inBase64 reports whether s[i:end] is text with a secret, in base64.
func inBase64(sc *scanner, i, end int) bool {
	if end-i < minEncoded || end-i > maxEncoded || !decodesToText(sc.s[i:i+4]) {
		return false
	}
	var buf [maxEncoded]byte
	text, ok := unbase64(buf[:], sc.s[i:end])
	return ok && hasSecret(text)
}

// inBase32 reports whether s[i:end] is text with a secret, in base32.
func inBase32(sc *scanner, i, end int) bool {
	if end-i < minBase32 || end-i > maxEncoded {
		return false
	}
	for _, c := range []byte(sc.s[i:end]) {
		if !isLetter(c) && (c < '2' || c > '7') {
			return false
		}
	}
	text, err := base32.StdEncoding.WithPadding(base32.NoPadding).DecodeString(strings.ToUpper(sc.s[i:end]))
	return err == nil && isText(text) && hasSecret(text)
}

// inHex reports whether s[i:end] is text with a secret, in hexadecimal, also behind "0x".
func inHex(sc *scanner, i, end int) bool {
	word := sc.s[i:end]
	if len(word) > 2 && word[0] == '0' && word[1]|0x20 == 'x' {
		word = word[2:]
	}
	if len(word) < minHexText || len(word) > 2*maxEncoded || len(word)%2 != 0 {
		return false
	}
	for i := 0; i < len(word); i += 2 { // ASCII text: most digests end here
		if word[i] < '2' || word[i] > '7' || !isHex(word[i+1]) {
			return false
		}
	}
	text, err := hex.DecodeString(word)
	return err == nil && isText(text) && hasSecret(text)
}

// hasSecret reports whether there is a secret in decoded text.
func hasSecret(text []byte) bool {
	inside := scanner{s: string(text), issuedOnly: true, inner: true}
	inside.run()
	return inside.out != nil
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
	return buf[:n], isText(buf[:n])
}

// isText reports whether decoded bytes are printable text.
func isText(text []byte) bool {
	if !utf8.Valid(text) {
		return false
	}
	for _, r := range string(text) {
		if !unicode.IsPrint(r) && r != '\n' && r != '\r' && r != '\t' {
			return false
		}
	}
	return true
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
