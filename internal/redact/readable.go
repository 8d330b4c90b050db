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

const (
	maxEntity = 10 // characters of an HTML entity
	// quotedPrintable is the length of a byte in quoted-printable, "=34".
	quotedPrintable = 3
)

// readsAsWritten reports whether readable would return s itself.
func readsAsWritten(s string) bool {
	for i := range len(s) {
		switch c := s[i]; {
		case c >= utf8.RuneSelf, c == '%', c == '\\', c == '&', c < ' ' && c != '\t':
			return false
		case c == '=' && i+quotedPrintable < len(s) && s[i+quotedPrintable] == '=':
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
	differs, inRun := false, false
	for i := 0; i < len(s); {
		r, size := decodeEscape(s[i:])
		if s[i] == '=' {
			r, size = decodeQuoted(s[i:], inRun)
		}
		inRun = s[i] == '=' && size > 0
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
		case '0' <= s[1] && s[1] <= '1' && len(s) > 3:
			return numberedRune(s[1:4], 8, 4)
		case s[1] == 'U' && len(s) > 9:
			return hexRune(s[2:10], 10)
		case strings.HasPrefix(s, `\u{`):
			if end := strings.IndexByte(s[:min(len(s), maxEntity)], '}'); end > 0 {
				return hexRune(s[len(`\u{`):end], end+1)
			}
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

// decodeQuoted decodes the byte in quoted-printable at the start of s. "=34" alone is a value: it counts beside
// another.
func decodeQuoted(s string, inRun bool) (rune, int) {
	if len(s) < quotedPrintable || !inRun && (len(s) == quotedPrintable || s[quotedPrintable] != '=') {
		return 0, 0
	}
	return hexRune(s[1:quotedPrintable], quotedPrintable)
}

// hexRune returns the character of a hexadecimal number in an escape of size bytes.
func hexRune(digits string, size int) (rune, int) { return numberedRune(digits, 16, size) }

// numberedRune returns the character of a number in an escape of size bytes. A single byte of multi-byte UTF-8 is none.
func numberedRune(digits string, base, size int) (rune, int) {
	n, err := strconv.ParseUint(digits, base, 32)
	if err != nil || len(digits) == 2 && n >= utf8.RuneSelf || n >= 0xD800 && n < 0xE000 || n > unicode.MaxRune {
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
	case unicode.Is(unicode.No, r):
		return numeral(r)
	}
	return r
}

// numerals are the raised, lowered and circled digits: the first character of a series, and its digit.
var numerals = [...]struct{ first, last, digit rune }{
	{'\u00b9', '\u00b9', 1}, {'\u00b2', '\u00b3', 2}, {'\u2070', '\u2070', 0}, {'\u2074', '\u2079', 4}, {'\u2080', '\u2089', 0},
	{'\u2460', '\u2468', 1}, {'\u2474', '\u247c', 1}, {'\u2488', '\u2490', 1}, {'\u24ea', '\u24ea', 0}, {'\u24f5', '\u24fd', 1},
	{'\u24ff', '\u24ff', 0}, {'\u2776', '\u277e', 1}, {'\u2780', '\u2788', 1}, {'\u278a', '\u2792', 1},
}

// numeral returns the ASCII digit of a raised, lowered or circled one, and r itself if it is none.
func numeral(r rune) rune {
	for _, n := range numerals {
		if n.first <= r && r <= n.last {
			return '0' + n.digit + r - n.first
		}
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
