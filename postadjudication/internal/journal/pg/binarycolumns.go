package pg

import (
	"encoding/binary"
	"sync"
	"time"

	"github.com/lib/pq/oid"
)

// BinaryColumns collects rows like TextColumns, but as arrays in the server's binary format, which
// the server need not parse. Only connections of a pool with PoolConfig.Binary accept them.
type BinaryColumns struct {
	cols []binaryColumn
	next int
}

// A binaryColumn is an array of one dimension: its header, then each element with its
// length before it.
type binaryColumn struct {
	buf []byte
	n   uint32
}

const (
	arrayHeader = 20
	emptyArray  = 12
	nullLength  = ^uint32(0)
)

// pgEpoch is the zero of the server's binary times, which count microseconds.
var pgEpoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// newBinaryColumns returns columns of the given element types, without rows.
func newBinaryColumns(types ...oid.Oid) *BinaryColumns {
	c := &BinaryColumns{cols: make([]binaryColumn, len(types))}
	for i, t := range types {
		buf := make([]byte, arrayHeader)
		binary.BigEndian.PutUint32(buf[0:], 1) // dimensions
		binary.BigEndian.PutUint32(buf[8:], uint32(t))
		binary.BigEndian.PutUint32(buf[16:], 1) // lower bound
		c.cols[i].buf = buf
	}
	return c
}

// BinaryLayout is the element types of a statement's columns, with a pool of columns that
// earlier batches have grown: most of what a batch would allocate.
type BinaryLayout struct {
	types []oid.Oid
	spare sync.Pool
}

// NewBinaryLayout returns the layout of columns of the given element types.
func NewBinaryLayout(types ...oid.Oid) *BinaryLayout { return &BinaryLayout{types: types} }

// Get returns columns without rows. The caller puts them back with Put.
func (l *BinaryLayout) Get() *BinaryColumns {
	if c, ok := l.spare.Get().(*BinaryColumns); ok {
		return c
	}
	return newBinaryColumns(l.types...)
}

// Put returns columns to the pool. Call it after the statement that had them as arguments
// has returned: by then the driver has copied them.
func (l *BinaryLayout) Put(c *BinaryColumns) {
	for i := range c.cols {
		c.cols[i].buf, c.cols[i].n = c.cols[i].buf[:arrayHeader], 0
	}
	c.next = 0
	l.spare.Put(c)
}

// Args returns the arrays as statement arguments.
func (c *BinaryColumns) Args() []any {
	out := make([]any, len(c.cols))
	for i := range c.cols {
		col := &c.cols[i]
		if col.n == 0 {
			out[i] = append(make([]byte, 4), col.buf[4:emptyArray]...) // no dimension
			continue
		}
		binary.BigEndian.PutUint32(col.buf[12:], col.n)
		out[i] = col.buf
	}
	return out
}

// cell begins the next element, of length bytes.
func (c *BinaryColumns) cell(length uint32) *binaryColumn {
	col := &c.cols[c.next]
	if c.next++; c.next == len(c.cols) {
		c.next = 0
	}
	col.n++
	col.buf = binary.BigEndian.AppendUint32(col.buf, length)
	return col
}

// Null writes NULL, to a column of any type.
func (c *BinaryColumns) Null() { c.cell(nullLength) }

// Int4 writes an int4.
func (c *BinaryColumns) Int4(v int) {
	col := c.cell(4)
	col.buf = binary.BigEndian.AppendUint32(col.buf, uint32(int32(v)))
}

// Int8 writes an int8.
func (c *BinaryColumns) Int8(v int64) {
	col := c.cell(8)
	col.buf = binary.BigEndian.AppendUint64(col.buf, uint64(v))
}

// Bool writes a bool.
func (c *BinaryColumns) Bool(v bool) {
	col := c.cell(1)
	b := byte(0)
	if v {
		b = 1
	}
	col.buf = append(col.buf, b)
}

// Str writes a text.
func (c *BinaryColumns) Str(s string) {
	col := c.cell(uint32(len(s)))
	col.buf = append(col.buf, s...)
}

// Bytes writes a bytea.
func (c *BinaryColumns) Bytes(v []byte) {
	col := c.cell(uint32(len(v)))
	col.buf = append(col.buf, v...)
}

// ID writes a UUID; the zero id is NULL.
func (c *BinaryColumns) ID(v [16]byte) {
	if v == [16]byte{} {
		c.Null()
		return
	}
	col := c.cell(16)
	col.buf = append(col.buf, v[:]...)
}

// Time writes an instant; the zero time is NULL.
func (c *BinaryColumns) Time(t time.Time) {
	if t.IsZero() {
		c.Null()
		return
	}
	col := c.cell(8)
	col.buf = binary.BigEndian.AppendUint64(col.buf, uint64(t.UnixMicro()-pgEpoch.UnixMicro()))
}
