package backgroundtest

import (
	"context"
	"time"

	"github.com/recourse-dev/recourse/background"
)

// Family is a background.Family made of functions. Without a Looks function nobody
// can tell what became of a run.
type Family struct {
	Journal      *Journal
	FamilyName   string        // the family's name
	AttemptLimit time.Duration // of one attempt
	HandleFunc   func(ctx context.Context, a background.Attempt) background.Result
	LookupFunc   func(ctx context.Context, r background.Run) background.Result
}

// Name implements background.Family.
func (f *Family) Name() string { return f.FamilyName }

// TimeLimit implements background.Family.
func (f *Family) TimeLimit() time.Duration { return f.AttemptLimit }

// Handle implements background.Family.
func (f *Family) Handle(ctx context.Context, a background.Attempt) background.Result {
	return f.HandleFunc(ctx, a)
}

// Lookup implements background.Family.
func (f *Family) Lookup(ctx context.Context, r background.Run) background.Result {
	if f.LookupFunc == nil {
		return background.Result{Class: background.Unknown, Failure: &background.Failure{Type: "lookup.none"}}
	}
	return f.LookupFunc(ctx, r)
}

// Record implements background.Family.
func (f *Family) Record(_ context.Context, tr background.Transition) (background.Run, error) {
	return f.Journal.Record(tr)
}
