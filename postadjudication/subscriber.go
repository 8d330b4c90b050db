package postadjudication

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/recourse-dev/recourse/internal/postgres"
)

const (
	deathPage     = 100              // statements' receipts looked through at once
	slowCallAfter = 10 * time.Second // a call that takes longer is told of in the log
)

// subscriber is one of those who are told of deaths, with its place in the order of
// events.
type subscriber struct {
	set     *subscribers
	deliver func(ctx context.Context, l DeadLetter)
	after   int64
	wake    chan struct{} // somebody died in this process
	stop    context.CancelFunc
	done    chan struct{}
}

// run tells until ctx ends.
func (b *subscriber) run(ctx context.Context) {
	defer close(b.done)
	failing := false
	for pause := eventsPauseMin; ctx.Err() == nil; {
		found, next, err := b.set.journal.Deaths(ctx, b.after, deathPage)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			if !failing {
				b.set.log.Warn("deaths can't be read, trying on", zap.Error(err))
			}
			pause = eventsPauseMax
		case next > b.after:
			pause = eventsPauseMin
		}
		failing = err != nil
		for _, d := range found {
			if ctx.Err() != nil {
				return
			}
			b.deliverOne(ctx, d)
		}
		if more := next > b.after; more {
			b.after = next
			continue
		}
		if sleepOr(ctx, eventsPauseMin, nil) && b.waitWake(ctx, pause) {
			pause = eventsPauseMin
			continue
		}
		pause = min(2*pause, eventsPauseMax)
	}
}

// waitWake pauses, and reports whether it was woken.
func (b *subscriber) waitWake(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	case <-b.wake:
		return true
	}
	return false
}

// deliverOne tells of one death, on a goroutine of its own: one that ends its goroutine ends
// no more than that call.
func (b *subscriber) deliverOne(ctx context.Context, d postgres.DeathEvent) {
	l, err := deadLetterFromReceipt(d)
	if err != nil {
		b.set.failed.Add(1)
		b.set.log.Error("a death can't be told of", zap.String("receipt", d.ID()), zap.Error(err))
		return
	}
	slow := time.AfterFunc(slowCallAfter, func() {
		b.set.log.Warn("a subscriber of dead letters is slow, and falls behind", zap.Stringer("run", l.Run))
	})
	defer slow.Stop()
	returned, ended := false, make(chan struct{})
	go func() {
		defer close(ended)
		defer func() {
			if returned {
				b.set.returned.Add(1)
				return
			}
			b.set.failed.Add(1)
			b.set.log.Error("a subscriber of dead letters panicked", zap.Stringer("run", l.Run), zap.Any("panic", recover()), zap.Stack("stack"))
		}()
		b.deliver(ctx, l)
		returned = true
	}()
	<-ended
}
