package postgres

import (
	"context"

	"github.com/recourse-dev/recourse/receipts"
)

type declaredKey struct{}

// Declared gives a context in which every receipt that is written says that the actor is
// whoever typed the name.
func Declared(ctx context.Context) context.Context {
	return context.WithValue(ctx, declaredKey{}, true)
}

func declare(ctx context.Context, drafts []receipts.Draft) {
	if ctx.Value(declaredKey{}) == nil {
		return
	}
	for i := range drafts {
		drafts[i].Payload.SelfDeclared = true
	}
}
