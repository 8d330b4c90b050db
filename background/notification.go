package background

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"github.com/recourse-dev/recourse/internal/failpoint"
)

const (
	// asynq's own counter bounds nothing here: it counts deliveries.
	deliveriesMax = math.MaxInt32
	// deliveryTimeout covers all attempts and waits of one delivery; what bounds an
	// attempt is its family's time limit.
	deliveryTimeout = 24 * time.Hour
)

// Notify rings for a run: it puts the asynq task that brings the run to a worker.
// The run's Queue and Bell are those of the journal. A bell that rings already
// is rung. On an error the run stays without a bell until the sweeper finds it.
func (m *Manager) Notify(ctx context.Context, r Run) error {
	task := asynq.NewTaskWithHeaders(r.Family, []byte(r.ID.String()), m.tracing.headers(ctx))
	failpoint.Hit(failpoint.NotifyBefore, failpoint.Task)
	_, err := m.client.EnqueueContext(ctx, task, asynq.Queue(r.Queue), asynq.TaskID(taskID(r)),
		asynq.MaxRetry(deliveriesMax), asynq.Timeout(deliveryTimeout))
	failpoint.Hit(failpoint.NotifyAfter, failpoint.Task)
	if err == nil || errors.Is(err, asynq.ErrTaskIDConflict) {
		m.wakeups.wake()
		return nil
	}
	m.sweeper.requestFullScan()
	return fmt.Errorf("background: ring for run %s: %w", r.ID, err)
}

func taskID(r Run) string { return r.ID.String() + "." + strconv.Itoa(r.NotificationNumber) }

// notificationNumberOf reads the bell number out of a task id; -1 when it is not one of ours.
func notificationNumberOf(taskID string) int {
	_, number, found := strings.Cut(taskID, ".")
	n, err := strconv.Atoi(number)
	if !found || err != nil || n < 0 {
		return -1
	}
	return n
}

const (
	// maxAsyncNotifications bounds the bells that ring beside those whose runs they ring for.
	maxAsyncNotifications = 512

	// notifyTimeout is how long a bell may take before it is the sweeper's.
	notifyTimeout = 5 * time.Second
)

// NotifyAsync rings for a run that is committed, and does not keep the caller waiting.
// Only where Redis is slower than the commits, and too many bells ring already, does
// the caller ring, for as long as ctx allows, and so come back more slowly. A bell
// that fails is the sweeper's, as is one that this process took along when it died;
// only a letter then goes without its mirror, which is but a picture. Close waits for
// the bells.
func (m *Manager) NotifyAsync(ctx context.Context, r Run) {
	select {
	case m.asyncNotifications <- struct{}{}:
		go func() {
			defer func() { <-m.asyncNotifications }()
			m.notifyOrLog(context.WithoutCancel(ctx), r)
		}()
	default:
		m.notifyOrLog(ctx, r)
	}
}

func (m *Manager) notifyOrLog(ctx context.Context, r Run) {
	ctx, cancel := context.WithTimeout(ctx, notifyTimeout)
	defer cancel()
	if err := m.Notify(ctx, r); err != nil {
		m.log.Warn("a bell failed, the sweeper will ring if the run waits", zap.Stringer("run", r.ID), zap.Error(err))
	}
}

// drainNotifications waits for the bells that ring; later ones are rung by their callers.
func (m *Manager) drainNotifications() {
	for range cap(m.asyncNotifications) {
		m.asyncNotifications <- struct{}{}
	}
}

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
