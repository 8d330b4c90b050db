package background_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"go.uber.org/goleak"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/background/backgroundtest"
	"github.com/recourse-dev/recourse/background/circuit"
	"github.com/recourse-dev/recourse/internal/localredis"
	"github.com/recourse-dev/recourse/internal/testkit/poll"
	"github.com/recourse-dev/recourse/receipts"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const family = "pay"

var (
	paid    = background.Result{Class: background.Executed, Moved: 100, Reference: "ref"}
	refused = background.Result{Class: background.NotExecuted, Retry: true,
		Failure: &background.Failure{Type: "http.refused", Message: "connection refused"}}
	vague = background.Result{Class: background.Unknown, Retry: true,
		Failure: &background.Failure{Type: "http.timeout", Message: "no answer"}}
)

// fixture is one Redis, one journal, and any number of managers.
type fixture struct {
	t       *testing.T
	redis   *localredis.Server
	journal *backgroundtest.Journal
	family  *backgroundtest.Family
	calls   atomic.Int64 // handler calls

	inspectorOnce  sync.Once
	asynqInspector *asynq.Inspector
}

func newFixture(t *testing.T, handle func(ctx context.Context, a background.Attempt) background.Result) *fixture {
	t.Helper()
	h := &fixture{t: t, redis: startRedis(t), journal: backgroundtest.NewJournal(1)}
	h.family = &backgroundtest.Family{
		Journal: h.journal, FamilyName: family, AttemptLimit: 5 * time.Second,
		HandleFunc: func(ctx context.Context, a background.Attempt) background.Result {
			h.calls.Add(1)
			return handle(ctx, a)
		},
	}
	return h
}

func (h *fixture) config() background.Config {
	return background.Config{
		Redis: asynq.RedisClientOpt{Addr: h.redis.Addr(), Password: h.redis.Password()}, Store: h.journal, Families: []background.Family{h.family},
		Grace: 2 * time.Second, Servers: 2, Shards: 2,
		Breaker: circuit.Rule{Disabled: true}, // handlers fail on purpose; tests of the breaker enable it
	}
}

// worker is a running manager.
type worker struct {
	*background.Manager
	stop func() // ends Run and waits for it
}

// start runs a manager until the test ends.
func (h *fixture) start(change ...func(*background.Config)) *worker {
	h.t.Helper()
	cfg := h.config()
	for _, c := range change {
		c(&cfg)
	}
	m, err := background.New(cfg)
	if err != nil {
		h.t.Fatal(err)
	}
	return h.run(m)
}

// run runs a manager until the test ends.
func (h *fixture) run(m *background.Manager) *worker {
	h.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := m.Run(ctx); err != nil {
			h.t.Error("Run: ", err)
		}
	})
	w := &worker{Manager: m, stop: func() { cancel(); running.Wait() }}
	h.t.Cleanup(func() {
		w.stop()
		if err := m.Close(); err != nil {
			h.t.Error("Close: ", err)
		}
	})
	return w
}

// submit adds a run to the journal and notifies for it.
func (h *fixture) submit(w *worker, change ...func(*background.Run)) background.Run {
	h.t.Helper()
	r := background.Run{Family: family, RetryKey: "tx:release", Queue: w.Queue(family, "tx:release"), NotificationNumber: 1}
	for _, c := range change {
		c(&r)
	}
	r = h.journal.Submit(r)
	if err := w.Notify(h.t.Context(), r); err != nil {
		h.t.Fatal(err)
	}
	return r
}

// awaitSession waits until a process is registered. Without a session it dequeues nothing.
func (h *fixture) awaitSession() {
	h.t.Helper()
	h.awaitTrue("a session is registered", func() bool {
		sessions, err := h.journal.Sessions(h.t.Context())
		return err == nil && len(sessions) > 0
	})
}

// await waits until ok returns true for a run.
func (h *fixture) await(id background.RunID, what string, ok func(background.Run) bool) background.Run {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(h.t.Context(), time.Minute) // less than deadWorkerTimeout
	defer cancel()
	r, err := h.journal.Await(ctx, id, ok)
	if err != nil {
		h.t.Fatalf("run is not %s but %+v; events %v", what, r, h.events(id))
	}
	return r
}

func (h *fixture) awaitState(id background.RunID, s background.State) background.Run {
	h.t.Helper()
	return h.await(id, string(s), func(r background.Run) bool { return r.State == s })
}

func (h *fixture) events(id background.RunID) []receipts.Subtype {
	var all []receipts.Subtype
	for _, m := range h.journal.Transitions(id) {
		all = append(all, m.Subtype)
	}
	return all
}

// awaitTrue polls a condition that announces no change, such as one of Redis.
func (h *fixture) awaitTrue(what string, ok func() bool) {
	h.t.Helper()
	poll.Until(h.t, what, ok)
}

func (h *fixture) inspector() *asynq.Inspector {
	h.inspectorOnce.Do(func() {
		h.asynqInspector = asynq.NewInspector(asynq.RedisClientOpt{Addr: h.redis.Addr(), Password: h.redis.Password()})
		h.t.Cleanup(func() { _ = h.asynqInspector.Close() })
	})
	return h.asynqInspector
}
