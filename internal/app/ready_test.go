package app_test

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/recourse-dev/recourse/internal/app"
	"github.com/recourse-dev/recourse/internal/testkit"
	"github.com/recourse-dev/recourse/internal/testkit/poll"
)

func TestAPausedQueueIsAHintAndNotUnready(t *testing.T) {
	t.Parallel()
	m := &app.Main{}
	start(t, options(t), m)
	operator := asynq.NewInspector(m.Redis)
	defer func() {
		if err := operator.Close(); err != nil {
			t.Error(err)
		}
	}()
	ctx, stop := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	go func() { ran <- m.Run(ctx) }()
	s, err := m.Service.Submit(t.Context(), adjudication())
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Notify(t.Context()); err != nil { // this registers its queue
		t.Fatal(err)
	}
	queues, err := operator.Queues()
	if err != nil || len(queues) == 0 {
		t.Fatalf("%v, %v", queues, err)
	}
	if err := operator.PauseQueue(queues[0]); err != nil {
		t.Fatal(err)
	}
	poll.Until(t, "the pause is seen", func() bool { return len(m.Service.Health().Paused()) > 0 })
	if status, body := get(t, m.URL+"/readyz"); status != http.StatusOK || !strings.HasPrefix(body, "ok\n") || !strings.Contains(body, queues[0]+" is paused") {
		t.Errorf("%d %q", status, body)
	}
	if status, body := get(t, m.URL+"/readyz", "Accept", "application/json"); status != http.StatusOK || !strings.Contains(body, `"paused_queues":["`+queues[0]+`"]`) {
		t.Errorf("%d %q", status, body)
	}
	client := m.Redis.MakeRedisClient().(redis.UniversalClient)
	defer client.Close() // only used here
	if err := client.Do(t.Context(), "REPLICAOF", "127.0.0.1", "1").Err(); err != nil {
		t.Fatal(err)
	}
	poll.Until(t, "the replica is named in the words of doctor", func() bool {
		status, body := get(t, m.URL+"/readyz")
		return status == http.StatusServiceUnavailable && strings.Contains(body, ": Redis is a replica, which takes no writes")
	})
	stop()
	if err := <-ran; err != nil {
		t.Errorf("run: %v", err)
	}
}

// A breach of conservation needs a person, and does not make a process unready.
func TestABreachIsShownAndNotUnready(t *testing.T) {
	t.Parallel()
	o, m := options(t), &app.Main{}
	start(t, o, m)
	if _, err := m.Service.Submit(t.Context(), adjudication()); err != nil {
		t.Fatal(err)
	}
	db := testkit.OpenAsOwner(t, o.DatabaseURL)
	if _, err := db.Exec(`UPDATE recourse.escrows SET committed = held + 7, breached = 7`); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	go func() { ran <- m.Run(ctx) }()
	poll.Until(t, "the breach is seen, and the process is ready", func() bool {
		status, _ := get(t, m.URL+"/readyz")
		return m.Service.Health().Breaches().Escrows > 0 && status == http.StatusOK
	})
	if status, body := get(t, m.URL+"/readyz"); status != http.StatusOK || !strings.HasPrefix(body, "ok\n") || !strings.Contains(body, "1 escrows that committed more than they hold") {
		t.Errorf("%d %q", status, body)
	}
	if status, body := get(t, m.URL+"/readyz", "Accept", "application/json"); status != http.StatusOK || !strings.Contains(body, `"escrows_beyond_held":1`) {
		t.Errorf("%d %q", status, body)
	}
	stop()
	if err := <-ran; err != nil {
		t.Errorf("run: %v", err)
	}
}

// A process without a key that meets webhooks, and a paused webhook, are ready and say so.
func TestWebhooksAreAHintAndNotUnready(t *testing.T) {
	t.Parallel()
	o, m := options(t), &app.Main{}
	start(t, o, m)
	db := testkit.OpenAsOwner(t, o.DatabaseURL)
	for _, statement := range []string{
		`INSERT INTO recourse.webhooks (id, tenant, version, state, definition, secret, created_at, created_by, changed_at, changed_by, reason)
			SELECT gen_random_uuid(), 'acme', 1, state, '{}', '', now(), 'user:ada', now(), 'user:ada', 'x' FROM unnest(ARRAY['active', 'paused']) AS s(state)`,
		`INSERT INTO recourse.webhook_positions (webhook_id, tenant, version, read_to, pending, failing_since) SELECT id, tenant, 1, 0, '{}', now() - interval '2 hours' FROM recourse.webhooks`,
	} {
		if _, err := db.Exec(statement); err != nil {
			t.Fatal(err)
		}
	}
	status, body := get(t, m.URL+"/readyz")
	for _, line := range []string{"1 webhooks are paused", "has not been accepted since", "1 active webhooks, and this process has no RECOURSE_WEBHOOK_KEY"} {
		if status != http.StatusOK || !strings.HasPrefix(body, "ok\n") || !strings.Contains(body, line) {
			t.Errorf("%d %q", status, body)
		}
	}
	if status, body := get(t, m.URL+"/readyz", "Accept", "application/json"); status != http.StatusOK || !strings.Contains(body, `"webhooks":{"paused":1,"failing_since":`) {
		t.Errorf("%d %q", status, body)
	}
}
