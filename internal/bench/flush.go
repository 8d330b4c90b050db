package main

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// flushPoll is how often the bells are counted.
const flushPoll = 10 * time.Millisecond

// measureFlush empties Redis under runs that all wait, and takes the time until each has a
// bell again. Those that the workers hold need none.
func (w *measurement) measureFlush(ctx context.Context) error {
	if err := sleep(ctx, warmUp); err != nil {
		return err
	}
	inWorkers := max(400, 4*w.job.Slots) // the deliveries that a process of recourse holds
	wanted := int64(w.job.Tasks - inWorkers)
	if wanted <= 0 {
		return fmt.Errorf("flush needs more pending runs than the %d that a worker holds", inWorkers)
	}
	begun := time.Now()
	if err := w.meter.redis.FlushAll(ctx).Err(); err != nil {
		return err
	}
	for {
		notifications, err := w.countNotifications(ctx)
		if err != nil {
			return err
		}
		if notifications >= wanted {
			w.metrics[renotifiedSeconds] = time.Since(begun).Seconds()
			return nil
		}
		if err := sleep(ctx, flushPoll); err != nil {
			return err
		}
	}
}

// countNotifications counts the tasks that asynq will deliver or is delivering.
func (w *measurement) countNotifications(ctx context.Context) (n int64, err error) {
	queues, err := w.meter.redis.SMembers(ctx, "asynq:queues").Result()
	if err != nil {
		return 0, err
	}
	for _, q := range queues {
		for _, list := range strings.Fields("pending active") {
			some, err := w.meter.redis.LLen(ctx, "asynq:{"+q+"}:"+list).Result()
			if err != nil {
				return 0, err
			}
			n += some
		}
	}
	return n, nil
}
