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
	// publishInterval is between two words of one process: the next tells of all bells since.
	publishInterval = 5 * time.Millisecond
	// listenTimeout is after how long a listener asks whether it is still connected, and for
	// how long it waits for the answer.
	listenTimeout = 3 * time.Second
)

// wakeups lets idle workers of all processes ask their queues as soon as a bell rings.
// A word that is lost costs time and nothing else: who does not hear asks more often,
// and who hears asks now and then all the same.
type wakeups struct {
	redis  redis.UniversalClient
	name   string // of this process, to which its own word is no news
	polls  *pollThrottle
	log    *zap.Logger
	ctx    context.Context
	cancel context.CancelFunc

	mu           sync.Mutex
	publishing   bool
	publishAgain bool // a bell rang since the last word
	work         sync.WaitGroup
}

func newWakeups(c redis.UniversalClient, name string, i *pollThrottle, log *zap.Logger) *wakeups {
	w := &wakeups{redis: c, name: name, polls: i, log: log}
	w.ctx, w.cancel = context.WithCancel(context.Background())
	return w
}

// wake lets the servers of this process ask, and tells the others. It does not wait.
func (w *wakeups) wake() {
	w.polls.wake()
	w.requestPublish()
}

func (w *wakeups) requestPublish() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.publishAgain = w.publishing; w.publishing || w.ctx.Err() != nil {
		return
	}
	w.publishing = true
	w.work.Go(w.publish)
}

// publish publishes until no bell has rung since.
func (w *wakeups) publish() {
	for {
		if err := w.redis.Publish(w.ctx, wakeChannel, w.name).Err(); err != nil {
			w.log.Debug("other processes were not told of a bell, they will find it", zap.Error(err))
		}
		running := sleep(w.ctx, publishInterval)
		w.mu.Lock()
		more := w.publishAgain && running
		w.publishAgain, w.publishing = false, more
		w.mu.Unlock()
		if !more {
			return
		}
	}
}

// close returns when nothing is being told any more.
func (w *wakeups) close() {
	w.mu.Lock() // what was begun before is counted
	w.cancel()
	w.mu.Unlock()
	w.work.Wait()
}

// run wakes the servers of this process by the word of others, until ctx ends.
func (w *wakeups) run(ctx context.Context) {
	for ctx.Err() == nil {
		err := w.listen(ctx)
		w.polls.setConnected(false)
		w.log.Debug("bells of other processes are not heard, queues are asked more often", zap.Error(err))
		sleep(ctx, listenTimeout)
	}
}

// listen returns when the connection is lost.
func (w *wakeups) listen(ctx context.Context) error {
	ctx = withListenOnly(ctx)
	subscription := w.redis.Subscribe(ctx, wakeChannel)
	unsubscribe := sync.OnceValue(subscription.Close)
	defer context.AfterFunc(ctx, func() { _ = unsubscribe() })() // it may be lost already
	defer func() { _ = unsubscribe() }()
	for pinged := false; ; {
		message, err := subscription.ReceiveTimeout(ctx, listenTimeout)
		var timeout net.Error
		switch {
		case err == nil:
			pinged = false
			w.receive(message)
		case errors.As(err, &timeout) && timeout.Timeout() && !pinged:
			if err := subscription.Ping(ctx); err != nil {
				return err
			}
			pinged = true
		default:
			return err
		}
	}
}

// receive hears a word. Where a connection begins, this process speaks: only when its own
// word comes back are the words of others believed to come.
func (w *wakeups) receive(message any) {
	switch m := message.(type) {
	case *redis.Subscription:
		w.requestPublish()
	case *redis.Message:
		if m.Payload != w.name {
			w.polls.wake()
			return
		}
		w.polls.setConnected(true)
	}
}
