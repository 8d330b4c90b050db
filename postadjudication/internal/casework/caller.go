package casework

import (
	"context"
	"time"

	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/receipts"
)

// Caller says how the actor of a request was authenticated. With the zero Caller the actor is
// the one that was passed to As.
type Caller struct {
	// Key is the prefix of the access key that proves the actor; empty: none.
	Key string
	// NoKeys says that the server accepts requests without keys, so that people can't be
	// distinguished. Then no second person is required, and the receipts say so.
	NoKeys bool
	// SelfDeclared says that the actor is a name that somebody typed, as on a command line next
	// to the database. The receipts say so.
	SelfDeclared bool
	// ReadsOnlyOf is the principal to whose submissions the caller's reads are limited, with their forks. What another
	// one submitted is not found, and left out of events. Empty: the caller reads the whole tenant.
	ReadsOnlyOf string
	// ReplacesOnlyOf is the principal of the jobs that a unique job of the caller may replace, which cancels them. Any
	// other in its way refuses it. Empty: it may replace each of the tenant.
	ReplacesOnlyOf string
	// RefusalDelay is called before a refusal is recorded as a receipt. If it returns a
	// positive time, the caller was refused too often: no receipt is written, and the error is
	// a *TooManyRefusalsError. May be nil.
	RefusalDelay func() time.Duration
}

// checkRefusalLimit returns a *TooManyRefusalsError if the caller was refused too often.
func (c Caller) checkRefusalLimit() error {
	if c.RefusalDelay == nil {
		return nil
	}
	if wait := c.RefusalDelay(); wait > 0 {
		return &refusal.TooManyRefusalsError{After: wait}
	}
	return nil
}

type callerKey struct{}

// WithCaller returns a context that carries the caller.
func WithCaller(ctx context.Context, c Caller) context.Context {
	if c.SelfDeclared {
		ctx = journal.WithSelfDeclared(ctx)
	}
	return context.WithValue(ctx, callerKey{}, c)
}

// CallerOf returns the caller that a context carries, or the zero Caller.
func CallerOf(ctx context.Context) Caller {
	c, _ := ctx.Value(callerKey{}).(Caller)
	return c
}

// Provenance is what the receipts of a plan's items state of the people behind it.
type Provenance struct {
	PlannedBy, Incident string
	People              int // 1: no second person was required
	Declared            bool
	LookupURL           string // of the escrow service that a self-declared actor named
}

// Stamp sets the people in the payload of a receipt.
func (m Provenance) Stamp(p *receipts.Payload) {
	p.PlannedBy, p.BreakGlass, p.People, p.SelfDeclared, p.LookupURL = m.PlannedBy, m.Incident, m.People, m.Declared, m.LookupURL
}

// RequiredPeople returns how many people it takes to start a plan that states or frees money of a
// tenant, or forks or purges its settlements: 1 for a caller with CallerOf(ctx).NoKeys.
func (c *Applier) RequiredPeople(ctx context.Context, tenant string) (int, error) {
	if CallerOf(ctx).NoKeys {
		return 1, nil
	}
	p, err := c.Journal.People.Get(ctx, tenant)
	return p.People, err
}
