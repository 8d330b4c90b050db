package background

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// emptyQueuePolls is for how many polls a queue that was found empty is not asked again,
// and emptyQueuePause for how long where the bells of all processes are heard.
const (
	emptyQueuePolls = 2
	emptyQueuePause = 50 * time.Millisecond
)

// watcherPauses is for how many of these times a caller waits while another watches.
const watcherPauses = 10

// pollThrottle spares Redis the question that every asynq server asks about every queue at
// every poll. A queue that one server found empty is not asked again by any of this
// process for a while, unless a bell is heard. Meanwhile servers wait in their question
// rather than ask it again and again.
type pollThrottle struct {
	redis.UniversalClient
	poll        time.Duration
	now         func() time.Time
	onLostReply func() // called when a question has no answer and may have taken a task

	onReply func(error) // called with what became of each question for a task; nil when it was answered

	// claimsBlocked reports whether this process may claim nothing now. It asks for no task
	// then, so that others get them.
	claimsBlocked func() bool

	mu         sync.Mutex
	pause      time.Duration
	connected  bool                 // bells of all processes
	nextPoll   map[string]time.Time // by queue: empty before
	wakeups    int                  // bells that were heard
	waiting    int                  // callers held back
	hasWatcher bool                 // one of them watches
	changed    chan struct{}        // closed to let them go
}

func newPollThrottle(c redis.UniversalClient, poll time.Duration, now func() time.Time) *pollThrottle {
	return &pollThrottle{
		UniversalClient: c, poll: poll, pause: emptyQueuePolls * poll, now: now, onLostReply: func() {}, onReply: func(error) {}, claimsBlocked: func() bool { return false },
		nextPoll: make(map[string]time.Time), changed: make(chan struct{}),
	}
}

// EvalSha holds back asynq's dequeue script while no queue may have a task or none is to be
// taken, and answers for an empty queue. Every other script passes.
func (i *pollThrottle) EvalSha(ctx context.Context, sha string, keys []string, args ...any) *redis.Cmd {
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
	if i.claimsBlocked() { // last: it may have become so in the wait
		sleep(ctx, emptyQueuePause)
		return failedCmd(ctx, redis.Nil)
	}
	cmd := i.UniversalClient.EvalSha(ctx, sha, keys, args...)
	var answer redis.Error
	if err := cmd.Err(); err != nil && !errors.As(err, &answer) {
		i.onLostReply()
	}
	if err := cmd.Err(); errors.Is(err, redis.Nil) {
		i.onReply(nil)
	} else if ctx.Err() == nil {
		i.onReply(err)
	}
	i.recordPoll(keys[0], errors.Is(cmd.Err(), redis.Nil), wakeupsSeen)
	return cmd
}

// isDequeue recognises asynq's dequeue script by its keys.
func isDequeue(keys []string) bool {
	return len(keys) == 4 && strings.HasSuffix(keys[0], ":pending") && strings.HasSuffix(keys[3], ":lease")
}

// acquirePoll reports whether the queue is to be asked now, and takes the turn of asking.
// rung tells learn whether a bell rang since.
func (i *pollThrottle) acquirePoll(queue string) (poll bool, wakeupsSeen int) {
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

// untilNextPoll is for how long a queue need not be asked; a clock that was set back does
// not make it longer.
func (i *pollThrottle) untilNextPoll(at, now time.Time) time.Duration {
	return min(at.Sub(now), i.pause)
}

func (i *pollThrottle) recordPoll(queue string, empty bool, wakeupsSeen int) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if empty && wakeupsSeen == i.wakeups {
		i.nextPoll[queue] = i.now().Add(i.pause)
	} else {
		i.endWaits() // where one task is, there may be more
	}
}

// wait holds the caller back. The first who waits watches for all: it goes on when
// the next queue may be asked. The others go on when something was found or a bell
// rang, and now and then in case that nobody watches any more.
func (i *pollThrottle) wait(ctx context.Context) {
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

func (i *pollThrottle) enterWait() (remaining time.Duration, changed <-chan struct{}, isWatcher bool) {
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

func (i *pollThrottle) leaveWait(isWatcher bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.waiting--
	if isWatcher {
		i.hasWatcher = false
	}
}

// setConnected sets whether the bells of all processes are heard, and lets all queues be
// asked: bells may have been missed before, and will be missed from now on.
func (i *pollThrottle) setConnected(connected bool) {
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

// wake lets all queues be asked at once.
func (i *pollThrottle) wake() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.wakeups++
	i.endWaits()
}

// endWaits ends all waits. The caller holds the lock.
func (i *pollThrottle) endWaits() {
	clear(i.nextPoll)
	if i.waiting > 0 {
		close(i.changed)
		i.changed = make(chan struct{})
	}
}
