package pg

import (
	"encoding/hex"
	"strconv"
	"time"
)

// TextColumns collects rows as array literals, one per column, for unnest. A row is written by
// calling one method per column, in order; then the next row follows. It uses no reflection
// and does not allocate per value: all rows of the wide statements take this path.
type TextColumns struct {
	text [][]byte
	next int
	Rows int
}

// NewTextColumns returns n columns, with capacity for so many rows of ordinary width.
func NewTextColumns(n, rows int) *TextColumns {
	const width = 40
	c := &TextColumns{text: make([][]byte, n)}
	buf := make([]byte, n*rows*width)
	for i := range c.text {
		c.text[i] = buf[i*rows*width : i*rows*width : (i+1)*rows*width]
	}
	return c
}

// Args returns the literals as statement arguments.
func (c *TextColumns) Args() []any {
	out := make([]any, len(c.text))
	for i, t := range c.text {
		if len(t) == 0 {
			out[i] = "{}"
			continue
		}
		out[i] = string(append(t, '}'))
	}
	return out
}

func (c *TextColumns) cell() *[]byte {
	if c.next == len(c.text) {
		c.next = 0
	}
	if c.next == 0 {
		c.Rows++
	}
	cell := &c.text[c.next]
	c.next++
	if len(*cell) == 0 {
		*cell = append(*cell, '{')
	} else {
		*cell = append(*cell, ',')
	}
	return cell
}

// Null writes NULL.
func (c *TextColumns) Null() { b := c.cell(); *b = append(*b, "NULL"...) }

// Int writes a number.
func (c *TextColumns) Int(v int64) { b := c.cell(); *b = strconv.AppendInt(*b, v, 10) }

// Ints writes an array as one value; an empty one is NULL.
func (c *TextColumns) Ints(vs []int) {
	if len(vs) == 0 {
		c.Null()
		return
	}
	b := c.cell()
	*b = append(*b, `"{`...)
	for i, v := range vs {
		if i > 0 {
			*b = append(*b, ',')
		}
		*b = strconv.AppendInt(*b, int64(v), 10)
	}
	*b = append(*b, `}"`...)
}

// Bool writes a bool.
func (c *TextColumns) Bool(v bool) { b := c.cell(); *b = strconv.AppendBool(*b, v) }

// BoolOrNull writes a bool, or NULL for nil.
func (c *TextColumns) BoolOrNull(v *bool) {
	if v == nil {
		c.Null()
		return
	}
	c.Bool(*v)
}

// Str writes a text.
func (c *TextColumns) Str(s string) {
	b := c.cell()
	*b = append(*b, '"')
	for i := range len(s) {
		if s[i] == '"' || s[i] == '\\' {
			*b = append(*b, '\\')
		}
		*b = append(*b, s[i])
	}
	*b = append(*b, '"')
}

// Bytes writes a bytea.
func (c *TextColumns) Bytes(v []byte) {
	b := c.cell()
	*b = append(*b, `"\\x`...)
	*b = hex.AppendEncode(*b, v)
	*b = append(*b, '"')
}

// ID writes a UUID; the zero id is NULL.
func (c *TextColumns) ID(v [16]byte) {
	if v == [16]byte{} {
		c.Null()
		return
	}
	b := c.cell()
	*b = hex.AppendEncode(*b, v[:])
}

// Time writes an instant; the zero time is NULL.
func (c *TextColumns) Time(t time.Time) {
	if t.IsZero() {
		c.Null()
		return
	}
	b := c.cell()
	*b = append(*b, '"')
	*b = t.UTC().AppendFormat(*b, "2006-01-02T15:04:05.999999Z07:00")
	*b = append(*b, '"')
}
