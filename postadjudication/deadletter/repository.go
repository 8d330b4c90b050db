package deadletter

import (
	"context"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication/casestatus"
	"github.com/recourse-dev/recourse/postadjudication/internal/casework"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/search"
)

// Searcher reads the index of dead letters.
type Searcher struct {
	Journal     *journal.Journal
	Search      *search.Index
	Settlements *casework.SettlementFamily
	Limiter     *Limiter
	RetentionOf func(family, queue string) (age time.Duration, ends bool) // how long open letters of a queue are kept; false: this process has no rule
	RuleReplays func(ctx context.Context, tenant string, runs []background.RunID) (map[background.RunID]casestatus.RuleReplays, error)
	Now         func() time.Time
}

// Repository reads and changes dead letters.
type Repository struct {
	*Searcher
	Applier  *casework.Applier
	Statuses *casestatus.Reader
	Propose  Proposer
}

// Proposer plans a finding that money was moved, and returns an error with the plan.
type Proposer func(ctx context.Context, tenant, actor string, id background.RunID, f casework.Finding, asked casework.LookupSource) error

// Letters lists, inspects and changes dead letters.
type Letters struct {
	s             *Repository
	tenant, actor string
	caughtUp      bool // see CaughtUp
}

// As returns the letters of a tenant, changed in the name of an actor.
func (s *Repository) As(tenant, actor string) Letters {
	return Letters{s: s, tenant: tenant, actor: actor}
}

// CaughtUp waits until the index has everything that any process committed before the call, and returns letters
// whose List, ListRuns and Count do not wait for that again.
func (l Letters) CaughtUp(ctx context.Context) (Letters, error) {
	err := l.catchUp(ctx)
	l.caughtUp = err == nil
	return l, err
}

func (l Letters) catchUp(ctx context.Context) error {
	if l.caughtUp {
		return nil
	}
	return l.s.Search.CatchUp(ctx)
}
