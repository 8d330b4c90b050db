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

	"github.com/recourse-dev/recourse/background/internal/asynqredis"
	"github.com/recourse-dev/recourse/internal/failpoint"
)

const (
	// asynq's own counter bounds nothing here: it counts deliveries.
	deliveriesMax = math.MaxInt32
	// deliveryTimeout covers all attempts and waits of one delivery. An attempt is bounded by
	// its family's time limit.
	deliveryTimeout = 24 * time.Hour
)

// notifier sends the notifications of runs.
type notifier struct {
	client  *asynq.Client
	redis   redis.UniversalClient
	wakeups *asynqredis.Wakeups
	sweeper *sweeper
	tracing tracing
	log     *zap.Logger
	baseCtx context.Context // ends at Close
	sending chan struct{}   // one element for each notification being sent in the background
}

// Notify puts the asynq task of a run into its queue. Queue and NotificationNumber must be
// those of the journal. Notify returns nil when the task exists already. On an error the run
// has no notification until the sweeper resends it.
func (m *Manager) Notify(ctx context.Context, r Run) error {
	if r.Remote {
		return nil
	}
	return m.notifier.notify(ctx, r)
}

// NotifyAsync sends the notification of a committed run without blocking the caller. Only when
// Redis is slower than the commits and maxAsyncNotifications are being sent, the caller sends
// it itself, while ctx allows, and so slows down. The sweeper resends a notification that
// fails, or that is lost when this process dies. A dead letter's notification is not resent: then
// asynq's archive, only a copy, lacks it. Close waits for the notifications. A remote run is notified
// of only once it is dead-lettered, so that asynq archives its task.
func (m *Manager) NotifyAsync(ctx context.Context, r Run) {
	if r.Remote && r.State.Live() {
		return
	}
	r.Queue = m.taskQueue(r)
	m.notifier.notifyAsync(ctx, r)
}

// taskQueue returns the asynq queue of the tasks of a run.
func (m *Manager) taskQueue(r Run) string {
	if r.Remote {
		return m.Queue(r.Family, r.RetryKey)
	}
	return r.Queue
}

// notify implements Manager.Notify.
func (n *notifier) notify(ctx context.Context, r Run) error {
	task := asynq.NewTaskWithHeaders(r.Family, []byte(r.ID.String()), n.tracing.headers(ctx))
	failpoint.Hit(failpoint.NotifyBefore, failpoint.Task)
	_, err := n.client.EnqueueContext(ctx, task, asynq.Queue(r.Queue), asynq.TaskID(taskID(r)),
		asynq.MaxRetry(deliveriesMax), asynq.Timeout(deliveryTimeout))
	failpoint.Hit(failpoint.NotifyAfter, failpoint.Task)
	if err == nil || errors.Is(err, asynq.ErrTaskIDConflict) {
		n.wakeups.Wake()
		return nil
	}
	n.sweeper.requestFullScan()
	return fmt.Errorf("background: notify for run %s: %w", r.ID, err)
}

func taskID(r Run) string { return r.ID.String() + "." + strconv.Itoa(r.NotificationNumber) }

// notificationNumberOf returns the notification number in a task id; -1 when the id is not one
// of ours.
func notificationNumberOf(taskID string) int {
	_, number, found := strings.Cut(taskID, ".")
	n, err := strconv.Atoi(number)
	if !found || err != nil || n < 0 {
		return -1
	}
	return n
}

const (
	// maxAsyncNotifications bounds the notifications that NotifyAsync sends in the background.
	maxAsyncNotifications = 512

	// notifyTimeout bounds one notification; after it the sweeper resends.
	notifyTimeout = 5 * time.Second
)

// notifyAsync implements Manager.NotifyAsync.
func (n *notifier) notifyAsync(ctx context.Context, r Run) {
	select {
	case n.sending <- struct{}{}:
		go func() {
			defer func() { <-n.sending }()
			n.notifyOrLog(context.WithoutCancel(ctx), r)
		}()
	default:
		n.notifyOrLog(ctx, r)
	}
}

func (n *notifier) notifyOrLog(ctx context.Context, r Run) {
	ctx, cancel := context.WithTimeout(ctx, notifyTimeout)
	defer cancel()
	if err := n.notify(ctx, r); err != nil {
		n.log.Warn("notification failed, the sweeper resends it while the run waits", zap.Stringer("run", r.ID), zap.Error(err))
	}
}

// drain waits for the notifications being sent; callers send later ones
// themselves.
func (n *notifier) drain() {
	for range cap(n.sending) {
		n.sending <- struct{}{}
	}
}

// redeliverAt gives a delivery back to asynq, to be delivered again at a time.
type redeliverAt struct{ at time.Time }

func (h *redeliverAt) Error() string {
	return "next attempt at " + h.at.UTC().Format(time.RFC3339Nano)
}

// asynqDelayMargin is added to each delay given to asynq. asynq cuts times to whole seconds, so
// without it a task could come early. With it asynq alone is late but never early, and
// dueTimers is on time.
const asynqDelayMargin = time.Second

// enqueueBackoff are the pauses between tries to enqueue a waiting task. The first tries may
// come before asynq has written that the task waits.
var enqueueBackoff = []time.Duration{0, 2 * time.Millisecond, 10 * time.Millisecond, 50 * time.Millisecond, 200 * time.Millisecond}

// dueTimers enqueues a task that waits in asynq at its exact time. Its timers exist in this
// process only; if it ends, asynq's forwarder delivers.
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

// schedule enqueues the task at the time given.
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
	p.log.Debug("waiting task was not enqueued, asynq forwards it", zap.String("task", taskID), zap.Error(err))
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

// enqueueWaitingScript moves a waiting task into its queue, as asynq's Inspector does, but only
// a task that still waits. When a reply is lost and the command is retried, the Inspector would
// run the archived task of a run that has died meanwhile.
//
//	KEYS the task, its queue, the waiting tasks · ARGV the task's id
var enqueueWaitingScript = redis.NewScript(`
if redis.call("ZREM", KEYS[3], ARGV[1]) == 0 then
  return 0
end
redis.call("LPUSH", KEYS[2], ARGV[1])
redis.call("HSET", KEYS[1], "state", "pending")
return 1`)

var errNotWaiting = errors.New("background: no such waiting task")

// enqueueWaiting makes asynq deliver a waiting task now.
func (n *notifier) enqueueWaiting(queue, taskID string) error {
	keys := []string{taskKey(queue, taskID), queueKey(queue, "pending"), queueKey(queue, "retry")}
	enqueued, err := enqueueWaitingScript.Run(n.baseCtx, n.redis, keys, taskID).Int()
	switch {
	case err != nil:
		return fmt.Errorf("background: enqueue task %s: %w", taskID, err)
	case enqueued == 0:
		return errNotWaiting
	}
	n.wakeups.Wake()
	return nil
}
