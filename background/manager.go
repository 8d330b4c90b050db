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
)

// Config says what a manager works with. Redis, Ledger and at least one family
// are required; everything else has a default.
type Config struct {
	Redis    asynq.RedisConnOpt // one server, one behind Sentinel, or a Cluster
	Ledger   Ledger
	Database string // identity of the ledger: a Redis that carries the notifications of another one is refused; not looked at when empty
	Families []Family
	// Targets are whom the handlers of a family call, by its name; those of a family that is
	// not named call any. The session shows them, and no other circuit breaker of the family
	// is led here.
	Targets map[string][]string
	// Shared are targets, of no tenant, that go by the circuit breaker of another target of
	// their family, for they are the same endpoint. The ledger has to go by it as well.
	Shared map[Target]string

	Slots      int           // calls of handlers at one time; 64
	Servers    int           // asynq servers, each dequeues one task per round trip; 4
	Deliveries int           // deliveries held at one time, waiting ones included; max(400, 4*Slots)
	Shards     int           // queues of each family; 2
	Poll       time.Duration // pause of a server that found its queues empty; an idle queue is asked once in two, every 50ms where all bells are heard; 5ms
	Grace      time.Duration // what attempts in flight are given at shutdown; 10s
	SweepEvery time.Duration // how often the sweeper looks; 1s
	LostAfter  time.Duration // a process that stands still for this long is lost; 15s
	BeatEvery  time.Duration // how often this process shows that it lives; LostAfter/15
	BeatGrace  time.Duration // without an answered beat for this long, calls are cancelled; 2/3 of LostAfter
	Recoveries int           // from how many lost workers a run is recovered, the next one is its death; 5
	Breaker    BreakerRule   // when circuit breakers open by themselves, and how they probe

	Worker    string                  // name of this process in receipts; "worker"
	Logger    *zap.Logger             // nothing is logged when nil
	Now       func() time.Time        // of this machine, measured against the ledger's; time.Now
	Simulated bool                    // Now is a simulation's: it is gone by as it is, and never measured
	Tracer    trace.TracerProvider    // nothing is traced when nil
	Barred    func() error            // why nothing may be claimed, nil while something may; always when nil
	NewID     func() uuid.UUID        // ids of moves and tokens of claims; random
	OnMove    func(m Move, after Run) // called after each commit; it must not block
	OnBreaker func(now Breaker)       // called after this process moved a circuit breaker; it must not block
}

// Manager delivers runs to the handlers of their families, counts and times
// attempts, and records how they end. See the package comment for its promises.
type Manager struct {
	cfg       Config
	log       *zap.Logger
	families  map[string]Family
	redis     redis.UniversalClient
	beside    chan struct{} // full of bells that ring beside their callers
	idle      *idle
	client    *asynq.Client
	inspector *asynq.Inspector

	slots       *slots
	engaged     *engagements
	waker       *waker
	health      *health
	clock       *clock
	clocks      func() instant
	pausing     *claimPause
	promote     *promoter
	sweep       *sweeper
	session     *session
	observe     *observer
	former      *formerQueues
	mirrors     *mirrors
	redisOwner  *redisOwner
	moving      moving
	nodes       *redis.ClusterClient // nil: Redis is no Cluster
	tracing     tracing
	breakers    *breakers
	breakerLoop *breakerLoop
	uncalled    sync.Map // Target: it was logged that this process does not call it

	waiting, abandoned atomic.Int64
	unrecordable       atomic.Uint64
	running            atomic.Int64

	started   atomic.Bool
	stop      chan struct{} // closed: nothing new is claimed
	graceOver chan struct{} // closed: attempts in flight are interrupted
	stopped   chan struct{} // closed: Run has returned, or was never called
	life      context.Context
	end       context.CancelFunc
	stopOnce  sync.Once
	closeOnce sync.Once
	closeErr  error
	work      sync.WaitGroup // deliveries, late answers
	crew      *crew          // carries deliveries, makes calls
}

// ErrStarted is returned by a second call of Run, and by Run after Close.
var ErrStarted = errors.New("background: the manager was started or closed before")

// New checks the configuration and returns a manager that does nothing until
// Run, but rings bells. It does not talk to Redis or to the journal.
func New(cfg Config) (*Manager, error) {
	families, err := cfg.normalise()
	if err != nil {
		return nil, err
	}
	client, err := newRedisClient(cfg.Redis)
	if err != nil {
		return nil, err
	}
	nodes, _ := client.(*redis.ClusterClient)
	shared := newIdle(newPipelined(client), cfg.Poll, cfg.Now)
	m := &Manager{
		cfg: cfg, log: cfg.Logger, families: families,
		redis:     shared,
		beside:    make(chan struct{}, bellsBeside),
		idle:      shared,
		client:    asynq.NewClientFromRedisClient(shared),
		inspector: asynq.NewInspectorFromRedisClient(shared),
		slots:     newSlots(cfg.Slots),
		engaged:   newEngagements(),
		health:    newHealth(cfg.Logger),
		clock:     &clock{wall: cfg.Now, simulated: cfg.Simulated},
		clocks:    readClocks,
		nodes:     nodes,
		stop:      make(chan struct{}),
		graceOver: make(chan struct{}),
		stopped:   make(chan struct{}),
		crew:      newCrew(),
	}
	m.pausing = newClaimPause(cfg.Logger, func() instant { return m.clocks() })
	shared.barred, shared.asked = m.barred, m.moving.took
	m.redisOwner = &redisOwner{m: m}
	m.waker = newWaker(shared, cfg.NewID().String(), shared, cfg.Logger)
	m.former = &formerQueues{m: m, servers: map[string]*asynq.Server{}}
	m.promote = newPromoter(m.promoteNow, m.now, cfg.Logger)
	m.sweep, m.session, m.observe, m.mirrors = newSweeper(m), newSession(m), newObserver(m), newMirrors(m)
	shared.lost = m.sweep.mislaid
	unanswered{m.sweep.mislaid}.watch(client)
	m.tracing = newTracing(cfg.Tracer)
	m.breakers, m.breakerLoop = newBreakers(m), newBreakerLoop(m)
	m.life, m.end = context.WithCancel(context.Background())
	return m, nil
}

func (c *Config) normalise() (map[string]Family, error) {
	if c.Redis == nil || c.Ledger == nil || len(c.Families) == 0 {
		return nil, errors.New("background: Config needs Redis, Ledger and at least one family")
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
	positive(&c.Recoveries, 5)
	c.Breaker.normalise()
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

// now is the time as it is recorded: UTC, in whole microseconds.
func (m *Manager) now() time.Time { return m.clock.now().UTC().Truncate(time.Microsecond) }

// Run delivers until ctx ends or Close is called, then shuts down: it stops
// claiming, lets go of runs that wait, gives attempts in flight the grace, and
// records those that take longer as interrupted. It returns when no delivery is
// held any more. An outcome that could not be recorded yet is still being tried
// afterwards, until Close.
func (m *Manager) Run(ctx context.Context) error {
	if !m.started.CompareAndSwap(false, true) {
		return ErrStarted
	}
	defer close(m.stopped)
	living, die := context.WithCancel(m.life)
	known := make(chan struct{})
	var alive, organs, probes sync.WaitGroup
	alive.Go(func() { m.session.run(living, known) })
	defer func() {
		die()
		alive.Wait()
		m.resign()
	}()
	select {
	case <-known:
	case <-time.After(admitPatience): // deliveries are handed back until it is
	case <-ctx.Done():
	case <-m.stop:
	}
	m.mirrors.first(ctx)
	servers, err := m.startServers()
	if err != nil {
		m.halt()
		m.shutdown(servers)
		return err
	}
	working, endWork := context.WithCancel(ctx)
	defer endWork()
	organs.Go(func() { m.waker.hear(working) })
	organs.Go(func() { m.sweep.run(working) })
	organs.Go(func() { m.observe.run(working) })
	organs.Go(func() { m.mirrors.run(working) })
	probes.Go(func() { m.breakerLoop.run(working) })

	select {
	case <-ctx.Done():
	case <-m.stop:
	}
	m.halt()
	endWork()
	grace := time.AfterFunc(m.cfg.Grace, func() { close(m.graceOver) })
	m.shutdown(servers)
	probes.Wait()
	if grace.Stop() {
		close(m.graceOver)
	}
	organs.Wait()
	return nil
}

// resign ends the session of a process that has stopped, if nothing is left under
// it. What is left, such as an outcome that can't be written, others will recover; and
// tasks that this process lost from sight before its end they are to look for, as
// those of a session that is lost.
func (m *Manager) resign() {
	if m.sweep.misses() {
		m.log.Warn("answers of Redis were lost shortly before the end; others will find this session lost, and look for its tasks")
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(m.life), m.cfg.BeatGrace)
	defer cancel()
	m.session.resign(ctx)
}

func (m *Manager) halt() { m.stopOnce.Do(func() { close(m.stop) }) }

// Close ends Run if need be, gives up what could not be recorded (its attempts
// will be found interrupted), and closes the connections. Calls of handlers that
// ignore their context are not waited for.
func (m *Manager) Close() error {
	m.closeOnce.Do(func() {
		m.halt()
		if m.started.Swap(true) {
			<-m.stopped
		}
		m.promote.close()
		m.waker.close()
		m.end()
		m.work.Wait()
		m.crew.close()
		m.hush()
		m.closeErr = m.redis.Close()
	})
	return m.closeErr
}
