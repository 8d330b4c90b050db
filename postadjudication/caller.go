package postadjudication

import (
	"context"

	"github.com/recourse-dev/recourse/internal/postgres"
)

// Caller says how it is known who acts: who the actor of what is done with a context is. The
// zero Caller knows nothing: the actor is as the caller of the method says.
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
}

type callerKey struct{}

// WithCaller gives a context that carries who calls.
func WithCaller(ctx context.Context, c Caller) context.Context {
	if c.SelfDeclared {
		ctx = postgres.Declared(ctx)
	}
	return context.WithValue(ctx, callerKey{}, c)
}

func callerOf(ctx context.Context) Caller {
	c, _ := ctx.Value(callerKey{}).(Caller)
	return c
}
