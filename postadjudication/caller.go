package postadjudication

import (
	"context"
	"time"

	"github.com/recourse-dev/recourse/internal/postgres"
)

// Caller says how the actor of whatever is done with a context was authenticated. The zero
// Caller says nothing: the actor is as the caller of the method says.
type Caller struct {
	// Key is the prefix of the access key that proves the actor; empty: none does.
	Key string
	// NoKeys says that the door through which it was asked takes everybody without a key, so
	// that nobody can be told from another. Then no second person is asked for, and the
	// receipts say so.
	NoKeys bool
	// SelfDeclared says that the actor is whoever typed the name, as on a command line beside
	// the database. The receipts of what is done say so.
	SelfDeclared bool
	// RefusalDelay is called before a refusal leaves a receipt. When it returns a time to wait, the
	// caller was refused too often: no receipt is left, and the error is a
	// *TooManyRefusalsError. May be nil.
	RefusalDelay func() time.Duration
}

// TooManyRefusalsError says that a caller was refused so often that no more of it is recorded,
// nor told, for a while.
type TooManyRefusalsError struct {
	After time.Duration // until the next one is
}

func (e *TooManyRefusalsError) Error() string {
	return "postadjudication: refused too often; ask again in " + e.After.String()
}

// checkRefusalLimit is a *TooManyRefusalsError when the caller was refused too often.
func (c Caller) checkRefusalLimit() error {
	if c.RefusalDelay == nil {
		return nil
	}
	if wait := c.RefusalDelay(); wait > 0 {
		return &TooManyRefusalsError{wait}
	}
	return nil
}

type callerKey struct{}

// WithCaller gives a context that carries who calls.
func WithCaller(ctx context.Context, c Caller) context.Context {
	if c.SelfDeclared {
		ctx = postgres.WithSelfDeclared(ctx)
	}
	return context.WithValue(ctx, callerKey{}, c)
}

func callerOf(ctx context.Context) Caller {
	c, _ := ctx.Value(callerKey{}).(Caller)
	return c
}
