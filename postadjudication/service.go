package postadjudication

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	"os"
	"sync"
	"time"

	"github.com/hibiken/asynq"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/zap"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/background/circuit"
	"github.com/recourse-dev/recourse/internal/schema"
	"github.com/recourse-dev/recourse/postadjudication/bulk"
	"github.com/recourse-dev/recourse/postadjudication/casestatus"
	"github.com/recourse-dev/recourse/postadjudication/deadletter"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/internal/casework"
	"github.com/recourse-dev/recourse/postadjudication/internal/engine"
	"github.com/recourse-dev/recourse/postadjudication/internal/eventlog"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/plans"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/search"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/webhookstore"
	"github.com/recourse-dev/recourse/postadjudication/internal/referencepolicy"
	"github.com/recourse-dev/recourse/postadjudication/jobs"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/postadjudication/replay"
	"github.com/recourse-dev/recourse/postadjudication/retention"
	"github.com/recourse-dev/recourse/postadjudication/webhooks"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/retrypolicy"
)

// Config configures a Service. DatabaseURL is always required. Redis is required to notify
// workers and to Run, Executor to Run. A duration or number below 0 means what 0 means, but in InFlight and
// MaxRecoveries.
type Config struct {
	DatabaseURL string             // postgres://...; always with sslmode
	Redis       asynq.RedisConnOpt // any of asynq's; nil: new runs wait for the sweeper of another process, see ErrNoRedis
	Executor    escrow.Executor    // calls the escrow service escrow.DefaultTarget
	Targets     []Target           // besides escrow.DefaultTarget; an adjudication for any other target is refused. The same in every process
	// PaymentQueues are the queues from which remote workers fetch adjudications: each adds the target
	// escrow.RemotePrefix and its name. Nothing but adjudications enters them, and no adjudication is fetched
	// from another queue. The same in every process.
	PaymentQueues []string
	Families      []PlainFamily // the caller's own families
	Jobs          bool          // jobs may be enqueued, and fetched by remote workers; see package jobs
	OnDeath       LetterHandler // runs when a settlement's run dies; none when zero
	OnAnyDeath    LetterHandler // the default for every family without a handler of its own, settlements included

	Policy    retrypolicy.Policy // of new settlement runs; normalised: 3 attempts, 25ms, doubling
	TimeLimit time.Duration      // of one call of the escrow service; 10s when 0, 24h at most
	Slots     int                // handler calls at once in this process; a call of over 1 s leaves its slot to another, up to four calls a slot; 64 when 0
	Servers   int                // asynq servers in this process; 4 when 0
	Shards    int                // queues per family; 2 when 0
	Poll      time.Duration      // poll interval of an idle asynq server; 5ms when 0
	Grace     time.Duration      // for running attempts at shutdown; 10s when 0
	Sweep     time.Duration      // how often the sweeper looks for runs without a task in Redis; 1s when 0
	LostAfter time.Duration      // a process without a heartbeat for this long counts as lost; 15s when 0, at least 3s
	// MaxRecoveries is how often a run is recovered from a lost worker. After the next lost
	// worker it is dead-lettered as poison_pill. 5 when 0. When negative only the bound of calls
	// that are outstanding counts: each lost worker leaves one, and the sixteenth ends the run.
	MaxRecoveries int
	// Worker names this process in receipts; when empty, host name, pid and six random
	// characters. The name must be unique, also among processes that replace this one: a call
	// that has not returned counts as outstanding while a process of that name is alive.
	Worker   string
	Breaker  BreakerRule   // when circuit breakers open by themselves; see its fields for the defaults
	InFlight time.Duration // how long an abandoned call may still be executed, unless the Executor states it; escrow.DefaultInFlight when 0, none when negative

	// How long letters are kept, and where they are archived. The same in every process: each
	// process prunes by its own rules.
	Retention  []retention.Rule    // DefaultMaxAge for letters that no rule matches
	Archive    retention.Archive   // required to prune letters of settlements
	PruneEvery time.Duration       // how often retention is applied; 5m when 0
	RuleEvery  time.Duration       // how often rules for dead letters are applied; 3s when 0
	Remote     RemoteWorkers       // of adjudications that remote workers execute
	Webhooks   webhooks.Config     // with keys, webhooks can be created, and a process that runs may send them
	Lookups    casework.LookupRule // how the escrow service is asked about what has an unknown outcome; see its fields for the defaults

	Logger *zap.Logger      // none when nil; every entry is redacted first
	Now    func() time.Time // this machine's clock; time.Now when nil
	// Simulated means that Now is a simulated clock and is used unchanged, as in a demonstration
	// that lets months pass. Any other clock is measured against the database's clock with each
	// heartbeat, and every recorded time is the database's.
	Simulated bool
	Tracer    trace.TracerProvider // nothing is traced when nil
	// OnTransition is called after each transition of a run that this process asked for and committed, with
	// the run as it is then: a transition may have been written as another one. It must not block.
	OnTransition func(background.Transition, background.Run)
	// OnLetterOpened is called after each commit of this process in which a run became a dead letter. It must
	// not block. The letter may be without its payload.
	OnLetterOpened func(letter background.Run)
	OnBreaker      func(circuit.Breaker) // called after this process changed a circuit breaker
	// OnLetterReceipt is called for each receipt that this process wrote about a dead letter that existed
	// before, such as of its fork or its end by retention. It must not block.
	OnLetterReceipt func(letter background.Run, subtype receipts.Subtype, actor string)

	// Demonstration means that Executor pays nothing real. Such a Service executes only on a
	// database that was empty when a demonstration first opened it. That database is marked for
	// good: no other Service executes on it.
	Demonstration bool

	// AllowUnsuitable also opens a database that does not refuse changes of evidence, such as
	// one restored without its triggers, or a standby. It is for audits and reading, and must
	// not be used to change anything. GuardsOff lists the triggers that are not in force.
	AllowUnsuitable bool

	handlerFamilies map[string]string // the handler's family, by the family of the dead run; see withHandlers
}

// Family is the name of the settlement family.
const Family = casework.Family

// RemoteWorkers is what an operator states about the payment services of remote workers. The zero
// value states nothing: no attempt follows one of unknown outcome.
type RemoteWorkers = casework.RemoteWorkers

// LookupRule configures the lookup loop, which asks the escrow service about open letters of
// unknown outcome. The zero rule is the default: on if the executor is a Lookuper.
type LookupRule = casework.LookupRule

// LookupStats counts the lookups of one process.
type LookupStats = casework.LookupStats

// Caller says how the actor of a request was authenticated. With the zero Caller the actor is
// the one that was passed to As.
type Caller = casework.Caller

// WithCaller returns a context that carries the caller.
func WithCaller(ctx context.Context, c Caller) context.Context { return casework.WithCaller(ctx, c) }

// Service accepts adjudications, executes them while Run runs, and reports what became of
// them. It is safe for concurrent use.
type Service struct {
	*submissions
	eventLog
	statuses

	journal     *journal.Journal
	index       *search.Index
	engine      engine.Engine
	applier     *casework.Applier
	settlements *casework.SettlementFamily
	policies    *policyStore
	references  *referencepolicy.Store
	letters     *deadletter.Repository
	keeper      *retention.Keeper
	plans       *bulk.Planner
	rules       *replay.Replayer
	lookups     *casework.LookupLoop
	jobs        *jobs.Store
	webhooks    *webhooks.Manager
	subscribers *subscribers
	escrows     *escrowMaintainer
	database    *databaseMonitor

	worker        string
	maxRecoveries int // of a run, as configured; 0: the default
	grace         time.Duration
	runs          calls              // of engine.Run
	closing       context.Context    // ends when Close is called
	beginClosing  context.CancelFunc // of closing
	log           *zap.Logger
	executes      bool
	runRefusal    error // returned by Run when not nil, as for a demonstration's database
	withoutRedis  bool  // Config.Redis was nil
}

// Open connects to Postgres, checks the schema and its triggers, and prepares the connection to
// Redis. It starts no work; Run does. Errors: ErrSchema, ErrUnsuitable and, with an
// Executor, ErrRedis. A Redis that can't be reached is no error.
func Open(ctx context.Context, c Config) (*Service, error) {
	c, err := c.withDefaults()
	if err != nil {
		return nil, err
	}
	journal, index, installed, err := c.openJournal(ctx)
	if err != nil {
		return nil, err
	}
	s := &Service{
		journal: journal, index: index, log: c.Logger, executes: c.Executor != nil, runRefusal: c.checkDemonstration(installed), grace: c.Grace,
		worker: c.Worker, maxRecoveries: c.MaxRecoveries,
	}
	s.closing, s.beginClosing = context.WithCancel(context.Background())
	if _, s.withoutRedis = c.Redis.(engine.AbsentRedis); s.withoutRedis {
		c.Logger.Warn("no Redis is configured: every new run is left to the sweeper of a process that has one")
	}
	families := s.openFamilies(&c, installed.ID)
	if err = s.openSubjects(ctx, &c, families); err == nil {
		err = s.openEngine(&c, installed.ID, families)
	}
	if err != nil {
		index.Close()
		journal.Close()
		return nil, err
	}
	if s.executes && !s.withoutRedis {
		if err := s.engine.CheckRedis(ctx, true); err != nil {
			return nil, errors.Join(err, s.Close())
		}
	}
	return s, nil
}

// openFamilies prepares the families, whose runs the engine executes. Without an executor the
// settlement family still names its queues; Run refuses to start.
func (s *Service) openFamilies(c *Config, databaseID string) []background.Family {
	sessions := &casework.Sessions{Journal: s.journal}
	s.database = &databaseMonitor{journal: s.journal, id: databaseID, breakers: targetsOf(c).BreakerTargets(), log: c.Logger, now: s.now}
	s.escrows = newEscrowMaintainer(s.journal, c.Logger)
	s.applier = &casework.Applier{
		Letters: casework.LettersOf{Journal: s.journal}, Journal: s.journal, PlainFamilies: map[string]*casework.PlainFamily{}, Sessions: sessions, WithoutRedis: s.withoutRedis, Now: s.now, Log: c.Logger,
		Refusals: &casework.Refusals{Journal: s.journal, Now: s.now}, OnReceipt: c.OnLetterReceipt,
	}
	s.policies = &policyStore{policyCache: &policyCache{journal: s.journal, log: c.Logger}, base: c.Policy.Normalize(), plainFamilies: s.applier.PlainFamilies}
	s.references = referencepolicy.New(s.journal.Operations, s.journal.Receipts)
	s.submissions = &submissions{journal: s.journal, applier: s.applier, policies: s.policies, now: s.now}
	if c.Tracer != nil {
		s.tracer = c.Tracer.Tracer("github.com/recourse-dev/recourse/postadjudication")
	}
	h := &casework.LetterHandlers{Applier: s.applier, FamilyFor: c.handlerFamilies, Open: s.openHandler, OnDeath: s.deathHook(c.OnLetterOpened)}
	s.settlements = &casework.SettlementFamily{
		Journal: s.journal, Executor: c.Executor, Targets: targetsOf(c), Remote: c.Remote, CallTimeLimit: c.TimeLimit, CallBound: background.MaxClaimAge(c.LostAfter), LostAfter: c.LostAfter, DefaultInFlight: c.InFlight,
		Lookups: c.Lookups.WithDefaults(), Now: s.now, ClockSetBack: func() time.Time { return s.engine.ClockSetBack() }, ClockUnchanged: func() time.Time { return s.engine.ClockUnchangedSince() }, LetterHandlers: h, OnExcess: s.escrows.logExcess, References: s.references, Served: &casework.ServedFamilies{Local: map[string]bool{casework.Family: true}, Running: sessions.Running},
	}
	s.applier.Settlements = s.settlements
	families := []background.Family{s.settlements}
	if c.Jobs {
		f := jobs.NewFamily(s.journal, h)
		s.applier.PlainFamilies[jobs.Family], s.settlements.Served.Local[jobs.Family] = f, true
		families = append(families, f)
	}
	for _, p := range c.Families {
		f := &casework.PlainFamily{FamilyName: p.Name, Policy: p.Policy, AttemptTimeLimit: p.TimeLimit, Run: p.Handle, Journal: s.journal, LetterHandlers: h}
		s.applier.PlainFamilies[p.Name], s.settlements.Served.Local[p.Name] = f, true
		families = append(families, f)
	}
	return families
}

// openSubjects prepares what is done with cases, dead letters and settings.
func (s *Service) openSubjects(ctx context.Context, c *Config, families []background.Family) (err error) {
	if s.keeper, err = retention.NewKeeper(s.applier, families, c.Retention, c.Archive, c.PruneEvery); err != nil {
		return err
	}
	s.eventLog = eventLog{eventlog.New(s.journal)}
	s.webhooks = webhooks.NewManager(c.Webhooks, webhookstore.New(s.journal), s.eventLog.Log, s.written, s.now, c.Logger)
	s.statuses = statuses{&casestatus.Reader{Journal: s.journal, Applier: s.applier}}
	index := &deadletter.Searcher{Journal: s.journal, Search: s.index, Settlements: s.settlements, Limiter: deadletter.NewLimiter(), RetentionOf: s.keeper.RetentionOf, RuleReplays: s.statuses.reader.RuleReplays, Now: s.now}
	s.plans = bulk.NewPlanner(plans.New(s.journal, s.index), s.applier, index, s.policies.inForce)
	s.submissions.plans = s.plans
	s.letters = &deadletter.Repository{Searcher: index, Applier: s.applier, Statuses: s.statuses.reader, Propose: s.plans.Proposer()}
	s.rules = replay.NewReplayer(s.applier, index, c.RuleEvery, s.executes)
	s.lookups = casework.NewLookupLoop(s.applier, c.Worker)
	if s.jobs, err = jobs.NewStore(s.letters, s.keeper); err != nil {
		return err
	}
	if s.subscribers, err = newSubscribers(ctx, s.journal, c.Logger); err != nil {
		return err
	}
	return s.policies.load(ctx)
}

// openEngine makes the engine, which executes the families.
func (s *Service) openEngine(c *Config, databaseID string, families []background.Family) error {
	var leases background.LeaseStore
	if c.Jobs {
		s.journal.Leases.PaymentQueue = s.settlements.Targets.Pays
		leases = casework.RemoteRuns{LeaseStore: s.journal.Leases, Families: s.applier.PlainFamilies, Settlements: s.settlements, Log: c.Logger}
	}
	opened, fetcher, err := engine.Open(background.Config{
		Redis: c.Redis, Store: s.journal.Engine(), Families: families, Leases: leases, Slots: c.Slots, Servers: c.Servers, Shards: c.Shards, Poll: c.Poll,
		Grace: c.Grace, SweepEvery: c.Sweep, LostAfter: c.LostAfter, MaxRecoveries: c.MaxRecoveries, Worker: c.Worker, Logger: c.Logger, Now: c.Now, ClockSimulated: c.Simulated, Tracer: c.Tracer, NewID: casework.NewID, OnTransition: c.OnTransition,
		Breaker: c.Breaker, OnBreakerChange: c.OnBreaker, Database: databaseID, ClaimsBlocked: s.database.unready,
		Targets: map[string][]string{casework.Family: s.settlements.Targets.Names()}, SharedBreakers: s.settlements.Targets.SharedBreakers(),
	})
	if err != nil {
		return err
	}
	s.engine, s.applier.Engine, s.applier.Sessions.Engine, s.applier.Fetcher = opened, opened, opened, fetcher
	return nil
}

// maxTimeLimit bounds Config.TimeLimit. It is added to how long a call may be in flight and
// subtracted from the lifetime of an operation key: these sums must not overflow.
const maxTimeLimit = 24 * time.Hour

func (c Config) withDefaults() (Config, error) {
	if c.DatabaseURL == "" {
		return c, errors.New("postadjudication: Config needs DatabaseURL")
	}
	if c.Redis == nil {
		c.Redis = engine.AbsentRedis{}
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
		return c, errors.New("postadjudication: Config.LostAfter is under 3s; a pause of a busy machine would count as the loss of a process")
	}
	if c.InFlight == 0 {
		c.InFlight = escrow.DefaultInFlight
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

// Run executes due runs until ctx ends, then stops gracefully: it claims nothing more, waits
// Config.Grace for running attempts, and leaves everything else for other processes. Errors:
// ErrNoExecutor, ErrNoRedis, ErrDemonstration, and ErrTargets while other processes have other
// circuit breakers, and ErrClosed after Close.
func (s *Service) Run(ctx context.Context) error {
	if !s.executes {
		return refusal.ErrNoExecutor
	}
	if s.withoutRedis {
		return ErrNoRedis
	}
	if s.runRefusal != nil {
		return s.runRefusal
	}
	ctx, end, err := s.beginRun(ctx)
	if err != nil {
		return err
	}
	defer end()
	if err := s.recordTargets(ctx); err != nil {
		return err
	}
	loopCtx, stopLoops := context.WithCancel(context.WithoutCancel(ctx))
	var loops sync.WaitGroup
	upkeepCtx, stopUpkeep := context.WithCancel(loopCtx)
	decideCtx, stopDeciding := context.WithCancel(ctx)
	defer stopDeciding()
	loops.Go(func() { s.database.run(loopCtx, func() { stopUpkeep(); stopDeciding() }) })
	loops.Go(func() { s.Sequence(upkeepCtx, s.log) })
	loops.Go(func() { projector{s.index, s.log}.run(upkeepCtx) })
	loops.Go(func() { s.keeper.Run(upkeepCtx) })
	loops.Go(func() {
		if casework.Sleep(upkeepCtx, escrowsStartAfter, nil) {
			s.escrows.run(upkeepCtx)
		}
	})
	loops.Go(func() { s.webhooks.Run(upkeepCtx) })
	loops.Go(func() { s.plans.Run(decideCtx) })
	loops.Go(func() { s.rules.Run(decideCtx) })
	loops.Go(func() { s.lookups.Run(decideCtx) })
	defer loops.Wait()
	defer stopLoops()
	defer stopUpkeep()
	defer end() // the loops need not have ended for Close to go on
	return s.engine.Run(ctx)
}

// beginRun returns the context of Run, which Close ends, and what ends the call that Close waits for.
func (s *Service) beginRun(ctx context.Context) (_ context.Context, end func(), err error) {
	if !s.runs.begin() {
		return ctx, nil, ErrClosed
	}
	ctx, cancel := context.WithCancel(ctx)
	unlink := context.AfterFunc(s.closing, cancel)
	return ctx, sync.OnceFunc(func() { unlink(); cancel(); s.runs.end() }), nil
}

// escrowsStartAfter is when the deltas of escrows are first folded: the loops of the engine start before,
// and open the connections that this reads on.
const escrowsStartAfter = 250 * time.Millisecond

// Prune runs a round of retention now, as Run does at intervals. Report counts what it did.
func (s *Service) Prune(ctx context.Context) (retention.Report, error) { return s.keeper.Prune(ctx) }

// ApplyRules runs a round of the rules now, as Run does at intervals. Report counts what it did.
func (s *Service) ApplyRules(ctx context.Context) (replay.Report, error) { return s.rules.Apply(ctx) }

// Close stops Run. It then waits for the calls of Submit, SubmitTx, SubmitBatch, SubmitTask and RunAgain
// that are in progress; those that begin after it return ErrClosed, and so does what a call of SubmitBatch
// has not begun. Then it sends the notifications that still wait if Redis answers within seconds, and
// closes the connections to Redis and Postgres. It returns the error of closing Redis. Any other call must
// have returned before. A submission that was answered needs no Close: it is committed.
func (s *Service) Close() error {
	s.beginClosing()
	s.runs.close() // attempts that end within Config.Grace may submit
	s.submissions.calls.close()
	err := s.engine.Close()
	s.subscribers.close(s.grace)
	s.index.Close()
	s.journal.Close()
	return err
}

// written returns how many transitions of runs, new ones included, this process has written.
func (s *Service) written() uint64 {
	transitions, opens := s.journal.BatchStats()
	return transitions.Rows + opens.Rows
}

// now returns the time in UTC and whole microseconds, the precision of Postgres.
func (s *Service) now() time.Time { return s.engine.Now() }

// Migrate migrates the schema of a database to this program's version. It returns the
// version before and after.
func Migrate(ctx context.Context, databaseURL string) (from, to int64, err error) {
	return schema.Migrate(ctx, databaseURL)
}

// Migration is a Migrate that also names the role that processes connect as. The role owns
// nothing, and Run grants it what processes need. Run returns ErrAppRole if the role could do more.
type Migration = schema.Migration

// Migrated is the result of a Migration.
type Migrated = schema.MigrationResult

// ErrAppRole means that processes must not connect as a role: it does not exist, is a superuser,
// may create roles, owns the schema, or is a member of such a role.
var ErrAppRole = schema.ErrAppRole

// ErrNoRedis means that a Service was opened without a Redis. It reads and writes as any
// other: the sweeper of a process that executes enqueues its runs. It does not Run.
var ErrNoRedis = engine.ErrNoRedis
