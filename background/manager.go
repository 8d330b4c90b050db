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
	Store    Store
	Database string // identity of the ledger: a Redis that carries the notifications of another one is refused; not looked at when empty
	Families []Family
	// Targets are whom the handlers of a family call, by its name; those of a family that is
	// not named call any. The session shows them, and no other circuit breaker of the family
	// is led here.
	Targets map[string][]string
	// SharedBreakers are targets, of no tenant, that go by the circuit breaker of another target of
	// their family, for they are the same endpoint. The ledger has to go by it as well.
	SharedBreakers map[Target]string

	Slots         int           // calls of handlers at one time; 64
	Servers       int           // asynq servers, each dequeues one task per round trip; 4
	Deliveries    int           // deliveries held at one time, waiting ones included; max(400, 4*Slots)
	Shards        int           // queues of each family; 2
	Poll          time.Duration // pause of a server that found its queues empty; an idle queue is asked once in two, every 50ms where all bells are heard; 5ms
	Grace         time.Duration // what attempts in flight are given at shutdown; 10s
	SweepEvery    time.Duration // how often the sweeper looks; 1s
	LostAfter     time.Duration // a process that stands still for this long is lost; 15s
	BeatEvery     time.Duration // how often this process shows that it lives; LostAfter/15
	BeatGrace     time.Duration // without an answered beat for this long, calls are cancelled; 2/3 of LostAfter
	MaxRecoveries int           // from how many lost workers a run is recovered, the next one is its death; 5
	Breaker       BreakerRule   // when circuit breakers open by themselves, and how they probe

	Worker          string                        // name of this process in receipts; "worker"
	Logger          *zap.Logger                   // nothing is logged when nil
	Now             func() time.Time              // of this machine, measured against the ledger's; time.Now
	ClockSimulated  bool                          // Now is a simulation's: it is gone by as it is, and never measured
	Tracer          trace.TracerProvider          // nothing is traced when nil
	ClaimsBlocked   func() error                  // why nothing may be claimed, nil while something may; always when nil
	NewID           func() uuid.UUID              // ids of moves and tokens of claims; random
	OnTransition    func(m Transition, after Run) // called after each commit; it must not block
	OnBreakerChange func(now Breaker)             // called after this process moved a circuit breaker; it must not block
}

// Manager delivers runs to the handlers of their families, counts and times
// attempts, and records how they end. See the package comment for its promises.
type Manager struct {
	cfg                Config
	log                *zap.Logger
	families           map[string]Family
	redis              redis.UniversalClient
	asyncNotifications chan struct{} // full of bells that ring beside their callers
	polls              *pollThrottle
	client             *asynq.Client
	inspector          *asynq.Inspector

	slots                *slots
	inFlight             *inFlightRuns
	wakeups              *wakeups
	health               *health
	clock                *clock
	clocks               func() instant
	claimBackoff         *claimBackoff
	dueTimers            *dueTimers
	sweeper              *sweeper
	session              *session
	recoverer            *recoverer
	former               *formerQueues
	archive              *taskArchive
	redisOwner           *redisOwner
	liveness             liveness
	nodes                *redis.ClusterClient // nil: Redis is no Cluster
	tracing              tracing
	breakers             *breakerRegistry
	breakerLoop          *breakerLoop
	unknownTargetsLogged sync.Map // Target: it was logged that this process does not call it

	waiting, abandoned atomic.Int64
	unrecordable       atomic.Uint64
	running            atomic.Int64

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
	workers    *workerPool    // carries deliveries, makes calls
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
	shared := newPollThrottle(newPipelined(client), cfg.Poll, cfg.Now)
	m := &Manager{
		cfg: cfg, log: cfg.Logger, families: families,
		redis:              shared,
		asyncNotifications: make(chan struct{}, maxAsyncNotifications),
		polls:              shared,
		client:             asynq.NewClientFromRedisClient(shared),
		inspector:          asynq.NewInspectorFromRedisClient(shared),
		slots:              newSlots(cfg.Slots),
		inFlight:           newInFlightRuns(),
		health:             newHealth(cfg.Logger),
		clock:              &clock{wall: cfg.Now, simulated: cfg.ClockSimulated},
		clocks:             readClocks,
		nodes:              nodes,
		stop:               make(chan struct{}),
		graceOver:          make(chan struct{}),
		stopped:            make(chan struct{}),
		workers:            newWorkerPool(),
	}
	m.claimBackoff = newClaimBackoff(cfg.Logger, func() instant { return m.clocks() })
	shared.claimsBlocked, shared.onReply = m.claimsBlocked, m.liveness.onPoll
	m.redisOwner = &redisOwner{m: m}
	m.wakeups = newWakeups(shared, cfg.NewID().String(), shared, cfg.Logger)
	m.former = &formerQueues{m: m, servers: map[string]*asynq.Server{}}
	m.dueTimers = newDueTimers(m.enqueueWaiting, m.now, cfg.Logger)
	m.sweeper, m.session, m.recoverer, m.archive = newSweeper(m), newSession(m), newRecoverer(m), newTaskArchive(m)
	shared.onLostReply = m.sweeper.lostLocally
	lostReplyHook{m.sweeper.lostLocally}.install(client)
	m.tracing = newTracing(cfg.Tracer)
	m.breakers, m.breakerLoop = newBreakerRegistry(m), newBreakerLoop(m)
	m.baseCtx, m.cancelBase = context.WithCancel(context.Background())
	return m, nil
}

func (c *Config) normalise() (map[string]Family, error) {
	if c.Redis == nil || c.Store == nil || len(c.Families) == 0 {
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
	positive(&c.MaxRecoveries, 5)
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
	case <-time.After(admitTimeout): // deliveries are handed back until it is
	case <-ctx.Done():
	case <-m.stop:
	}
	m.archive.pruneAtStart(ctx)
	servers, err := m.startServers()
	if err != nil {
		m.halt()
		m.shutdown(servers)
		return err
	}
	loopCtx, endLoops := context.WithCancel(ctx)
	defer endLoops()
	loops.Go(func() { m.wakeups.run(loopCtx) })
	loops.Go(func() { m.sweeper.run(loopCtx) })
	loops.Go(func() { m.recoverer.run(loopCtx) })
	loops.Go(func() { m.archive.run(loopCtx) })
	leaders.Go(func() { m.breakerLoop.run(loopCtx) })

	select {
	case <-ctx.Done():
	case <-m.stop:
	}
	m.halt()
	endLoops()
	grace := time.AfterFunc(m.cfg.Grace, func() { close(m.graceOver) })
	m.shutdown(servers)
	leaders.Wait()
	if grace.Stop() {
		close(m.graceOver)
	}
	loops.Wait()
	return nil
}

// unregisterSession ends the session of a process that has stopped, if nothing is left under
// it. What is left, such as an outcome that can't be written, others will recover; and
// tasks that this process lost from sight before its end they are to look for, as
// those of a session that is lost.
func (m *Manager) unregisterSession() {
	if m.sweeper.mayHaveLost() {
		m.log.Warn("answers of Redis were lost shortly before the end; others will find this session lost, and look for its tasks")
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(m.baseCtx), m.cfg.BeatGrace)
	defer cancel()
	m.session.unregister(ctx)
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
		m.dueTimers.close()
		m.wakeups.close()
		m.cancelBase()
		m.work.Wait()
		m.workers.close()
		m.drainNotifications()
		m.closeErr = m.redis.Close()
	})
	return m.closeErr
}
