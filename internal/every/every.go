// Package every repeats the work of a process at an interval, and logs that it fails without a line for each failure.
package every

import (
	"context"
	"time"

	"go.uber.org/zap"
)

// Loop is work that is repeated at an interval.
type Loop struct {
	Interval time.Duration
	Failures Failures // not used where work returns no error
}

// Run calls work now and at each tick of the interval, until ctx ends. Work is never run twice at once: of the ticks
// during a call the first is kept, and the next call follows at once.
func (l Loop) Run(ctx context.Context, work func(context.Context) error) {
	tick := time.NewTicker(l.Interval)
	defer tick.Stop()
	for l.Failures.Note(ctx, work(ctx)) {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// Failures logs the first failure of a sequence as an error, and the success that ends the sequence. It is used by one
// goroutine. A loop with pauses of its own has it without Loop.
type Failures struct {
	Log    *zap.Logger
	Failed string // message of the first failure
	Again  string // message of the success after it

	failing bool
}

// Note logs the result of one call, and reports whether another one is to follow: ctx has not ended. An error after
// ctx has ended is not logged.
func (f *Failures) Note(ctx context.Context, err error) (goOn bool) {
	if ctx.Err() != nil {
		return false
	}
	switch {
	case err != nil && !f.failing:
		f.Log.Error(f.Failed, zap.Error(err))
	case err == nil && f.failing:
		f.Log.Info(f.Again)
	}
	f.failing = err != nil
	return true
}
