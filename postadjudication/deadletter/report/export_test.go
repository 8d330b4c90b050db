package report

import (
	"time"

	"github.com/recourse-dev/recourse/postadjudication/internal/journal/search"
)

// What black-box tests need of this package that its users do not.

var DecodeGroupCursor = decodeGroupCursor

// NewGroupCursor returns the cursor of a place in a list of groups.
func NewGroupCursor(place search.GroupCursor, asOf time.Time) groupCursor {
	return groupCursor{place: place, asOf: asOf}
}

// Encode returns a cursor as users get it.
func (c groupCursor) Encode(scope []byte) string { return c.encode(scope) }
