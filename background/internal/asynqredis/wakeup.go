package asynqredis

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
	// wakeChannel is the channel on which processes announce notifications.
	wakeChannel = "recourse:wakeup"
	// publishInterval is the minimum time between two messages of one process: the next covers
	// all notifications since.
	publishInterval = 5 * time.Millisecond
	// listenTimeout is how long a listener waits for a message before it pings, and for the
	// reply to the ping.
	listenTimeout = 3 * time.Second
)

// Wakeups makes idle servers of all processes poll as soon as a notification is sent. A lost
// message only adds latency: processes without subscription poll faster, and all keep a slow
// poll.
type Wakeups struct {
	redis  redis.UniversalClient
	name   string // of this process, to recognise its own messages
	polls  *PollThrottle
	log    *zap.Logger
	ctx    context.Context
	cancel context.CancelFunc

	mu           sync.Mutex
	publishing   bool
	publishAgain bool // a notification was sent since the last message
	work         sync.WaitGroup
}

func NewWakeups(c redis.UniversalClient, name string, i *PollThrottle, log *zap.Logger) *Wakeups {
	w := &Wakeups{redis: c, name: name, polls: i, log: log}
	w.ctx, w.cancel = context.WithCancel(context.Background())
	return w
}

// Wake makes the servers of this process poll, and publishes to the other processes. It does
// not block.
func (w *Wakeups) Wake() {
	w.polls.wake()
	w.requestPublish()
}

func (w *Wakeups) requestPublish() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.publishAgain = w.publishing; w.publishing || w.ctx.Err() != nil {
		return
	}
	w.publishing = true
	w.work.Go(w.publish)
}

// publish publishes until no notification was sent since the last message.
func (w *Wakeups) publish() {
	for {
		if err := w.redis.Publish(w.ctx, wakeChannel, w.name).Err(); err != nil {
			w.log.Debug("wake-up not published", zap.Error(err))
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

// Close stops publishing and returns when no message is being sent.
func (w *Wakeups) Close() {
	w.mu.Lock() // so that work counts every publisher started before
	w.cancel()
	w.mu.Unlock()
	w.work.Wait()
}

// Run wakes the servers of this process when others publish, until ctx ends.
func (w *Wakeups) Run(ctx context.Context) {
	for ctx.Err() == nil {
		err := w.listen(ctx)
		w.polls.setConnected(false)
		w.log.Debug("wake-up subscription lost, polling more often", zap.Error(err))
		sleep(ctx, listenTimeout)
	}
}

// listen returns when the connection is lost.
func (w *Wakeups) listen(ctx context.Context) error {
	ctx = WithListenOnly(ctx)
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

// receive handles a message. After a subscription this process publishes: the subscription
// counts as working only once its own message comes back.
func (w *Wakeups) receive(message any) {
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

// sleep waits for d. It returns false when ctx ends first.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
