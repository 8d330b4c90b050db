package deadletter

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"strings"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/search"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
)

// letterCursor is a position in a list of letters and the time of the first page: the filter's
// ages are relative to it on all pages.
type letterCursor struct {
	place search.Position
	asOf  time.Time
}

const (
	cursorBody = 8 + 8 + 16
	cursorSize = cursorBody + 16
)

// encode formats a cursor with a digest of its body and scope. The digest detects cursors that
// are mixed up or invented by mistake. It is no protection against forgery, which would reveal
// nothing that the filter does not show.
func (c letterCursor) encode(scope []byte) string {
	b := make([]byte, 0, cursorSize)
	b = binary.BigEndian.AppendUint64(b, uint64(c.asOf.UnixMicro()))
	b = binary.BigEndian.AppendUint64(b, uint64(c.place.Value))
	b = append(b, c.place.Run[:]...)
	sum := CursorDigest(b, scope)
	return base64.RawURLEncoding.EncodeToString(append(b, sum[:cursorSize-cursorBody]...))
}

func decodeLetterCursor(text string, scope []byte) (letterCursor, error) {
	b, err := base64.RawURLEncoding.Strict().DecodeString(text)
	// The decoder ignores line ends.
	if err != nil || strings.ContainsAny(text, "\r\n") || len(b) != cursorSize {
		return letterCursor{}, &refusal.FieldError{Field: "after", Problem: "is not a cursor of a list of letters"}
	}
	sum := CursorDigest(b[:cursorBody], scope)
	if string(sum[:cursorSize-cursorBody]) != string(b[cursorBody:]) {
		return letterCursor{}, &refusal.FieldError{Field: "after", Problem: "is a cursor of another list: the tenant, filter and sort must be those that it was given for"}
	}
	return letterCursor{
		asOf:  time.UnixMicro(int64(binary.BigEndian.Uint64(b))).UTC(),
		place: search.Position{Value: int64(binary.BigEndian.Uint64(b[8:])), Run: background.RunID(b[16:cursorBody])},
	}, nil
}

// CursorDigest returns the digest that binds the body of a cursor to its list.
func CursorDigest(body, scope []byte) [sha256.Size]byte {
	h := sha256.New()
	h.Write([]byte("recourse letters 1\x00"))
	h.Write(body)
	h.Write(scope)
	return [sha256.Size]byte(h.Sum(nil))
}

// CursorScope identifies the list that a cursor belongs to.
func CursorScope(tenant string, f Filter, sort Sort) ([]byte, error) {
	filter, err := f.Encode()
	if err != nil {
		return nil, err
	}
	name := binary.BigEndian.AppendUint32(nil, uint32(len(tenant)))
	name = append(append(name, tenant...), sort...)
	return append(append(name, 0), filter...), nil
}
