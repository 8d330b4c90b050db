package pg

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/lib/pq/oid"
)

// Reused columns contain nothing of earlier rows.
func TestBinaryColumnsAreUsedAgain(t *testing.T) {
	t.Parallel()
	long := make([]byte, 300)
	l := NewBinaryLayout(oid.T_text, oid.T_bytea, oid.T_uuid)
	c := l.Get()
	c.Str("before")
	c.Null()
	l.Put(c)
	id := uuid.New()
	for range 2 {
		c.Str(string(long))
		c.Bytes(long)
		c.ID(id)
	}
	for i, want := range []int{20 + 2*304, 20 + 2*304, 20 + 2*20} {
		got := c.Args()[i].([]byte)
		if len(got) != want || got[15] != 2 || got[3] != 1 {
			t.Errorf("column %d: %d bytes, want %d; header % x", i, len(got), want, got[:20])
		}
	}
	if got := c.Args()[2].([]byte)[24:40]; string(got) != string(id[:]) {
		t.Errorf("id % x, want % x", got, id[:])
	}
}

func TestNoRowsAreEmptyArrays(t *testing.T) {
	t.Parallel()
	c := newBinaryColumns(oid.T_uuid)
	if got := c.Args()[0].([]byte); len(got) != 12 {
		t.Errorf("% x", got)
	}
	c.Time(time.Time{})
	if got := c.Args()[0].([]byte); len(got) != 24 {
		t.Errorf("% x", got)
	}
}
