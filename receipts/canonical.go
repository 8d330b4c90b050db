package receipts

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// MaxInteger is the largest integer, and its negative the smallest, that a body may hold: 2^53-1, the limit
// up to which every JSON reader is exact.
const MaxInteger = 1<<53 - 1

// FieldError says which member of a body can't be written, and why. Trying again can't help.
type FieldError struct {
	Field string // the JSON name, as "error.message"
	What  string
}

func (e *FieldError) Error() string { return "receipts: " + e.Field + " " + e.What }

// CleanText returns s with every byte that is not UTF-8, and every U+0000 (which Postgres can't hold),
// replaced by U+FFFD. It is for free text from outside, so that evidence is never refused because of its
// characters. It is not for ids: a changed id is a wrong one.
func CleanText(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}

// canon appends canonical JSON (RFC 8785). Callers pass the members of an object in sorted order. The first
// error is kept, and the output after it is not valid.
type canon struct {
	buf    []byte
	prefix string // of the object being written, for errors
	err    error
}

func (c *canon) fail(key, format string, args ...any) {
	if c.err == nil {
		c.err = &FieldError{Field: c.prefix + key, What: fmt.Sprintf(format, args...)}
	}
}

// key begins a member. Keys are plain ASCII words that need no escaping.
func (c *canon) key(k string) {
	if c.buf[len(c.buf)-1] != '{' {
		c.buf = append(c.buf, ',')
	}
	c.buf = append(c.buf, '"')
	c.buf = append(c.buf, k...)
	c.buf = append(c.buf, '"', ':')
}

func (c *canon) open(k string) {
	c.key(k)
	c.buf = append(c.buf, '{')
}

func (c *canon) close() { c.buf = append(c.buf, '}') }

func (c *canon) text(k, s string) {
	c.key(k)
	c.quote(k, s)
}

func (c *canon) optText(k, s string) {
	if s != "" {
		c.text(k, s)
	}
}

func (c *canon) integer(k string, n int64) {
	if n > MaxInteger || n < -MaxInteger {
		c.fail(k, "is %d, beyond 2^53-1", n)
		return
	}
	c.key(k)
	c.buf = strconv.AppendInt(c.buf, n, 10)
}

func (c *canon) optInteger(k string, n int64) {
	if n != 0 {
		c.integer(k, n)
	}
}

func (c *canon) optTrue(k string, b bool) {
	if b {
		c.key(k)
		c.buf = append(c.buf, "true"...)
	}
}

func (c *canon) id(k string, u [16]byte) {
	c.key(k)
	c.buf = append(c.buf, '"')
	c.buf = appendUUID(c.buf, u)
	c.buf = append(c.buf, '"')
}

func (c *canon) optID(k string, u [16]byte) {
	if u != [16]byte{} {
		c.id(k, u)
	}
}

// time writes t as 2006-01-02T15:04:05.000000Z: always six digits, always UTC, so that equal times are
// equal text.
func (c *canon) time(k string, t time.Time) {
	t = t.UTC()
	year, month, day := t.Date()
	if year < 1 || year > 9999 {
		c.fail(k, "has the year %d, outside 1 to 9999", year)
		return
	}
	hour, minute, second := t.Clock()
	c.key(k)
	b := append(c.buf, '"')
	b = appendDigits(b, year, 4)
	b = append(b, '-')
	b = appendDigits(b, int(month), 2)
	b = append(b, '-')
	b = appendDigits(b, day, 2)
	b = append(b, 'T')
	b = appendDigits(b, hour, 2)
	b = append(b, ':')
	b = appendDigits(b, minute, 2)
	b = append(b, ':')
	b = appendDigits(b, second, 2)
	b = append(b, '.')
	b = appendDigits(b, t.Nanosecond()/1000, 6)
	c.buf = append(b, 'Z', '"')
}

// optTime omits a time that truncates to the zero time: it would not read back as the same time.
func (c *canon) optTime(k string, t time.Time) {
	if !t.Truncate(time.Microsecond).IsZero() {
		c.time(k, t)
	}
}

func appendDigits(dst []byte, n, width int) []byte {
	var d [6]byte
	for i := width - 1; i >= 0; i-- {
		d[i] = byte('0' + n%10)
		n /= 10
	}
	return append(dst, d[:width]...)
}

// quote writes a string that every reader, and Postgres, can read back.
func (c *canon) quote(k, s string) {
	c.buf = AppendText(c.buf, s)
	if strings.IndexByte(s, 0) >= 0 {
		c.fail(k, "holds U+0000, which Postgres can't read back")
	}
	if !utf8.ValidString(s) {
		c.fail(k, "is not valid UTF-8")
	}
}

// AppendText appends s, which must be valid UTF-8, as a JSON string in the form of RFC 8785 section 3.2.2.2:
// the two-character escapes where JSON has one, \u00xx in lower case for the other control characters,
// everything else as it is.
func AppendText(dst []byte, s string) []byte {
	dst = append(dst, '"')
	plain := 0
	for i := 0; i < len(s); i++ {
		b := s[i]
		if b >= 0x20 && b != '"' && b != '\\' {
			continue
		}
		dst = append(dst, s[plain:i]...)
		plain = i + 1
		switch b {
		case '"', '\\':
			dst = append(dst, '\\', b)
		case '\b':
			dst = append(dst, '\\', 'b')
		case '\t':
			dst = append(dst, '\\', 't')
		case '\n':
			dst = append(dst, '\\', 'n')
		case '\f':
			dst = append(dst, '\\', 'f')
		case '\r':
			dst = append(dst, '\\', 'r')
		default:
			const hex = "0123456789abcdef"
			dst = append(dst, '\\', 'u', '0', '0', hex[b>>4], hex[b&15])
		}
	}
	dst = append(dst, s[plain:]...)
	return append(dst, '"')
}
