package deadletter

import (
	"iter"
	"maps"
	"time"

	"github.com/recourse-dev/recourse/internal/tenantlimit"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/search"
)

// What black-box tests need of this package that its users do not.

const (
	MaxConditionsPerProcess = maxConditionsPerProcess
	MaxPatterns             = maxPatterns
	MaxPatternProgram       = maxPatternProgram
)

var (
	DecodeLetterCursor = decodeLetterCursor
	ProgramSize        = programSize
)

// ConditionMembers returns the names by which conditions know the members of a letter.
func ConditionMembers() iter.Seq[string] { return maps.Keys(exprMembers) }

// NewLetterCursor returns the cursor of a place in a list.
func NewLetterCursor(place search.Position, asOf time.Time) letterCursor {
	return letterCursor{place: place, asOf: asOf}
}

// Encode returns a cursor as users get it.
func (c letterCursor) Encode(scope []byte) string { return c.encode(scope) }

// Acquire takes the place of a condition of a tenant.
func (l *Limiter) Acquire(tenant string) (release func(), err error) { return l.acquire(tenant) }

// OneProcessor gives evaluations one processor, and returns who gives the turns at it.
func (l *Limiter) OneProcessor() *tenantlimit.Limit {
	l.cpu = tenantlimit.New(1, 1)
	return l.cpu
}
