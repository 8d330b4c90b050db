package background

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// idlePolls is for how many polls a queue that was found empty is not asked again,
// and idlePause for how long where the bells of all processes are heard.
const (
	idlePolls = 2
	idlePause = 50 * time.Millisecond
)

// idleRounds is for how many of these times a caller waits while another watches.
const idleRounds = 10

// idle spares Redis the question that every asynq server asks about every queue at
// every poll. A queue that one server found empty is not asked again by any of this
// process for a while, unless a bell is heard. Meanwhile servers wait in their question
// rather than ask it again and again.
type idle struct {
	redis.UniversalClient
	poll time.Duration
	now  func() time.Time
	lost func() // called when a question has no answer and may have taken a task

	asked func(error) // called with what became of each question for a task; nil when it was answered

	// barred reports whether this process may claim nothing now. It asks for no task
	// then, so that others get them.
	barred func() bool

	mu       sync.Mutex
	pause    time.Duration
	hearsAll bool                 // bells of all processes
	askAt    map[string]time.Time // by queue: empty before
	rung     int                  // bells that were heard
	waiting  int                  // callers held back
	watched  bool                 // one of them watches
	changed  chan struct{}        // closed to let them go
}

func newIdle(c redis.UniversalClient, poll time.Duration, now func() time.Time) *idle {
	return &idle{
		UniversalClient: c, poll: poll, pause: idlePolls * poll, now: now, lost: func() {}, asked: func(error) {}, barred: func() bool { return false },
		askAt: make(map[string]time.Time), changed: make(chan struct{}),
	}
}

// EvalSha holds back asynq's dequeue script while no queue may have a task or none is to be
// taken, and answers for an empty queue. Every other script passes.
func (i *idle) EvalSha(ctx context.Context, sha string, keys []string, args ...any) *redis.Cmd {
	if !dequeues(keys) {
		return i.UniversalClient.EvalSha(ctx, sha, keys, args...)
	}
	ask, rung := i.turn(keys[0])
	if !ask {
		i.wait(ctx)
		if ask, rung = i.turn(keys[0]); !ask {
			return failedCmd(ctx, redis.Nil)
		}
	}
	if i.barred() { // last: it may have become so in the wait
		sleep(ctx, idlePause)
		return failedCmd(ctx, redis.Nil)
	}
	cmd := i.UniversalClient.EvalSha(ctx, sha, keys, args...)
	var answer redis.Error
	if err := cmd.Err(); err != nil && !errors.As(err, &answer) {
		i.lost()
	}
	if err := cmd.Err(); errors.Is(err, redis.Nil) {
		i.asked(nil)
	} else if ctx.Err() == nil {
		i.asked(err)
	}
	i.learn(keys[0], cmd.Err() == redis.Nil, rung)
	return cmd
}

// dequeues recognises asynq's dequeue script by its keys.
func dequeues(keys []string) bool {
	return len(keys) == 4 && strings.HasSuffix(keys[0], ":pending") && strings.HasSuffix(keys[3], ":lease")
}

// turn reports whether the queue is to be asked now, and takes the turn of asking.
// rung tells learn whether a bell rang since.
func (i *idle) turn(queue string) (ask bool, rung int) {
	i.mu.Lock()
	defer i.mu.Unlock()
	at, empty := i.askAt[queue]
	now := i.now()
	if empty && i.ahead(at, now) > 0 {
		return false, i.rung
	}
	if empty {
		i.askAt[queue] = now.Add(i.pause)
	}
	return true, i.rung
}

// ahead is for how long a queue need not be asked; a clock that was set back does
// not make it longer.
func (i *idle) ahead(at, now time.Time) time.Duration { return min(at.Sub(now), i.pause) }

func (i *idle) learn(queue string, empty bool, rung int) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if empty && rung == i.rung {
		i.askAt[queue] = i.now().Add(i.pause)
	} else {
		i.rouse() // where one task is, there may be more
	}
}

// wait holds the caller back. The first who waits watches for all: it goes on when
// the next queue may be asked. The others go on when something was found or a bell
// rang, and now and then in case that nobody watches any more.
func (i *idle) wait(ctx context.Context) {
	left, changed, watches := i.stand()
	defer i.leave(watches)
	if left <= 0 {
		return
	}
	timer := time.NewTimer(left)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-changed:
	case <-ctx.Done():
	}
}

func (i *idle) stand() (left time.Duration, changed <-chan struct{}, watches bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.waiting++
	if i.watched {
		return idleRounds * i.pause, i.changed, false
	}
	i.watched = true
	now, left := i.now(), i.pause
	for _, at := range i.askAt {
		left = min(left, i.ahead(at, now))
	}
	return left, i.changed, true
}

func (i *idle) leave(watched bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.waiting--
	if watched {
		i.watched = false
	}
}

// hears sets whether the bells of all processes are heard, and lets all queues be
// asked: bells may have been missed before, and will be missed from now on.
func (i *idle) hears(all bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.pause = idlePolls * i.poll; all {
		i.pause = max(i.pause, idlePause)
	}
	if i.hearsAll == all {
		return
	}
	i.hearsAll = all
	i.rung++
	i.rouse()
}

// ring lets all queues be asked at once.
func (i *idle) ring() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.rung++
	i.rouse()
}

// rouse ends all waits. The caller holds the lock.
func (i *idle) rouse() {
	clear(i.askAt)
	if i.waiting > 0 {
		close(i.changed)
		i.changed = make(chan struct{})
	}
}
