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
func InterruptsCall(callCtx context.Context, fn func(context.Context) Result) bool {
	m := &Manager{graceOver: make(chan struct{}), workers: newWorkerPool()}
	defer m.workers.close()
	return m.callWithin(callCtx, time.Minute, fn).interrupted
}

// NewLostReplyHook is the hook that tells of answers that are lost.
func NewLostReplyHook(onLost func()) redis.Hook { return lostReplyHook{onLost} }

// InFlight reports whether a manager holds a run.
func InFlight(m *Manager, id RunID) bool { return m.inFlight.has(id) }

// WithListenOnly marks a context for a connection that only listens.
var WithListenOnly = withListenOnly

// EnqueueWaiting asks asynq to deliver a task that waits.
func EnqueueWaiting(m *Manager, queue, task string) error { return m.enqueueWaiting(queue, task) }

// VerifyTampering notices what was seen of a task if its run is still as it was seen.
func VerifyTampering(ctx context.Context, m *Manager, seen Run, kind string) {
	m.verifyTampering(ctx, seen, kind)
}

// FillAsyncNotifications is many bells that ring beside their callers, until the function it gives.
func FillAsyncNotifications(m *Manager) (end func()) {
	for range cap(m.asyncNotifications) {
		m.asyncNotifications <- struct{}{}
	}
	return func() {
		for range cap(m.asyncNotifications) {
			<-m.asyncNotifications
		}
	}
}

// Suspend makes a manager take its machine for one that was suspended for as long as
// asleep says, in nanoseconds. Call it before Run.
func Suspend(m *Manager, suspendedFor *atomic.Int64) {
	m.clocks = func() instant {
		i := readClocks()
		i.boot += time.Duration(suspendedFor.Load())
		return i
	}
}
