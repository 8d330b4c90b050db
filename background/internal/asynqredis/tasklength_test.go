package asynqredis_test

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/recourse-dev/recourse/background/internal/asynqredis"
	"github.com/recourse-dev/recourse/internal/localredis"
)

// A long task, which only somebody with access to Redis can have written, is removed before a process reads it.
// The tasks behind it are delivered. The test also shows that dequeueScript is that of asynq's version.
func TestALongTaskIsRemovedUnread(t *testing.T) {
	t.Parallel()
	server, err := localredis.Start(context.Background(), localredis.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Stop(); err != nil {
			t.Error("stop redis: ", err)
		}
	})
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), Password: server.Password()})
	throttle := asynqredis.NewPollThrottle(asynqredis.NewPipelined(client), time.Millisecond, time.Now)
	defer func() { _ = throttle.Close() }()
	removed := make(chan error, 3)
	throttle.OnLongTask = func(err error) { removed <- err }

	tasks := asynq.NewClientFromRedisClient(client)
	for _, payload := range [][]byte{bytes.Repeat([]byte("x"), 1<<20), []byte("first"), bytes.Repeat([]byte("x"), 1<<20), []byte("second")} {
		if _, err := tasks.Enqueue(asynq.NewTask("t", payload)); err != nil {
			t.Fatal(err)
		}
	}
	delivered := make(chan int, 4)
	worker := asynq.NewServerFromRedisClient(throttle, asynq.Config{Concurrency: 1, TaskCheckInterval: time.Millisecond, LogLevel: asynq.FatalLevel})
	if err := worker.Start(asynq.HandlerFunc(func(_ context.Context, task *asynq.Task) error {
		delivered <- len(task.Payload())
		return nil
	})); err != nil {
		t.Fatal(err)
	}
	defer worker.Shutdown()
	for _, want := range []int{len("first"), len("second")} {
		if got := <-delivered; got != want {
			t.Errorf("a task of %d bytes is delivered, want %d", got, want)
		}
	}
	for range 2 {
		t.Log(<-removed)
	}
	info, err := asynq.NewInspectorFromRedisClient(client).GetQueueInfo("default")
	if err != nil || info.Archived != 0 || info.Pending != 0 {
		t.Errorf("%+v, %v", info, err)
	}
}
