package backgroundtest

import (
	"context"
	"time"

	"github.com/recourse-dev/recourse/background"
)

// Family is a background.Family made of functions. Without a Looks function nobody
// can tell what became of a run.
type Family struct {
	Journal *Journal
	Called  string        // the family's name
	Limit   time.Duration // of one attempt
	Handles func(ctx context.Context, a background.Attempt) background.Result
	Looks   func(ctx context.Context, r background.Run) background.Result
}

// Name implements background.Family.
func (f *Family) Name() string { return f.Called }

// TimeLimit implements background.Family.
func (f *Family) TimeLimit() time.Duration { return f.Limit }

// Handle implements background.Family.
func (f *Family) Handle(ctx context.Context, a background.Attempt) background.Result {
	return f.Handles(ctx, a)
}

// Lookup implements background.Family.
func (f *Family) Lookup(ctx context.Context, r background.Run) background.Result {
	if f.Looks == nil {
		return background.Result{Class: background.Unknown, Failure: &background.Failure{Type: "lookup.none"}}
	}
	return f.Looks(ctx, r)
}

// Record implements background.Family.
func (f *Family) Record(_ context.Context, m background.Move) (background.Run, error) {
	return f.Journal.Record(m)
}
