package postadjudication

import (
	"context"
	"testing"
	"time"
)

// pause keeps Redis from ringing bells until the function that it gives is called.
func (d desk) pause(t *testing.T) (resume func()) {
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

// pending counts the bells that wait in Redis.
func (d desk) pending(t *testing.T) int {
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
	d := r.desk()
	resume := d.pause(t)
	const n = 3
	for i := range n {
		if s := r.mustSubmit(release(i)); s.Reply != Created {
			t.Errorf("%+v", s)
		}
	}
	if ringing := len(r.bells.ringing); ringing != n {
		t.Errorf("%d bells ring when their callers have gone on, want %d", ringing, n)
	}
	if rung := d.pending(t); rung != 0 {
		t.Errorf("%d bells have rung in a Redis that stands still", rung)
	}
	closed := make(chan error, 1)
	go func() { closed <- r.Close() }()
	resume()
	if err := <-closed; err != nil {
		t.Error(err)
	}
	if rung := d.pending(t); rung != n {
		t.Errorf("%d bells have rung when the service is closed, want %d", rung, n)
	}
	next := joinRig(t, r.url, r.redis, r.escrow, oneQueue).work()
	next.atRest()
	next.sound()
}

// Bells that outrun Redis hold back those who submit.
func TestWhereTooManyBellsRingTheCallerRings(t *testing.T) {
	t.Parallel()
	r := newRig(t, oneQueue)
	d := r.desk()
	for range cap(r.bells.ringing) {
		r.bells.ringing <- struct{}{}
	}
	r.mustSubmit(release(1))
	if rung := d.pending(t); rung != 1 {
		t.Errorf("%d bells have rung when the caller goes on", rung)
	}
	for range cap(r.bells.ringing) {
		<-r.bells.ringing
	}
	r.work().atRest()
	r.sound()
}
