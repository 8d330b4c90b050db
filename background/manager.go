package background

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/zap"

	"github.com/recourse-dev/recourse/background/circuit"
	"github.com/recourse-dev/recourse/background/internal/asynqredis"
)

// Config configures a manager. Redis, Store and at least one family are required; every other
// field has a default.
type Config struct {
	Redis    asynq.RedisConnOpt // one server, one behind Sentinel, or a Cluster
	Store    Store
	Database string // identity of the journal; a Redis that carries the notifications of another one is refused; not checked when empty
	Families []Family
	Leases   LeaseStore // of remote runs; nil: there are none
	// Targets are the targets that the handlers call, by family name. A family that is not a key
	// calls any target. Sessions show them, and this process leads no other circuit breaker of
	// the family.
	Targets map[string][]string
	// SharedBreakers maps a target, without tenant, to the target of the same family whose
	// circuit breaker it uses, because both are one endpoint. The store must be configured
	// alike.
	SharedBreakers map[circuit.Scope]string

	Slots         int           // handler calls at one time; 64
	Servers       int           // asynq servers, each dequeues one task per round trip; 4
	Deliveries    int           // deliveries at one time, waiting ones included; max(400, 4*Slots)
	Shards        int           // queues of each family; 2
	Poll          time.Duration // pause of a server that found its queues empty; an empty queue is skipped for two polls, for 50ms while the wake-up subscription works; 5ms
	Grace         time.Duration // time for attempts in flight to end at shutdown; 10s
	SweepEvery    time.Duration // interval of the sweeper; 1s
	LostAfter     time.Duration // a process without heartbeat for this long is lost; 15s
	BeatEvery     time.Duration // interval of heartbeats; LostAfter/15
	BeatGrace     time.Duration // calls are cancelled after this long without an answered heartbeat; 2/3 of LostAfter
	MaxRecoveries int           // a run is recovered from so many lost workers; the next loss dead-letters it; 5
	Breaker       circuit.Rule  // when circuit breakers open by themselves, and how they probe

	Worker          string                        // name of this process in receipts; "worker"
	Logger          *zap.Logger                   // nothing is logged when nil
	Now             func() time.Time              // clock of this machine, measured against the database's; time.Now
	ClockSimulated  bool                          // Now is used as it is and never measured
	Tracer          trace.TracerProvider          // nothing is traced when nil
	ClaimsBlocked   func() error                  // why nothing may be claimed, or nil; never blocks when nil
	NewID           func() uuid.UUID              // ids of transitions and tokens of claims; random
	OnTransition    func(m Transition, after Run) // called after each commit; it must not block
	OnBreakerChange func(now circuit.Breaker)     // called after this process changed a circuit breaker; it must not block
}

// Manager delivers runs to the handlers of their families, counts and times
// attempts, and records how they end. See the package comment for its promises.
type Manager struct {
	cfg       Config
	log       *zap.Logger
	families  map[string]Family
	redis     redis.UniversalClient
	inspector *asynq.Inspector

	slots        *slots
	lookups      *lookupSlots
	consumer     *consumer
	notifier     *notifier
	caller       *handlerCaller
	claimGate    *claimGate
	recorder     *recorder
	tampering    *tamperingDetector
	inFlight     *inFlightRuns
	wakeups      *asynqredis.Wakeups
	health       *health
	clock        *clock
	clocks       func() instant
	claimBackoff *claimBackoff
	dueTimers    *dueTimers
	sweeper      *sweeper
	session      *session
	recoverer    *recoverer
	fetcher      *Fetcher
	queues       *queueSet
	archive      *taskArchive
	redisOwner   *redisOwner
	liveness     liveness
	tracing      tracing
	breakers     *breakerRegistry
	breakerLoop  *breakerLoop
	targets      targetSet

	waiting atomic.Int64

	started    atomic.Bool
	stop       chan struct{} // closed: nothing new is claimed
	graceOver  chan struct{} // closed: attempts in flight are interrupted
	stopped    chan struct{} // closed: Run has returned, or was never called
	baseCtx    context.Context
	cancelBase context.CancelFunc
	stopOnce   sync.Once
	closeOnce  sync.Once
	closeErr   error
	work       sync.WaitGroup // deliveries, late answers
	workers    *workerPool    // runs deliveries and handler calls
}

// ErrStarted is returned by a second call of Run, and by Run after Close.
var ErrStarted = errors.New("background: the manager was started or closed before")

// New checks the configuration and returns a manager. It can send notifications at once and
// delivers nothing until Run. New does not connect to Redis or to the journal.
func New(cfg Config) (*Manager, error) {
	families, err := cfg.normalise()
	if err != nil {
		return nil, err
	}
	client, err := asynqredis.NewClient(cfg.Redis)
	if err != nil {
		return nil, err
	}
	nodes, _ := client.(*redis.ClusterClient)
	shared := asynqredis.NewPollThrottle(asynqredis.NewPipelined(client), cfg.Poll, cfg.Now)
	m := &Manager{
		cfg: cfg, log: cfg.Logger, families: families,
		redis:     shared,
		inspector: asynq.NewInspectorFromRedisClient(shared),
		slots:     newSlots(cfg.Slots),
		lookups:   &lookupSlots{most: cfg.Slots, inUse: map[string]int{}},
		inFlight:  newInFlightRuns(),
		health:    newHealth(cfg.Logger),
		clock:     &clock{wall: cfg.Now, simulated: cfg.ClockSimulated},
		clocks:    readClocks,
		targets:   targetSet{called: cfg.Targets, sharedBreakers: cfg.SharedBreakers, log: cfg.Logger},
		stop:      make(chan struct{}),
		graceOver: make(chan struct{}),
		stopped:   make(chan struct{}),
		workers:   newWorkerPool(),
	}
	m.tracing = newTracing(cfg.Tracer)
	m.baseCtx, m.cancelBase = context.WithCancel(context.Background())
	m.claimBackoff = newClaimBackoff(cfg.Logger, func() instant { return m.clocks() }, cfg.LostAfter)
	m.redisOwner = &redisOwner{m: m, redis: shared, nodes: nodes}
	m.wakeups = asynqredis.NewWakeups(shared, cfg.NewID().String(), shared, cfg.Logger)
	m.consumer = &consumer{m: m}
	m.queues = &queueSet{m: m, servers: map[string]*asynq.Server{}}
	m.sweeper, m.session, m.recoverer, m.archive = newSweeper(m), newSession(m), newRecoverer(m), newTaskArchive(m)
	m.fetcher = &Fetcher{m: m, store: cfg.Leases, leases: newLeaseReaper(m, cfg.Leases)}
	m.notifier = &notifier{
		client: asynq.NewClientFromRedisClient(shared), redis: shared, wakeups: m.wakeups, sweeper: m.sweeper, tracing: m.tracing,
		log: cfg.Logger, baseCtx: m.baseCtx, sending: make(chan struct{}, maxAsyncNotifications),
	}
	m.dueTimers = newDueTimers(m.notifier.enqueueWaiting, m.now, cfg.Logger)
	m.claimGate = &claimGate{
		clock: m.clock, claimBackoff: m.claimBackoff, redisOwner: m.redisOwner, blockedByConfig: cfg.ClaimsBlocked, health: m.health,
		session: m.session, slots: m.slots, now: m.now, stop: m.stop, started: &m.started,
	}
	shared.ClaimsBlocked, shared.OnReply = m.claimGate.dequeuesNothing, m.liveness.onPoll
	shared.OnLostReply = m.sweeper.lostLocally
	shared.OnLongTask = func(err error) {
		m.log.Warn("a task in Redis was too long, nothing of Recourse wrote it, and it was removed", zap.Error(err))
	}
	asynqredis.WatchReplies(client, m.sweeper.lostLocally)
	m.breakers, m.breakerLoop = newBreakerRegistry(m), newBreakerLoop(m)
	m.caller = &handlerCaller{
		workers: m.workers, slots: m.slots, breakers: m.breakers, targets: &m.targets, tracing: m.tracing, claimBackoff: m.claimBackoff,
		clocks: func() instant { return m.clocks() }, lostAfter: cfg.LostAfter, baseCtx: m.baseCtx, graceOver: m.graceOver,
	}
	m.recorder = &recorder{
		caller: m.caller, health: m.health, inFlight: m.inFlight, now: m.now, newID: cfg.NewID, worker: cfg.Worker, onTransition: cfg.OnTransition,
		log: cfg.Logger, baseCtx: m.baseCtx, work: &m.work,
	}
	m.tampering = &tamperingDetector{store: cfg.Store, families: families, inFlight: m.inFlight, breakers: m.breakers, recorder: m.recorder, log: cfg.Logger}
	return m, nil
}

func (c *Config) normalise() (map[string]Family, error) {
	if c.Redis == nil || c.Store == nil || len(c.Families) == 0 {
		return nil, errors.New("background: Config needs Redis, Store and at least one family")
	}
	families := make(map[string]Family, len(c.Families))
	for _, f := range c.Families {
		name := f.Name()
		switch {
		case !validFamily(name):
			return nil, fmt.Errorf("background: family name %q: want letters, digits, '.', '_' and '-'", name)
		case families[name] != nil:
			return nil, fmt.Errorf("background: two families named %q", name)
		case f.TimeLimit() <= 0:
			return nil, fmt.Errorf("background: family %q has no time limit", name)
		}
		families[name] = f
	}
	positive(&c.Slots, 64)
	positive(&c.Servers, 4)
	positive(&c.Deliveries, max(400, 4*c.Slots))
	positive(&c.Shards, 2)
	positive(&c.Poll, 5*time.Millisecond)
	positive(&c.Grace, 10*time.Second)
	positive(&c.SweepEvery, time.Second)
	positive(&c.LostAfter, 15*time.Second)
	positive(&c.BeatEvery, c.LostAfter/15)
	positive(&c.BeatGrace, 2*c.LostAfter/3)
	positive(&c.MaxRecoveries, 5)
	c.Breaker.Normalise()
	if c.Worker == "" {
		c.Worker = "worker"
	}
	if c.Logger == nil {
		c.Logger = zap.NewNop()
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.NewID == nil {
		c.NewID = uuid.New
	}
	return families, nil
}

func positive[T int | time.Duration](v *T, def T) {
	if *v <= 0 {
		*v = def
	}
}

// now returns the time as it is recorded: UTC, in whole microseconds.
func (m *Manager) now() time.Time { return m.clock.now().UTC().Truncate(time.Microsecond) }

// Run delivers until ctx ends or Close is called. Then it shuts down: it stops claiming,
// returns waiting runs to asynq, waits Grace for attempts in flight, and records the remaining
// ones as interrupted. It returns when no delivery is left. An outcome that could not be
// recorded yet is still retried afterwards, until Close.
func (m *Manager) Run(ctx context.Context) error {
	if !m.started.CompareAndSwap(false, true) {
		return ErrStarted
	}
	defer close(m.stopped)
	sessionCtx, endSession := context.WithCancel(m.baseCtx)
	registered := make(chan struct{})
	var sessionLoop, loops, leaders sync.WaitGroup
	sessionLoop.Go(func() { m.session.run(sessionCtx, registered) })
	defer func() {
		endSession()
		sessionLoop.Wait()
		m.unregisterSession()
	}()
	select {
	case <-registered:
	case <-time.After(journalTimeout): // nothing is dequeued until it is registered
	case <-ctx.Done():
	case <-m.stop:
	}
	m.archive.pruneAtStart(ctx)
	servers, err := m.consumer.start()
	if err != nil {
		m.halt()
		m.consumer.stop(servers)
		return err
	}
	loopCtx, endLoops := context.WithCancel(ctx)
	defer endLoops()
	loops.Go(func() { m.wakeups.Run(loopCtx) })
	loops.Go(func() { m.sweeper.run(loopCtx) })
	readers := staggered{ctx: loopCtx}
	readers.start(&leaders, m.breakerLoop.run)
	readers.start(&loops, m.recoverer.run)
	readers.start(&loops, m.archive.run)
	if m.cfg.Leases != nil {
		readers.start(&loops, m.fetcher.leases.run)
	}

	select {
	case <-ctx.Done():
	case <-m.stop:
	}
	m.halt()
	endLoops()
	grace := time.AfterFunc(m.cfg.Grace, func() { close(m.graceOver) })
	m.consumer.stop(servers)
	leaders.Wait()
	if grace.Stop() {
		close(m.graceOver)
	}
	loops.Wait()
	return nil
}

// loopStartEvery is the time between the starts of two loops that read the store.
const loopStartEvery = 50 * time.Millisecond

// staggered starts loops that read the store, each loopStartEvery after the one before. A loop reads on the
// connections that those before it have opened; loops that started together would open one each.
type staggered struct {
	ctx   context.Context
	loops int
}

// start runs loop in group when its time has come, unless the context ends before.
func (s *staggered) start(group *sync.WaitGroup, loop func(context.Context)) {
	s.loops++
	pause := time.Duration(s.loops) * loopStartEvery
	group.Go(func() {
		if sleep(s.ctx, pause) {
			loop(s.ctx)
		}
	})
}

// unregisterSession removes the session of a process that has stopped, if nothing runs under
// it. Other processes recover what is left, such as an outcome that cannot be written. A
// process that may have lost deliveries shortly before its end keeps its session: the others
// mark it lost and then look for those deliveries.
func (m *Manager) unregisterSession() {
	if m.sweeper.mayHaveLost() {
		m.log.Warn("Redis replies were lost before shutdown, the session is left to be marked lost")
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(m.baseCtx), m.cfg.BeatGrace)
	defer cancel()
	m.session.unregister(ctx)
}

func (m *Manager) halt() { m.stopOnce.Do(func() { close(m.stop) }) }

// Close stops Run if it is running, drops outcomes that could not be recorded (their attempts
// are found interrupted), and closes the connections. It does not wait for handler calls that
// ignore their context.
func (m *Manager) Close() error {
	m.closeOnce.Do(func() {
		m.halt()
		if m.started.Swap(true) {
			<-m.stopped
		}
		m.dueTimers.close()
		m.wakeups.Close()
		m.cancelBase()
		m.work.Wait()
		m.workers.close()
		m.notifier.drain()
		m.closeErr = m.redis.Close()
	})
	return m.closeErr
}
