package background

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// For tests in package background_test.
var NewPipelined = newPipelined

// InterruptsCall makes a call as an attempt does and tells whether it was cut short.
func InterruptsCall(calls context.Context, fn func(context.Context) Result) bool {
	m := &Manager{graceOver: make(chan struct{}), crew: newCrew()}
	defer m.crew.close()
	return m.bounded(calls, time.Minute, fn).interrupted
}

// Unanswered is the hook that tells of answers that are lost.
func Unanswered(lost func()) redis.Hook { return unanswered{lost} }

// ToListen marks a context for a connection that only listens.
var ToListen = toListen

// Promote asks asynq to deliver a task that waits.
func Promote(m *Manager, queue, task string) error { return m.promoteNow(queue, task) }

// Confirm notices what was seen of a task if its run is still as it was seen.
func Confirm(ctx context.Context, m *Manager, seen Run, what string) { m.confirm(ctx, seen, what) }

// Crowd is many bells that ring beside their callers, until the function it gives.
func Crowd(m *Manager) (end func()) {
	for range cap(m.beside) {
		m.beside <- struct{}{}
	}
	return func() {
		for range cap(m.beside) {
			<-m.beside
		}
	}
}

// Suspend makes a manager take its machine for one that was suspended for as long as
// asleep says, in nanoseconds. Call it before Run.
func Suspend(m *Manager, asleep *atomic.Int64) {
	m.clocks = func() instant {
		i := readClocks()
		i.boot += time.Duration(asleep.Load())
		return i
	}
}
