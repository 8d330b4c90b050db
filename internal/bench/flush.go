package main

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// flushPoll is how often the bells are counted.
const flushPoll = 10 * time.Millisecond

// flush empties Redis under runs that all wait, and takes the time until each has a
// bell again. Those that the workers hold need none.
func (w *watch) flush(ctx context.Context) error {
	if err := sleep(ctx, warmUp); err != nil {
		return err
	}
	held := max(400, 4*w.job.Slots) // the deliveries that a process of recourse holds
	wanted := int64(w.job.Tasks - held)
	if wanted <= 0 {
		return fmt.Errorf("flush needs more pending runs than the %d that a worker holds", held)
	}
	begun := time.Now()
	if err := w.meter.redis.FlushAll(ctx).Err(); err != nil {
		return err
	}
	for {
		bells, err := w.bells(ctx)
		if err != nil {
			return err
		}
		if bells >= wanted {
			w.metrics[rungSeconds] = time.Since(begun).Seconds()
			return nil
		}
		if err := sleep(ctx, flushPoll); err != nil {
			return err
		}
	}
}

// bells counts the tasks that asynq will deliver or is delivering.
func (w *watch) bells(ctx context.Context) (n int64, err error) {
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
