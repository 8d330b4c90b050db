package archive

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"iter"
	"strings"
)

// Store stores files by name. Names are paths with slashes, made of Segments. An object store
// can implement it: whole objects, and a listing by prefix. Implementations are safe for
// concurrent use.
type Store interface {
	// Put stores content under a name and replaces an earlier content. When it returns nil the
	// content is durable. When it returns an error, the name has either the whole content or
	// what it had before.
	Put(ctx context.Context, name string, content []byte) error
	// Open reads the content of a name. It returns fs.ErrNotExist if there is none.
	Open(ctx context.Context, name string) (io.ReadCloser, error)
	// Names lists the names that begin with prefix, in order.
	Names(ctx context.Context, prefix string) iter.Seq2[string, error]
}

// Remover is a Store that can remove a file that turned out to be needless. Removing a
// missing file is no error.
type Remover interface {
	Remove(ctx context.Context, name string) error
}

// Segment returns a segment of a name for any text. Different texts give different segments,
// and a segment has no path separators: lower-case letters, digits, dashes and underscores
// stay, every other byte becomes %XX. A segment that would be longer than maxSegment ends in a
// digest of the whole text.
func Segment(text string) string {
	segment := escapeSegment(text)
	if len(segment) <= maxSegment {
		return segment
	}
	whole := sha256.Sum256([]byte(text))
	return segment[:maxSegment-2*sha256.Size] + "=" + hex.EncodeToString(whole[:])
}

// maxSegment leaves room in the 255 bytes that file systems allow for a name.
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
