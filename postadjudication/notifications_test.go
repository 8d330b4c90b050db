package postadjudication_test

import (
	"context"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/internal/rig"
)

// pause blocks notifications to Redis until the returned function is called.
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

// pendingNotifications counts the notifications that wait in Redis.
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
	r := rig.New(t, oneQueue)
	d := inspector(r)
	resume := d.pause(t)
	const n = 3
	for i := range n {
		if s := r.MustSubmit(rig.Release(i)); s.Reply != postadjudication.Created {
			t.Errorf("%+v", s)
		}
	}
	if sent := d.pendingNotifications(t); sent != 0 {
		t.Errorf("%d notifications were sent to a Redis that is paused", sent)
	}
	resume()
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	if sent := d.pendingNotifications(t); sent != n {
		t.Errorf("%d notifications were sent when Close returned, want %d", sent, n)
	}
	next := rig.Join(t, r.DatabaseURL, r.Redis, r.Escrow, oneQueue).StartWorkers()
	next.WaitNoneLive()
	next.MustAudit()
}
