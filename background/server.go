package background

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hibiken/asynq"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/recourse-dev/recourse/receipts"
)

const (
	// forwardEvery is how often asynq looks for tasks whose wait is over: only those
	// that no promoter brought in time.
	forwardEvery = 500 * time.Millisecond
	// recordGrace is what deliveries are given past the grace, to record that their
	// attempts were interrupted.
	recordGrace = 5 * time.Second
	// busyDelay is between deliveries of a run to the process that is at it already.
	// It does not grow: another process may be waiting to go on with the run.
	busyDelay = time.Second
	// unavailableDelayMax bounds the pause between deliveries while the journal is away.
	unavailableDelayMax = 8 * time.Second
)

func (m *Manager) startServers() ([]*asynq.Server, error) {
	cfg := m.serverConfig(m.configuredQueues())
	servers := make([]*asynq.Server, 0, m.cfg.Servers)
	for range m.cfg.Servers {
		s := asynq.NewServerFromRedisClient(m.redis, cfg)
		if err := s.Start(asynq.HandlerFunc(m.process)); err != nil {
			return servers, fmt.Errorf("background: start a server: %w", err)
		}
		servers = append(servers, s)
	}
	return servers, nil
}

func (m *Manager) serverConfig(queues map[string]int) asynq.Config {
	level := asynq.ErrorLevel // asynq formats before it asks whether anybody listens
	if m.log.Core().Enabled(zapcore.DebugLevel) {
		level = asynq.DebugLevel
	}
	return asynq.Config{
		Concurrency:              (m.cfg.Deliveries + m.cfg.Servers - 1) / m.cfg.Servers,
		Queues:                   queues,
		TaskCheckInterval:        m.cfg.Poll,
		DelayedTaskCheckInterval: forwardEvery,
		RetryDelayFunc:           m.redeliverIn,
		ErrorHandler:             asynq.ErrorHandlerFunc(m.scheduleRedelivery),
		ShutdownTimeout:          m.cfg.Grace + recordGrace,
		Logger:                   asynqLog{m.log.Sugar()},
		LogLevel:                 level,
	}
}

// shutdown returns when no server holds a delivery. They share a client, which
// they leave open.
func (m *Manager) shutdown(servers []*asynq.Server) {
	var all sync.WaitGroup
	for _, s := range append(servers, m.former.stop()...) {
		all.Go(s.Shutdown)
	}
	all.Wait()
}

// process is asynq's handler. A task names a run and nothing else.
func (m *Manager) process(ctx context.Context, task *asynq.Task) error {
	id, err := receipts.ParseRunID(string(task.Payload()))
	if err != nil {
		return fmt.Errorf("background: not a bell: %w: %w", err, asynq.SkipRetry)
	}
	family := m.families[task.Type()]
	if family == nil {
		return fmt.Errorf("%w: %q: %w", ErrUnknownFamily, task.Type(), asynq.SkipRetry)
	}
	name, _ := asynq.GetTaskID(ctx)
	notificationNumber := notificationNumberOf(name)
	inFlight, first := m.inFlight.acquire(id, notificationNumber)
	if !first {
		if inFlight.isHandedOff() || notificationNumber > inFlight.notificationNumber {
			return errInFlight // what goes on here may end without a task to bring the run again
		}
		return nil
	}
	traceCtx, span := m.tracing.delivery(context.WithoutCancel(ctx), task, id)
	return m.deliver(ctx, &delivery{
		m: m, traceCtx: traceCtx, span: span, family: family, run: Run{ID: id, Family: family.Name()}, notificationNumber: notificationNumber,
		inFlight: inFlight, claimTimeout: make(chan struct{}),
	})
}

// deliver lets the delivery go on when asynq gives it up, because Redis was away
// or an operator cancelled the task: a call in flight is not asynq's to end.
func (m *Manager) deliver(ctx context.Context, d *delivery) error {
	answer := make(chan error, 1)
	m.work.Add(1)
	m.workers.do(func() {
		defer m.work.Done()
		err := d.process()
		d.span.End()
		m.inFlight.release(d.run.ID) // first: once answered, the same task may come again
		answer <- err
	})
	select {
	case err := <-answer:
		return err
	case <-d.claimTimeout:
		d.inFlight.handOff()
		return errUnavailable
	case <-ctx.Done():
		d.inFlight.handOff()
		return ctx.Err()
	}
}

// redeliverIn tells asynq when to bring a task again that was not acknowledged.
func (m *Manager) redeliverIn(deliveries int, cause error, _ *asynq.Task) time.Duration {
	var redelivery *redeliverAt
	switch {
	case errors.As(cause, &redelivery):
		return max(0, redelivery.at.Sub(m.now())) + asynqDelayMargin
	case errors.Is(cause, errInFlight):
		return busyDelay
	case errors.Is(cause, errUnavailable):
		return min(time.Second<<min(deliveries, 3), unavailableDelayMax)
	}
	return 0 // the lease of a lost worker expired: the claim decides
}

// scheduleRedelivery plans the promotion of a task that asynq is about to put back.
func (m *Manager) scheduleRedelivery(ctx context.Context, _ *asynq.Task, cause error) {
	var redelivery *redeliverAt
	if !errors.As(cause, &redelivery) {
		return
	}
	id, okID := asynq.GetTaskID(ctx)
	queue, okQueue := asynq.GetQueueName(ctx)
	if okID && okQueue {
		m.dueTimers.schedule(queue, id, redelivery.at)
	}
}

// asynqLog writes asynq's log into ours. asynq warns about everyday answers, and
// its fatal errors are not the process's.
type asynqLog struct{ log *zap.SugaredLogger }

func (l asynqLog) Debug(args ...any) { l.log.Debug(args...) }
func (l asynqLog) Info(args ...any)  { l.log.Debug(args...) }
func (l asynqLog) Warn(args ...any)  { l.log.Debug(args...) }
func (l asynqLog) Error(args ...any) { l.log.Warn(args...) }
func (l asynqLog) Fatal(args ...any) { l.log.Error(args...) }

// Queue names the asynq queue in which the bells of a run with this retry key
// ring: "<family>:<shard>". The shard is a stable hash of the retry key. It is
// stored with the run, so that more or fewer shards may be configured later: the queues
// that are configured no more are served while live runs name them.
func (m *Manager) Queue(family, retryKey string) string {
	h := fnv.New32a()
	_, _ = h.Write([]byte(retryKey)) // never fails, says hash.Hash
	return queueName(family, int(h.Sum32()%uint32(m.cfg.Shards)))
}

// Queues are the queues in which bells of a family's runs may ring, by shard.
func (m *Manager) Queues(family string) []string {
	all := make([]string, m.cfg.Shards)
	for shard := range all {
		all[shard] = queueName(family, shard)
	}
	return all
}

func queueName(family string, shard int) string { return family + ":" + strconv.Itoa(shard) }

// configuredQueues are the queues of this manager's shards, all of one weight.
func (m *Manager) configuredQueues() map[string]int {
	all := make(map[string]int, len(m.families)*m.cfg.Shards)
	for name := range m.families {
		for shard := range m.cfg.Shards {
			all[queueName(name, shard)] = 1
		}
	}
	return all
}

// servedQueues are the queues that this manager takes runs from, sorted.
func (m *Manager) servedQueues() []string {
	return slices.Sorted(maps.Keys(m.former.addTo(m.configuredQueues())))
}

// taskKey is where asynq keeps a task: a hash whose field "state" says where
// the task stands.
func taskKey(queue, taskID string) string { return queueKey(queue, "t:"+taskID) }

// queueKey is where asynq keeps what a queue has: the list of what is "pending", and
// by time what waits for a "retry", is "scheduled", or "archived".
func queueKey(queue, part string) string { return fmt.Sprintf("asynq:{%s}:%s", queue, part) }

// A family's name becomes part of queue names and of Redis keys.
func validFamily(name string) bool {
	for _, r := range name {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '.', r == '_', r == '-':
		default:
			return false
		}
	}
	return name != ""
}

// formerQueues serves the queues of shards that are configured no more, and that due runs
// of this manager's families still name: else those would wait for ever after a restart
// with fewer shards. A queue is served from when the sweeper meets the first such run
// until the manager ends. Other processes may serve it, too.
type formerQueues struct {
	m *Manager

	mu      sync.Mutex
	servers map[string]*asynq.Server // by queue
	stopped bool
}

// serve serves the queue of a due run if nobody else of this process does.
func (f *formerQueues) serve(r Run) {
	shard, ok := strings.CutPrefix(r.Queue, r.Family+":")
	if n, err := strconv.Atoi(shard); !ok || err != nil || n < f.m.cfg.Shards || f.m.families[r.Family] == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.stopped || f.servers[r.Queue] != nil {
		return
	}
	s := asynq.NewServerFromRedisClient(f.m.redis, f.m.serverConfig(map[string]int{r.Queue: 1}))
	if err := s.Start(asynq.HandlerFunc(f.m.process)); err != nil {
		f.m.log.Error("a queue that is configured no more can't be served; the next sweep tries again", zap.String("queue", r.Queue), zap.Error(err))
		return
	}
	f.servers[r.Queue] = s
	f.m.log.Info("runs wait in a queue that is configured no more; it is served", zap.String("queue", r.Queue))
}

// addTo adds the queues to others, and returns these.
func (f *formerQueues) addTo(queues map[string]int) map[string]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	for queue := range f.servers {
		queues[queue] = 1
	}
	return queues
}

// stop returns the servers, for the caller to shut down. No queue is served any more.
func (f *formerQueues) stop() (servers []*asynq.Server) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stopped = true
	for _, s := range f.servers {
		servers = append(servers, s)
	}
	return servers
}
