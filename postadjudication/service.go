package postadjudication

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"sync"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/zap"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/postgres"
	"github.com/recourse-dev/recourse/retrypolicy"
)

// Config says what a Service is made of. Only DatabaseURL is needed to look, Redis to
// hand over with a bell, and Executor to Run.
type Config struct {
	DatabaseURL string             // postgres://...; always with sslmode
	Redis       asynq.RedisConnOpt // any of asynq's; nil: what is handed over waits for the sweeper of another process, see ErrNoRedis
	Executor    Executor           // calls the escrow service DefaultTarget
	Targets     []Target           // beside DefaultTarget; an adjudication of any other is refused. The same in every process
	Families    []PlainFamily      // families of the caller's own
	OnDeath     LetterHandler      // what is run when a settlement's run dies; none when zero
	OnAnyDeath  LetterHandler      // the same for every family that names none, settlements included

	Policy    retrypolicy.Policy // of new settlement runs; normalised: 3 attempts, 25ms, doubling
	TimeLimit time.Duration      // of one call of the escrow service; 10s when 0, 24h at most
	Slots     int                // calls at once in this process; 64 when 0
	Servers   int                // asynq servers in this process; 4 when 0
	Shards    int                // queues per family; 2 when 0
	Poll      time.Duration      // how often an idle asynq server looks; 5ms when 0
	Grace     time.Duration      // for running attempts at shutdown; 10s when 0
	Sweep     time.Duration      // how often unrung runs are looked for; 1s when 0
	LostAfter time.Duration      // a process that shows no life for this long is lost; 15s when 0, at least 3s
	// MaxRecoveries is from how many lost workers a run is recovered; the next one that is
	// lost is its death, a dead letter poison_pill. 5 when 0, without end when negative.
	MaxRecoveries int
	// Worker is this process in receipts; when empty, host name, pid and some letters of
	// chance. No other process may have its name, nor one that takes its place: a call that
	// has not come back counts as outstanding while a process of the name lives.
	Worker   string
	Breaker  BreakerRule   // when circuit breakers open by themselves; see its fields for the defaults
	InFlight time.Duration // how long a call that was given up may still be executed, where no Executor states it; DefaultInFlight when 0, none when negative

	// How long letters are kept, and where they go then: the same in every process, for
	// whichever comes first prunes by its own.
	Retention  []RetentionRule // DefaultMaxAge for what no rule is about
	Archive    Archive         // without it letters of settlements are not pruned
	PruneEvery time.Duration   // how often retention is applied; 5m when 0
	RuleEvery  time.Duration   // how often rules for dead letters are applied; 3s when 0
	Lookups    LookupRule      // how the escrow service is asked about dead letters of unknown outcome; see its fields for the defaults

	Logger *zap.Logger      // none when nil; what it is given is redacted first
	Now    func() time.Time // this machine's clock; time.Now when nil
	// Simulated says that Now is a simulation's, as of a demonstration that lets months pass:
	// it is gone by as it is. Any other is measured against the database's clock with each
	// beat, and everything that is recorded has the time of that.
	Simulated    bool
	Tracer       trace.TracerProvider                        // nothing is traced when nil
	OnTransition func(background.Transition, background.Run) // called after each committed move of this process
	OnBreaker    func(background.Breaker)                    // called after this process moved a circuit breaker

	// Demonstration says that Executor pays nothing real. Only a database that was opened so
	// when it was empty is executed on then: it is marked, and executed on by no other, for ever.
	Demonstration bool

	// AllowUnsuitable opens also a database that does not refuse changes of evidence, as one that
	// was restored without its triggers, or a standby: to audit it, or to read. TriggersOff
	// says what is not in force. It is not for what changes anything.
	AllowUnsuitable bool

	handlerFamilies map[string]string // by which family whose letters are handled; see withHandlers
}

// Service is the one public door: it takes adjudications, executes them when Run
// is called, and answers what became of them. It is safe for concurrent use.
type Service struct {
	journal          *postgres.Journal
	manager          *background.Manager
	eventSignals     eventSignals
	settlements      *settlementFamily
	plainFamilies    map[string]*plainAdapter
	policy           retrypolicy.Policy
	policies         *policyCache
	handlers         *handlers
	subscribers      *subscribers
	bulks            *bulkRunner
	rules            *ruleRunner
	escrows          *escrowMaintainer
	database         *databaseMonitor
	conditionLimiter *exprLimiter
	lookups          *lookupLoop
	worker           string
	maxRecoveries    int // of a run at most, as configured; 0: the default
	grace            time.Duration
	log              *zap.Logger
	executes         bool
	runRefusal       error        // why Run refuses, as a demonstration's database would
	withoutRedis     bool         // no Redis is named
	tracer           trace.Tracer // nil: nothing is traced

	retention   retentions
	archive     Archive // nil: there is none
	pruneEvery  time.Duration
	pruneCounts pruneCounts
}

// ErrNoExecutor means that Run was called on a Service without an Executor.
var ErrNoExecutor = errors.New("postadjudication: Config.Executor is needed to run settlements")

// ErrSchema means that the database's schema is missing, older or newer.
var ErrSchema = postgres.ErrSchema

// ErrNotFound means that the tenant has no such run or case.
var ErrNotFound = background.ErrNotFound

// ErrUnreadable means that the run is of a version that this program can't read. It stays
// as it is, for a program that can.
var ErrUnreadable = background.ErrUnreadable

// ErrUnrecordable means that what was to be recorded has values that can't be: nothing was.
var ErrUnrecordable = background.ErrUnrecordable

// Open connects to Postgres, checks the schema and its triggers, and prepares to reach Redis. It
// starts no work; Run does. What it could not work on it refuses with ErrSchema,
// ErrUnsuitable or, with an Executor, ErrRedis; a Redis that can't be reached is no reason.
func Open(ctx context.Context, c Config) (*Service, error) {
	c, err := c.withDefaults()
	if err != nil {
		return nil, err
	}
	journal, installed, err := c.openJournal(ctx)
	if err != nil {
		return nil, err
	}
	s := &Service{journal: journal, plainFamilies: map[string]*plainAdapter{}, policy: c.Policy.Normalize(), log: c.Logger, executes: c.Executor != nil, runRefusal: c.checkDemonstration(installed), grace: c.Grace, conditionLimiter: newExprLimiter()}
	if _, s.withoutRedis = c.Redis.(absentRedis); s.withoutRedis {
		c.Logger.Warn("no Redis is named: every bell is left to the sweeper of a process that has one")
	}
	s.handlers = &handlers{service: s, familyFor: c.handlerFamilies}
	s.database = &databaseMonitor{journal: journal, id: installed.ID, breakers: targetsOf(&c).breakerTargets(), log: c.Logger, now: s.now}
	s.bulks = newBulkRunner(s)
	s.rules = newRuleRunner(s, c.RuleEvery)
	s.escrows = newEscrowMaintainer(journal, c.Logger)
	s.lookups, s.worker, s.maxRecoveries = newLookupLoop(s, c.Lookups), c.Worker, c.MaxRecoveries
	s.policies = &policyCache{journal: journal, log: c.Logger}
	if err := s.policies.load(ctx); err != nil {
		journal.Close()
		return nil, err
	}
	if s.subscribers, err = newSubscribers(ctx, journal, c.Logger); err != nil {
		journal.Close()
		return nil, err
	}
	// Without an executor the family still names its queues; Run refuses to start.
	s.settlements = &settlementFamily{journal: journal, executor: c.Executor, targets: targetsOf(&c), timeLimit: c.TimeLimit, callBound: background.MaxClaimAge(c.LostAfter), defaultInFlight: c.InFlight, now: s.now, handlers: s.handlers, escrows: s.escrows, served: &servedFamilies{local: map[string]bool{Family: true}, running: s.running}}
	families := []background.Family{s.settlements}
	for _, p := range c.Families {
		s.plainFamilies[p.Name] = &plainAdapter{PlainFamily: p, journal: journal, handlers: s.handlers}
		s.settlements.served.local[p.Name] = true
		families = append(families, s.plainFamilies[p.Name])
	}
	if err := s.initRetention(c, families); err != nil {
		journal.Close()
		return nil, err
	}
	s.manager, err = background.New(background.Config{
		Redis: c.Redis, Store: journal, Families: families, Slots: c.Slots, Servers: c.Servers, Shards: c.Shards, Poll: c.Poll,
		Grace: c.Grace, SweepEvery: c.Sweep, LostAfter: c.LostAfter, MaxRecoveries: c.MaxRecoveries, Worker: c.Worker, Logger: c.Logger, Now: c.Now, ClockSimulated: c.Simulated, Tracer: c.Tracer, NewID: newID, OnTransition: s.transitionHook(c.OnTransition),
		Breaker: c.Breaker, OnBreakerChange: c.OnBreaker, Database: installed.ID, ClaimsBlocked: s.database.unready,
		Targets: map[string][]string{Family: s.settlements.targets.names()}, SharedBreakers: s.settlements.targets.sharedBreakers(),
	})
	if err != nil {
		journal.Close()
		return nil, err
	}
	if s.executes && !s.withoutRedis {
		if err := s.manager.CheckRedis(ctx, true); err != nil {
			return nil, errors.Join(err, s.Close())
		}
	}
	if c.Tracer != nil {
		s.tracer = c.Tracer.Tracer("github.com/recourse-dev/recourse/postadjudication")
	}
	return s, nil
}

// maxTimeLimit bounds Config.TimeLimit. It is part of how long a call may be on its way and
// of what is left of an operation key: sums of it have to stay exact.
const maxTimeLimit = 24 * time.Hour

func (c Config) withDefaults() (Config, error) {
	if c.DatabaseURL == "" {
		return c, errors.New("postadjudication: Config needs DatabaseURL")
	}
	if c.Redis == nil {
		c.Redis = absentRedis{}
	}
	if c.Policy.OnExhaustion == retrypolicy.Discard {
		return c, errors.New("postadjudication: a settlement is never discarded; leave Policy.OnExhaustion at dead_letter")
	}
	if err := c.Policy.Validate(); err != nil {
		return c, err
	}
	var err error
	if c.Families, c.handlerFamilies, err = c.withHandlers(); err != nil {
		return c, err
	}
	for _, p := range c.Families {
		if err := p.validate(); err != nil {
			return c, err
		}
	}
	if err := c.checkTargets(); err != nil {
		return c, err
	}
	if c.TimeLimit <= 0 {
		c.TimeLimit = 10 * time.Second
	}
	if c.TimeLimit > maxTimeLimit {
		return c, fmt.Errorf("postadjudication: Config.TimeLimit is over %s", maxTimeLimit)
	}
	if c.Grace <= 0 {
		c.Grace = 10 * time.Second
	}
	if c.LostAfter <= 0 {
		c.LostAfter = 15 * time.Second
	}
	if c.LostAfter < 3*time.Second {
		return c, errors.New("postadjudication: Config.LostAfter is under 3s; a pause of a busy machine would pass for the loss of a process")
	}
	if c.InFlight == 0 {
		c.InFlight = DefaultInFlight
	}
	if c.MaxRecoveries < 0 {
		c.MaxRecoveries = math.MaxInt - 1
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Logger == nil {
		c.Logger = zap.NewNop()
	}
	c.Logger = redactedLogger(c.Logger)
	if c.Worker == "" {
		host, err := os.Hostname()
		if err != nil {
			return c, fmt.Errorf("postadjudication: Config.Worker is empty and the host has no name: %w", err)
		}
		c.Worker = fmt.Sprintf("%s:%d:%s", host, os.Getpid(), rand.Text()[:6]) // in a container the pid is always 1
	}
	return c, nil
}

// Run executes what is due until ctx ends, then stops gracefully: it claims
// nothing more, gives running attempts their grace, and leaves everything else
// where any other process finds it. It refuses with ErrTargets while other processes go by
// other circuit breakers.
func (s *Service) Run(ctx context.Context) error {
	if !s.executes {
		return ErrNoExecutor
	}
	if s.withoutRedis {
		return ErrNoRedis
	}
	if s.runRefusal != nil {
		return s.runRefusal
	}
	if err := s.recordTargets(ctx); err != nil {
		return err
	}
	loopCtx, stopLoops := context.WithCancel(context.WithoutCancel(ctx))
	var loops sync.WaitGroup
	upkeepCtx, stopUpkeep := context.WithCancel(loopCtx)
	decideCtx, stopDeciding := context.WithCancel(ctx)
	defer stopDeciding()
	loops.Go(func() { s.database.run(loopCtx, func() { stopUpkeep(); stopDeciding() }) })
	loops.Go(func() { sequencer{s.journal, &s.eventSignals, s.log}.run(upkeepCtx) })
	loops.Go(func() { projector{s.journal, s.log}.run(upkeepCtx) })
	loops.Go(func() { s.pruneLoop(upkeepCtx) })
	loops.Go(func() { s.escrows.run(upkeepCtx) })
	loops.Go(func() { s.bulks.run(decideCtx) })
	loops.Go(func() { s.rules.run(decideCtx) })
	loops.Go(func() { s.lookups.run(decideCtx) })
	defer loops.Wait()
	defer stopLoops()
	defer stopUpkeep()
	return s.manager.Run(ctx)
}

// CheckRedis tells why this process could not work with its Redis, and changes nothing;
// nil also when that can't be reached. The error wraps ErrRedis.
func (s *Service) CheckRedis(ctx context.Context) error {
	if s.withoutRedis {
		return nil
	}
	return s.manager.CheckRedis(ctx, false)
}

// Close lets go of Redis and Postgres, after everything handed over is written, and
// rung for if Redis answers within seconds.
func (s *Service) Close() error {
	err := s.manager.Close()
	s.subscribers.close(s.grace)
	s.journal.Close()
	return err
}

// transitionHook is what is called after each committed move: what the caller asked for, and
// who waits for deaths.
func (s *Service) transitionHook(then func(background.Transition, background.Run)) func(background.Transition, background.Run) {
	return func(m background.Transition, after background.Run) {
		if after.State == background.DeadLettered {
			s.subscribers.wakeAll()
		}
		if after.State == background.DeadLettered && m.Run.State != after.State {
			s.log.Warn("a run was dead-lettered", zap.Stringer("run", after.ID), zap.Stringer("case", after.Case), zap.String("tenant", after.Tenant),
				zap.String("family", after.Family), zap.String("reason", after.Reason), zap.String("class", string(after.Class)))
		}
		if then != nil {
			then(m, after)
		}
	}
}

// now is the time at the boundary: UTC, whole microseconds, as Postgres keeps it.
func (s *Service) now() time.Time { return s.manager.Now() }

// Migrate brings the schema of a database up to this program's version and gives
// the version before and after.
func Migrate(ctx context.Context, databaseURL string) (from, to int64, err error) {
	return postgres.Migrate(ctx, databaseURL)
}

// Migration is Migrate where more is to be said: which role processes connect as. That one owns
// nothing, and is granted what they need. Run refuses one with ErrAppRole that could do more.
type Migration = postgres.Migration

// Migrated is what a Migration came to.
type Migrated = postgres.MigrationResult

// ErrAppRole means that a role can't be the one that processes connect as: it is not there, is a
// superuser, makes roles, owns the schema, or is a member of one that does.
var ErrAppRole = postgres.ErrAppRole

// DatabaseRole is the role that a process connects to the database as.
type DatabaseRole = postgres.Role

// DatabaseRole reads what the role may do that this service connects as.
func (s *Service) DatabaseRole(ctx context.Context) (DatabaseRole, error) { return s.journal.Role(ctx) }

// ErrNoRedis means that a Service was opened without a Redis. It looks as any other,
// and what it writes is written: the bell is rung by the sweeper of a process that
// executes. It does not Run.
var ErrNoRedis = errors.New("postadjudication: Config.Redis is needed to ring bells and to run")

// absentRedis stands where none is named: every word to it is answered ErrNoRedis.
type absentRedis struct{}

// MakeRedisClient is what asynq asks of a Redis.
func (absentRedis) MakeRedisClient() any {
	return redis.NewClient(&redis.Options{
		Dialer:     func(context.Context, string, string) (net.Conn, error) { return nil, ErrNoRedis },
		MaxRetries: -1, // another try finds none either
	})
}
