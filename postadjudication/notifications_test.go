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
	if rung := d.pendingNotifications(t); rung != 0 {
		t.Errorf("%d bells have rung in a Redis that stands still", rung)
	}
	resume()
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	if rung := d.pendingNotifications(t); rung != n {
		t.Errorf("%d bells have rung when the service is closed, want %d", rung, n)
	}
	next := joinRig(t, r.url, r.redis, r.escrow, oneQueue).startWorkers()
	next.untilNoneLive()
	next.mustAudit()
}
