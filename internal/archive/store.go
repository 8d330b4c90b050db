package archive

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"iter"
	"strings"
)

// Store keeps files by name. Names are paths with slashes, made of Segments. It is
// small enough for object storage: a whole object at a time, and a listing by prefix.
// Implementations are safe for concurrent use.
type Store interface {
	// Put keeps the content under the name. When it returns nil the content outlives a
	// crash of everything; when it returns an error, the name may be there with the
	// whole content, or not be there. The same name put again is replaced whole.
	Put(ctx context.Context, name string, content []byte) error
	// Open reads what is kept under a name; fs.ErrNotExist when nothing is.
	Open(ctx context.Context, name string) (io.ReadCloser, error)
	// Names lists what is kept under names that begin with the prefix, in the order of
	// the names.
	Names(ctx context.Context, prefix string) iter.Seq2[string, error]
}

// Remover is a Store that can take back what was put for nothing. What is not there is
// removed.
type Remover interface {
	Remove(ctx context.Context, name string) error
}

// Segment makes one segment of a name out of any text, so that different texts give
// different segments, and none of them leaves its place: lower-case letters, digits,
// dashes and underscores stay, every other byte becomes %XX. What would be too long for
// the name of a file ends in a digest of the whole text instead.
func Segment(text string) string {
	segment := escapeSegment(text)
	if len(segment) <= maxSegment {
		return segment
	}
	whole := sha256.Sum256([]byte(text))
	return segment[:maxSegment-2*sha256.Size] + "=" + hex.EncodeToString(whole[:])
}

// maxSegment leaves room in the 255 bytes that file systems give a name.
const maxSegment = 200

func escapeSegment(text string) string {
	const digits = "0123456789ABCDEF"
	var b strings.Builder
	for i := range len(text) {
		switch c := text[i]; {
		case c >= 'a' && c <= 'z', c >= '0' && c <= '9', c == '-', c == '_':
			b.WriteByte(c)
		default:
			b.WriteByte('%')
			b.WriteByte(digits[c>>4])
			b.WriteByte(digits[c&15])
		}
	}
	return b.String()
}
