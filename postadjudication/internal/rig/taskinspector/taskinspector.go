// Package taskinspector gives tests what an operator sees of the asynq tasks of a rig: asynq's
// inspector, and Redis. It is a package of its own because go-redis is slow to compile, and few tests
// look at tasks. Used by tests only.
package taskinspector

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication/internal/rig"
)

// Inspector gives an operator's access: asynq's inspector, and Redis.
type Inspector struct {
	*asynq.Inspector
	Redis *redis.Client
}

// New returns an operator's access to the tasks of a rig.
func New(r *rig.Rig) Inspector {
	d := Inspector{asynq.NewInspector(r.Redis), r.Redis.MakeRedisClient().(*redis.Client)}
	r.T.Cleanup(func() {
		if err := d.Inspector.Close(); err != nil {
			r.T.Errorf("close: %v", err)
		}
		if err := d.Redis.Close(); err != nil {
			r.T.Errorf("close: %v", err)
		}
	})
	return d
}

// InsertArchivedTasks writes tasks that died at a time into asynq's archive, as asynq does.
func (d Inspector) InsertArchivedTasks(t testing.TB, queue string, n int, died time.Time) {
	t.Helper()
	ctx := context.Background()
	pipe := d.Redis.Pipeline()
	pipe.SAdd(ctx, "asynq:queues", queue)
	for i := range n {
		id := fmt.Sprintf("%s.1", background.RunID(uuid.New()))
		pipe.HSet(ctx, "asynq:{"+queue+"}:t:"+id, "msg", "", "state", "archived")
		pipe.ZAdd(ctx, "asynq:{"+queue+"}:archived", redis.Z{Score: float64(died.Unix()), Member: id})
		if i%1000 == 999 || i == n-1 {
			if _, err := pipe.Exec(ctx); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// Archived returns the number of archived tasks of a queue.
func (d Inspector) Archived(t testing.TB, queue string) int {
	t.Helper()
	n, err := d.Redis.ZCard(context.Background(), "asynq:{"+queue+"}:archived").Result()
	if err != nil {
		t.Fatal(err)
	}
	return int(n)
}

// WaitArchived waits until the queues hold a number of archived tasks in all.
func WaitArchived(r *rig.Rig, d Inspector, want int, queues ...string) {
	r.T.Helper()
	r.Wait(fmt.Sprint(want, " tasks are archived"), func() bool {
		n := 0
		for _, q := range queues {
			n += d.Archived(r.T, q)
		}
		return n == want
	})
}

// Pause blocks notifications to Redis until the returned function is called.
func (d Inspector) Pause(t *testing.T) (resume func()) {
	t.Helper()
	ctx := context.Background()
	if err := d.Redis.Do(ctx, "CLIENT", "PAUSE", time.Minute.Milliseconds(), "WRITE").Err(); err != nil {
		t.Fatal(err)
	}
	return func() {
		t.Helper()
		if err := d.Redis.Do(ctx, "CLIENT", "UNPAUSE").Err(); err != nil {
			t.Error(err)
		}
	}
}

// PendingNotifications counts the notifications that wait in Redis.
func (d Inspector) PendingNotifications(t *testing.T) int {
	t.Helper()
	n, err := d.Redis.LLen(context.Background(), "asynq:{"+rig.OnlyQueue+"}:pending").Result()
	if err != nil {
		t.Fatal(err)
	}
	return int(n)
}
