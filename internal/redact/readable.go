package redact

import (
	"html"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// readableText is a text as a person reads it: digits of every script as ASCII, escapes decoded, no invisible characters.
type readableText struct {
	text []byte
	at   []int // offset of each byte of text in the original, and of its end
}

// maxEntity is the maximum length of an HTML entity.
const maxEntity = 10

// readsAsWritten reports whether readable would return s itself.
func readsAsWritten(s string) bool {
	for i := range len(s) {
		switch c := s[i]; {
		case c >= utf8.RuneSelf, c == '%', c == '\\', c == '&':
			return false
		}
	}
	return true
}

// readable returns s as a person reads it, and whether that differs from s.
func readable(s string) (readableText, bool) {
	if readsAsWritten(s) {
		return readableText{}, false
	}
	v := readableText{text: make([]byte, 0, len(s)), at: make([]int, 0, len(s)+1)}
	differs := false
	for i := 0; i < len(s); {
		r, size := decodeEscape(s[i:])
		if size == 0 {
			r, size = utf8.DecodeRuneInString(s[i:])
		}
		seen := visibleRune(r)
		differs = differs || size != utf8.RuneLen(seen) || seen != r
		if seen >= 0 {
			had := len(v.text)
			v.text = utf8.AppendRune(v.text, seen)
			for range len(v.text) - had {
				v.at = append(v.at, i)
			}
		}
		i += size
	}
	v.at = append(v.at, len(s))
	return v, differs
}

// decodeEscape decodes the escape at the start of s: of a URL, of JSON and its relatives, or of HTML. size is 0 if there
// is none.
func decodeEscape(s string) (r rune, size int) {
	switch {
	case s[0] == '%' && len(s) > 2:
		return hexRune(s[1:3], 3)
	case s[0] == '\\' && len(s) > 1:
		switch {
		case strings.IndexByte("ntr", s[1]) >= 0:
			return ' ', 2
		case s[1] == 'u' && len(s) > 5:
			return hexRune(s[2:6], 6)
		case s[1] == 'x' && len(s) > 3:
			return hexRune(s[2:4], 4)
		}
	case s[0] == '&':
		end := strings.IndexByte(s[:min(len(s), maxEntity)], ';')
		if end < 0 {
			return 0, 0
		}
		text := html.UnescapeString(s[:end+1])
		if r, n := utf8.DecodeRuneInString(text); n == len(text) {
			return r, end + 1
		}
	}
	return 0, 0
}

// hexRune returns the character of a number in an escape of size bytes. A single byte of multi-byte UTF-8 is none.
func hexRune(digits string, size int) (rune, int) {
	n, err := strconv.ParseUint(digits, 16, 32)
	if err != nil || len(digits) == 2 && n >= utf8.RuneSelf || n >= 0xD800 && n < 0xE000 {
		return 0, 0
	}
	return rune(n), size
}

// visibleRune returns the character that a person takes r for; -1 if r is invisible.
func visibleRune(r rune) rune {
	switch {
	case r < ' ':
		return ' '
	case r < utf8.RuneSelf:
		return r
	case 0xFF01 <= r && r <= 0xFF5E: // the full-width forms of ASCII
		return r - 0xFF01 + '!'
	case r == '\u2212' || unicode.Is(unicode.Pd, r):
		return '-'
	case unicode.Is(unicode.Zs, r) || r == '\u2028' || r == '\u2029':
		return ' '
	case unicode.Is(unicode.Cf, r):
		return -1
	case unicode.Is(unicode.Nd, r):
		return '0' + digitOf(r)
	}
	return r
}

// digitOf returns the value of a digit. The digits of a script are in order from zero, and its tables begin with zero.
func digitOf(r rune) rune {
	for _, t := range unicode.Nd.R16 {
		if rune(t.Lo) <= r && r <= rune(t.Hi) {
			return (r - rune(t.Lo)) % 10
		}
	}
	for _, t := range unicode.Nd.R32 {
		if rune(t.Lo) <= r && r <= rune(t.Hi) {
			return (r - rune(t.Lo)) % 10
		}
	}
	return 0
}
