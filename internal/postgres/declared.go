package postgres

import (
	"context"

	"github.com/recourse-dev/recourse/receipts"
)

type selfDeclaredKey struct{}

// WithSelfDeclared gives a context in which every receipt that is written says that the actor is
// whoever typed the name.
func WithSelfDeclared(ctx context.Context) context.Context {
	return context.WithValue(ctx, selfDeclaredKey{}, true)
}

func markSelfDeclared(ctx context.Context, drafts []receipts.Draft) {
	if ctx.Value(selfDeclaredKey{}) == nil {
		return
	}
	for i := range drafts {
		drafts[i].Payload.SelfDeclared = true
	}
}
