package spec

import (
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Cursor is a place in the list of dead letters, which has the last discarded first, and those of one
// microsecond in the order of their ids: no page repeats or skips one because others come or go.
type Cursor struct {
	DiscardedAt time.Time // to the microsecond
	ID          string    // a UUID in lower case
}

const cursorVersion = "1"

// String returns the cursor as it is on the wire, which ParseCursor reads back. Clients must not
// interpret it.
func (c Cursor) String() string {
	return base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, "%s.%d.%s", cursorVersion, c.DiscardedAt.UnixMicro(), c.ID))
}

const cursorProblem = "must be a next_cursor of this list"

// ParseCursor reads what String writes, and nothing else. The error is an *Error.
func ParseCursor(text string) (Cursor, error) {
	wrong := Invalid("cursor", cursorProblem)
	if len(text) > 128 {
		return Cursor{}, wrong
	}
	raw, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil {
		return Cursor{}, wrong
	}
	parts := strings.Split(string(raw), ".")
	if len(parts) != 3 || parts[0] != cursorVersion {
		return Cursor{}, wrong
	}
	micros, err := strconv.ParseInt(parts[1], 10, 64)
	_, isID := canonicalUUID(parts[2])
	c := Cursor{time.UnixMicro(micros).UTC(), parts[2]}
	if err != nil || !isID || !inRange(c.DiscardedAt) || c.String() != text {
		return Cursor{}, wrong
	}
	return c, nil
}

func isDigits(s string) bool {
	return s != "" && strings.Trim(s, "0123456789") == ""
}

// isPlain reports whether a store can hold a text.
func isPlain(s string) bool { return utf8.ValidString(s) && strings.IndexByte(s, 0) < 0 }
