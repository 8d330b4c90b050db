package background

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"
)

// redeliverAt gives a delivery back to asynq, to be brought again at a time.
type redeliverAt struct{ at time.Time }

func (h *redeliverAt) Error() string {
	return "next attempt at " + h.at.UTC().Format(time.RFC3339Nano)
}

// asynqDelayMargin is what asynq is asked to wait longer than wanted. asynq cuts times to
// whole seconds, so that without it a task could come early; with it asynq alone
// comes late but never early, and the promoter comes in time.
const asynqDelayMargin = time.Second

// enqueueBackoff are the pauses between tries to promote a task. The first tries may
// come before asynq has written that the task waits.
var enqueueBackoff = []time.Duration{0, 2 * time.Millisecond, 10 * time.Millisecond, 50 * time.Millisecond, 200 * time.Millisecond}

// dueTimers moves a task that waits in asynq to the front at its exact time. Its
// timers live in this process only; if it ends, asynq's forwarder delivers.
type dueTimers struct {
	enqueue func(queue, taskID string) error
	now     func() time.Time
	log     *zap.Logger

	mu      sync.Mutex
	timers  map[string]*time.Timer // by task id
	closed  bool
	running sync.WaitGroup
}

func newDueTimers(enqueue func(queue, taskID string) error, now func() time.Time, log *zap.Logger) *dueTimers {
	return &dueTimers{enqueue: enqueue, now: now, log: log, timers: make(map[string]*time.Timer)}
}

// schedule promotes the task at the time given.
func (p *dueTimers) schedule(queue, taskID string, due time.Time) {
	p.startTimer(queue, taskID, due, 0)
}

func (p *dueTimers) startTimer(queue, taskID string, due time.Time, try int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return
	}
	if old := p.timers[taskID]; old != nil && old.Stop() {
		p.running.Done()
	}
	p.running.Add(1)
	var timer *time.Timer
	timer = time.AfterFunc(due.Sub(p.now())+enqueueBackoff[try], func() {
		defer p.running.Done()
		p.mu.Lock()
		if p.timers[taskID] == timer {
			delete(p.timers, taskID)
		}
		p.mu.Unlock()
		p.fire(queue, taskID, due, try)
	})
	p.timers[taskID] = timer
}

func (p *dueTimers) fire(queue, taskID string, due time.Time, try int) {
	if early := due.Sub(p.now()); early > 0 {
		p.startTimer(queue, taskID, due, try) // the clock was set back, or the timer was early
		return
	}
	err := p.enqueue(queue, taskID)
	if err == nil {
		return
	}
	if try+1 < len(enqueueBackoff) {
		p.startTimer(queue, taskID, p.now(), try+1)
		return
	}
	p.log.Debug("task not promoted, asynq will forward it", zap.String("task", taskID), zap.Error(err))
}

// close stops all timers and waits for those that have fired.
func (p *dueTimers) close() {
	p.mu.Lock()
	p.closed = true
	for id, t := range p.timers {
		if t.Stop() {
			p.running.Done()
		}
		delete(p.timers, id)
	}
	p.mu.Unlock()
	p.running.Wait()
}

// enqueueWaitingScript puts a task that waits in asynq into its queue, as asynq's Inspector
// does, but for nothing else than a task that waits: asked again after its answer was
// lost, the Inspector would run the mirror of a run that has died meanwhile.
//
//	KEYS the task, its queue, those that wait · ARGV the task's id
var enqueueWaitingScript = redis.NewScript(`
if redis.call("ZREM", KEYS[3], ARGV[1]) == 0 then
  return 0
end
redis.call("LPUSH", KEYS[2], ARGV[1])
redis.call("HSET", KEYS[1], "state", "pending")
return 1`)

var errNotWaiting = errors.New("background: no such task waits")

// enqueueWaiting has asynq deliver a task that it holds back.
func (m *Manager) enqueueWaiting(queue, taskID string) error {
	keys := []string{taskKey(queue, taskID), queueKey(queue, "pending"), queueKey(queue, "retry")}
	promoted, err := enqueueWaitingScript.Run(m.baseCtx, m.redis, keys, taskID).Int()
	switch {
	case err != nil:
		return fmt.Errorf("background: promote %s: %w", taskID, err)
	case promoted == 0:
		return errNotWaiting
	}
	m.wakeups.wake()
	return nil
}
