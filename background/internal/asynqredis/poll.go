package asynqredis

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// emptyQueuePolls is how many polls skip a queue that was found empty. emptyQueuePause is how
// long it is skipped while the wake-up subscription works.
const (
	emptyQueuePolls = 2
	emptyQueuePause = 50 * time.Millisecond
)

// watcherPauses is how many pauses a caller waits while another one watches.
const watcherPauses = 10

// PollThrottle reduces the dequeue commands sent to Redis: every asynq server polls every
// queue. When one server found a queue empty, no server of this process polls it for a while,
// unless a wake-up arrives. Meanwhile the servers block in their poll instead of repeating it.
type PollThrottle struct {
	redis.UniversalClient
	poll        time.Duration
	now         func() time.Time
	OnLostReply func() // called when a dequeue has no reply and may have taken a task

	OnReply func(error) // called with the result of each dequeue; nil when it was answered

	OnLongTask func(error) // called when a task that is too long was removed; the error has its length

	// ClaimsBlocked reports whether this process may claim nothing now. Then it dequeues no
	// task, so that other processes get them.
	ClaimsBlocked func() bool

	mu         sync.Mutex
	pause      time.Duration
	connected  bool                 // the wake-up subscription works
	nextPoll   map[string]time.Time // by queue, only of empty ones
	wakeups    int                  // wake-ups received
	waiting    int                  // blocked callers
	hasWatcher bool                 // one of them watches
	changed    chan struct{}        // closed to unblock them
}

func NewPollThrottle(c redis.UniversalClient, poll time.Duration, now func() time.Time) *PollThrottle {
	return &PollThrottle{
		UniversalClient: c, poll: poll, pause: emptyQueuePolls * poll, now: now, OnLostReply: func() {}, OnReply: func(error) {}, OnLongTask: func(error) {}, ClaimsBlocked: func() bool { return false },
		nextPoll: make(map[string]time.Time), changed: make(chan struct{}),
	}
}

// EvalSha blocks asynq's dequeue script while no queue may have a task or none may be claimed,
// and returns redis.Nil for an empty queue. Every other script passes.
func (i *PollThrottle) EvalSha(ctx context.Context, sha string, keys []string, args ...any) *redis.Cmd {
	if !isDequeue(keys) {
		return i.UniversalClient.EvalSha(ctx, sha, keys, args...)
	}
	poll, wakeupsSeen := i.acquirePoll(keys[0])
	if !poll {
		i.wait(ctx)
		if poll, wakeupsSeen = i.acquirePoll(keys[0]); !poll {
			return failedCmd(ctx, redis.Nil)
		}
	}
	if i.ClaimsBlocked() { // last: it may have changed during the wait
		sleep(ctx, emptyQueuePause)
		return failedCmd(ctx, redis.Nil)
	}
	cmd := i.dequeue(ctx, sha, keys, args...)
	var answer redis.Error
	if err := cmd.Err(); err != nil && !errors.As(err, &answer) {
		i.OnLostReply()
	}
	if err := cmd.Err(); errors.Is(err, redis.Nil) {
		i.OnReply(nil)
	} else if ctx.Err() == nil {
		i.OnReply(err)
	}
	i.recordPoll(keys[0], errors.Is(cmd.Err(), redis.Nil), wakeupsSeen)
	return cmd
}

// isDequeue reports whether the keys are those of asynq's dequeue script.
func isDequeue(keys []string) bool {
	return len(keys) == 4 && strings.HasSuffix(keys[0], ":pending") && strings.HasSuffix(keys[3], ":lease")
}

// acquirePoll reports whether the caller is to poll the queue now, and delays the next poll.
// wakeupsSeen tells recordPoll whether a wake-up arrived since.
func (i *PollThrottle) acquirePoll(queue string) (poll bool, wakeupsSeen int) {
	i.mu.Lock()
	defer i.mu.Unlock()
	at, empty := i.nextPoll[queue]
	now := i.now()
	if empty && i.untilNextPoll(at, now) > 0 {
		return false, i.wakeups
	}
	if empty {
		i.nextPoll[queue] = now.Add(i.pause)
	}
	return true, i.wakeups
}

// untilNextPoll returns how long a queue need not be polled; setting the clock back does not
// make it longer.
func (i *PollThrottle) untilNextPoll(at, now time.Time) time.Duration {
	return min(at.Sub(now), i.pause)
}

func (i *PollThrottle) recordPoll(queue string, empty bool, wakeupsSeen int) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if empty && wakeupsSeen == i.wakeups {
		i.nextPoll[queue] = i.now().Add(i.pause)
	} else {
		i.endWaits() // there may be more tasks
	}
}

// wait blocks the caller. The first waiter watches for all: it returns when the next queue may
// be polled. The others return when a task was found or a wake-up arrived, and after
// watcherPauses in case that nobody watches any more.
func (i *PollThrottle) wait(ctx context.Context) {
	remaining, changed, isWatcher := i.enterWait()
	defer i.leaveWait(isWatcher)
	if remaining <= 0 {
		return
	}
	timer := time.NewTimer(remaining)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-changed:
	case <-ctx.Done():
	}
}

func (i *PollThrottle) enterWait() (remaining time.Duration, changed <-chan struct{}, isWatcher bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.waiting++
	if i.hasWatcher {
		return watcherPauses * i.pause, i.changed, false
	}
	i.hasWatcher = true
	now, remaining := i.now(), i.pause
	for _, at := range i.nextPoll {
		remaining = min(remaining, i.untilNextPoll(at, now))
	}
	return remaining, i.changed, true
}

func (i *PollThrottle) leaveWait(isWatcher bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.waiting--
	if isWatcher {
		i.hasWatcher = false
	}
}

// setConnected sets whether the wake-up subscription works. When that changes, all queues may
// be polled: wake-ups may have been missed before, or are missed from now on.
func (i *PollThrottle) setConnected(connected bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.pause = emptyQueuePolls * i.poll; connected {
		i.pause = max(i.pause, emptyQueuePause)
	}
	if i.connected == connected {
		return
	}
	i.connected = connected
	i.wakeups++
	i.endWaits()
}

// wake lets all queues be polled at once.
func (i *PollThrottle) wake() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.wakeups++
	i.endWaits()
}

// endWaits unblocks all waiters. The caller holds the lock.
func (i *PollThrottle) endWaits() {
	clear(i.nextPoll)
	if i.waiting > 0 {
		close(i.changed)
		i.changed = make(chan struct{})
	}
}
