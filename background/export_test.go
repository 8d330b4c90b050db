package background

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

var (
	NotificationNumberOf = notificationNumberOf
	TaskID               = taskID
)

// RedisError is an error reply of Redis.
type RedisError string

func (e RedisError) Error() string { return string(e) }

// RedisError tells go-redis that it is one.
func (RedisError) RedisError() {}

// InterruptsCall makes a call as an attempt does and reports whether it was interrupted.
func InterruptsCall(callCtx context.Context, fn func(context.Context) Result) bool {
	c := &handlerCaller{graceOver: make(chan struct{}), workers: newWorkerPool()}
	defer c.workers.close()
	return c.callWithin(callCtx, time.Minute, fn).interrupted
}

// InFlight reports whether a manager holds a run.
func InFlight(m *Manager, id RunID) bool { return m.inFlight.has(id) }

// EnqueueWaiting makes asynq deliver a waiting task.
func EnqueueWaiting(m *Manager, queue, task string) error {
	return m.notifier.enqueueWaiting(queue, task)
}

// VerifyTampering records tampering if the run is unchanged.
func VerifyTampering(ctx context.Context, m *Manager, seen Run, kind string) {
	m.tampering.verify(ctx, seen, kind)
}

// FillAsyncNotifications occupies all background notifications until the returned function is
// called.
func FillAsyncNotifications(m *Manager) (end func()) {
	for range cap(m.notifier.sending) {
		m.notifier.sending <- struct{}{}
	}
	return func() {
		for range cap(m.notifier.sending) {
			<-m.notifier.sending
		}
	}
}

// Suspend makes a manager believe that its machine was suspended for asleep, in nanoseconds. It
// must be called before Run.
func Suspend(m *Manager, suspendedFor *atomic.Int64) {
	m.clocks = func() instant {
		i := readClocks()
		i.boot += time.Duration(suspendedFor.Load())
		return i
	}
}

// LoopStartEvery is the time between the starts of two loops.
const LoopStartEvery = loopStartEvery

// StartLoops starts loops in group as Run does.
func StartLoops(ctx context.Context, group *sync.WaitGroup, loops ...func(context.Context)) {
	readers := staggered{ctx: ctx}
	for _, l := range loops {
		readers.start(group, l)
	}
}
