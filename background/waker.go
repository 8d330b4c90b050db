package background

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"
)

const (
	// wakeChannel is where processes tell each other that a bell rang.
	wakeChannel = "recourse:bell"
	// wakePause is between two words of one process: the next tells of all bells since.
	wakePause = 5 * time.Millisecond
	// silence is after how long a listener asks whether it is still connected, and for
	// how long it waits for the answer.
	silence = 3 * time.Second
)

// waker lets idle workers of all processes ask their queues as soon as a bell rings.
// A word that is lost costs time and nothing else: who does not hear asks more often,
// and who hears asks now and then all the same.
type waker struct {
	redis redis.UniversalClient
	name  string // of this process, to which its own word is no news
	idle  *idle
	log   *zap.Logger
	life  context.Context
	end   context.CancelFunc

	mu      sync.Mutex
	telling bool
	again   bool // a bell rang since the last word
	work    sync.WaitGroup
}

func newWaker(c redis.UniversalClient, name string, i *idle, log *zap.Logger) *waker {
	w := &waker{redis: c, name: name, idle: i, log: log}
	w.life, w.end = context.WithCancel(context.Background())
	return w
}

// ring lets the servers of this process ask, and tells the others. It does not wait.
func (w *waker) ring() {
	w.idle.ring()
	w.speak()
}

func (w *waker) speak() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.again = w.telling; w.telling || w.life.Err() != nil {
		return
	}
	w.telling = true
	w.work.Go(w.tell)
}

// tell publishes until no bell has rung since.
func (w *waker) tell() {
	for {
		if err := w.redis.Publish(w.life, wakeChannel, w.name).Err(); err != nil {
			w.log.Debug("other processes were not told of a bell, they will find it", zap.Error(err))
		}
		alive := sleep(w.life, wakePause)
		w.mu.Lock()
		more := w.again && alive
		w.again, w.telling = false, more
		w.mu.Unlock()
		if !more {
			return
		}
	}
}

// close returns when nothing is being told any more.
func (w *waker) close() {
	w.mu.Lock() // what was begun before is counted
	w.end()
	w.mu.Unlock()
	w.work.Wait()
}

// hear wakes the servers of this process by the word of others, until ctx ends.
func (w *waker) hear(ctx context.Context) {
	for ctx.Err() == nil {
		err := w.listen(ctx)
		w.idle.hears(false)
		w.log.Debug("bells of other processes are not heard, queues are asked more often", zap.Error(err))
		sleep(ctx, silence)
	}
}

// listen returns when the connection is lost.
func (w *waker) listen(ctx context.Context) error {
	ctx = toListen(ctx)
	words := w.redis.Subscribe(ctx, wakeChannel)
	hangUp := sync.OnceValue(words.Close)
	defer context.AfterFunc(ctx, func() { _ = hangUp() })() // it may be lost already
	defer func() { _ = hangUp() }()
	for asked := false; ; {
		word, err := words.ReceiveTimeout(ctx, silence)
		var quiet net.Error
		switch {
		case err == nil:
			asked = false
			w.take(word)
		case errors.As(err, &quiet) && quiet.Timeout() && !asked:
			if err := words.Ping(ctx); err != nil {
				return err
			}
			asked = true
		default:
			return err
		}
	}
}

// take hears a word. Where a connection begins, this process speaks: only when its own
// word comes back are the words of others believed to come.
func (w *waker) take(word any) {
	switch m := word.(type) {
	case *redis.Subscription:
		w.speak()
	case *redis.Message:
		if m.Payload != w.name {
			w.idle.ring()
			return
		}
		w.idle.hears(true)
	}
}
