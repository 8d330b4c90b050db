package postadjudication

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"strings"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/postgres"
)

// LetterSort is an order of letters. Letters that are alike in it are in the order of
// their run ids, so that the order is the same on every page.
type LetterSort string

// The orders. The zero sort is NewestFirst.
const (
	NewestFirst   LetterSort = "newest" // death
	OldestFirst   LetterSort = "oldest"
	HighestAmount LetterSort = "highest_amount"
	LowestAmount  LetterSort = "lowest_amount"
	MostAttempts  LetterSort = "most_attempts"
	LastSeen      LetterSort = "last_seen" // the newest receipt of its case
)

// LetterSorts are all orders.
var LetterSorts = []LetterSort{NewestFirst, OldestFirst, HighestAmount, LowestAmount, MostAttempts, LastSeen}

var letterOrders = map[LetterSort]postgres.LetterOrder{
	NewestFirst: {Column: postgres.ByDeath, Descending: true}, OldestFirst: {Column: postgres.ByDeath},
	HighestAmount: {Column: postgres.ByAmount, Descending: true}, LowestAmount: {Column: postgres.ByAmount},
	MostAttempts: {Column: postgres.ByAttempts, Descending: true}, LastSeen: {Column: postgres.BySeen, Descending: true},
}

// letterCursor is a place in a list of letters, and the time that the list's filter
// was asked at: its ages are counted from there on all pages.
type letterCursor struct {
	place postgres.LetterPosition
	asOf  time.Time
}

const (
	cursorBody = 8 + 8 + 16
	cursorSize = cursorBody + 16
)

// encode writes a cursor with a digest of itself and of what it belongs to. The
// digest keeps cursors from being mixed up or made up by mistake; who could forge one
// would see nothing that the filter does not show.
func (c letterCursor) encode(scope []byte) string {
	b := make([]byte, 0, cursorSize)
	b = binary.BigEndian.AppendUint64(b, uint64(c.asOf.UnixMicro()))
	b = binary.BigEndian.AppendUint64(b, uint64(c.place.Value))
	b = append(b, c.place.Run[:]...)
	sum := cursorDigest(b, scope)
	return base64.RawURLEncoding.EncodeToString(append(b, sum[:cursorSize-cursorBody]...))
}

func decodeLetterCursor(text string, scope []byte) (letterCursor, error) {
	b, err := base64.RawURLEncoding.Strict().DecodeString(text)
	// The decoder passes over line ends.
	if err != nil || strings.ContainsAny(text, "\r\n") || len(b) != cursorSize {
		return letterCursor{}, &FieldError{Field: "after", Problem: "is no cursor of a list of letters"}
	}
	sum := cursorDigest(b[:cursorBody], scope)
	if string(sum[:cursorSize-cursorBody]) != string(b[cursorBody:]) {
		return letterCursor{}, &FieldError{Field: "after", Problem: "is a cursor of another list: the tenant, filter and sort must be those that it was given for"}
	}
	return letterCursor{
		asOf:  time.UnixMicro(int64(binary.BigEndian.Uint64(b))).UTC(),
		place: postgres.LetterPosition{Value: int64(binary.BigEndian.Uint64(b[8:])), Run: background.RunID(b[16:cursorBody])},
	}, nil
}

func cursorDigest(body, scope []byte) [sha256.Size]byte {
	h := sha256.New()
	h.Write([]byte("recourse letters 1\x00"))
	h.Write(body)
	h.Write(scope)
	return [sha256.Size]byte(h.Sum(nil))
}

// cursorScope says which list a cursor belongs to.
func cursorScope(tenant string, f LetterFilter, sort LetterSort) ([]byte, error) {
	filter, err := f.Encode()
	if err != nil {
		return nil, err
	}
	name := binary.BigEndian.AppendUint32(nil, uint32(len(tenant)))
	name = append(append(name, tenant...), sort...)
	return append(append(name, 0), filter...), nil
}
