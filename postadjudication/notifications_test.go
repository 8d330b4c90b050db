package postadjudication

import (
	"context"
	"testing"
	"time"
)

// pause keeps Redis from ringing bells until the function that it gives is called.
func (d asynqInspector) pause(t *testing.T) (resume func()) {
	t.Helper()
	ctx := context.Background()
	if err := d.redis.Do(ctx, "CLIENT", "PAUSE", time.Minute.Milliseconds(), "WRITE").Err(); err != nil {
		t.Fatal(err)
	}
	return func() {
		t.Helper()
		if err := d.redis.Do(ctx, "CLIENT", "UNPAUSE").Err(); err != nil {
			t.Error(err)
		}
	}
}

// pendingNotifications counts the bells that wait in Redis.
func (d asynqInspector) pendingNotifications(t *testing.T) int {
	t.Helper()
	n, err := d.redis.LLen(context.Background(), "asynq:{"+onlyQueue+"}:pending").Result()
	if err != nil {
		t.Fatal(err)
	}
	return int(n)
}

func TestSubmitDoesNotWaitForRedisAndCloseDoes(t *testing.T) {
	t.Parallel()
	r := newRig(t, oneQueue)
	d := r.inspector()
	resume := d.pause(t)
	const n = 3
	for i := range n {
		if s := r.mustSubmit(release(i)); s.Reply != Created {
			t.Errorf("%+v", s)
		}
	}
	if sent := d.pendingNotifications(t); sent != 0 {
		t.Errorf("%d notifications were sent to a Redis that stands still", sent)
	}
	resume()
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	if sent := d.pendingNotifications(t); sent != n {
		t.Errorf("%d notifications were sent when the service is closed, want %d", sent, n)
	}
	next := joinRig(t, r.url, r.redis, r.escrow, oneQueue).startWorkers()
	next.untilNoneLive()
	next.mustAudit()
}
