package background_test

import (
	"context"
	"errors"
	"testing"

	"github.com/hibiken/asynq"

	"github.com/recourse-dev/recourse/background"
)

func (h *fixture) manager() *background.Manager {
	h.t.Helper()
	m, err := background.New(h.config())
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() {
		if err := m.Close(); err != nil {
			h.t.Error(err)
		}
	})
	return m
}

// pending counts the bells that wait in Redis.
func (h *fixture) pending() (n int) {
	h.t.Helper()
	i := asynq.NewInspector(asynq.RedisClientOpt{Addr: h.redis.Addr(), Password: h.redis.Password()})
	queues, err := i.Queues()
	for _, q := range queues {
		info, e := i.GetQueueInfo(q)
		if err = errors.Join(err, e); e == nil {
			n += info.Pending
		}
	}
	if err := errors.Join(err, i.Close()); err != nil {
		h.t.Fatal(err)
	}
	return n
}

func TestNotifyAsyncDoesNotBlockAndCloseDrainsIt(t *testing.T) {
	t.Parallel()
	h := newFixture(t, nil)
	m := h.manager()
	const n = 50
	for range n {
		m.NotifyAsync(t.Context(), h.journal.Submit(background.Run{Family: family, RetryKey: "tx:release", Queue: m.Queue(family, "tx:release"), NotificationNumber: 1}))
	}
	if err := m.Close(); err != nil {
		t.Error(err)
	}
	if sent := h.pending(); sent != n {
		t.Errorf("%d bells have rung when the manager is closed, want %d", sent, n)
	}
}

// Bells that outrun Redis hold back those who commit, for as long as they will wait.
func TestNotifyAsyncIsSynchronousAtItsLimit(t *testing.T) {
	t.Parallel()
	h := newFixture(t, nil)
	m := h.manager()
	defer background.FillAsyncNotifications(m)()
	notify := func(ctx context.Context) {
		m.NotifyAsync(ctx, h.journal.Submit(background.Run{Family: family, RetryKey: "tx:release", Queue: m.Queue(family, "tx:release"), NotificationNumber: 1}))
	}
	notify(t.Context())
	if sent := h.pending(); sent != 1 {
		t.Errorf("%d bells have rung when the caller goes on", sent)
	}
	gone, leave := context.WithCancel(t.Context())
	leave()
	notify(gone)
	if sent := h.pending(); sent != 1 {
		t.Errorf("%d bells have rung, the second for a caller who had left", sent)
	}
}
