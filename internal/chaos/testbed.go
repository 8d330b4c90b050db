package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"github.com/hibiken/asynq"
	_ "github.com/lib/pq" // the driver
	"github.com/redis/go-redis/v9"

	"github.com/recourse-dev/recourse/internal/chaos/remote"
	"github.com/recourse-dev/recourse/internal/chaos/worker"
	"github.com/recourse-dev/recourse/internal/fakeescrow"
	"github.com/recourse-dev/recourse/internal/localpg"
	"github.com/recourse-dev/recourse/internal/localredis"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/escrowhttp"
)

const (
	timeLimit  = time.Second
	lateDelay  = 1600 * time.Millisecond // a late answer comes after the time limit
	replicaLag = time.Second             // how far behind a replica is

	briefLifetime = 12 * time.Second // of the keys of the service that soon forgets them
	briefWait     = 15 * time.Second // that it asks to wait for: past that, and past briefInFlight
	briefInFlight = 3 * time.Second
)

// testbed is everything that can be broken, with connections that bypass the proxies.
type testbed struct {
	dir              string
	postgres         *localpg.Server
	redis            *localredis.Server
	escrow           *fakeescrow.Service
	brief            *fakeescrow.Service // soon forgets keys
	proxies          map[string]*proxy   // postgres, redis, escrow, jobs
	log              *os.File            // of the workers
	fleet            *fleet
	jobs             *remoteJobs // nil: there are none
	tampering        *tamperLog
	load             *load
	clockFaults      []clockFault              // when a worker's clock was far off
	clockSettings    remote.Clock              // of the database
	clockDelay       time.Duration             // as of clockDelay
	unreadableRuns   []string                  // runs that were unreadable for a while
	originalPolicies map[string]string         // policies of runs that were made unreadable
	operatorService  *postadjudication.Service // of the people: bypasses the proxies, and executes nothing

	db          *sql.DB
	redisClient *redis.Client
	asynqClient *asynq.Client
	inspector   *asynq.Inspector
	closers     []func() error
}

func openTestbed(ctx context.Context, o options) (a *testbed, err error) {
	a = &testbed{proxies: map[string]*proxy{}, tampering: newTamperLog(), originalPolicies: map[string]string{}, unreadableRuns: []string{}, clockDelay: clockDelay(o.lostAfter)}
	defer func() {
		if err != nil {
			err = errors.Join(err, a.close())
		}
	}()
	if a.dir, err = os.MkdirTemp("", "recourse-chaos-"); err != nil {
		return a, err
	}
	if err := os.Chmod(a.dir, 0o755); err != nil { // the servers may run as another user
		return a, err
	}
	if err := a.openServers(ctx, o); err != nil {
		return a, err
	}
	if a.log, err = os.Create(filepath.Join(a.dir, "workers.log")); err != nil {
		return a, err
	}
	a.closers = append(a.closers, a.log.Close)
	direct, err := localpg.WithClock(a.postgres.AppURL("postgres"))
	if err != nil {
		return a, err
	}
	databaseURL, err := viaProxy(direct, a.proxies["postgres"])
	if err != nil {
		return a, err
	}
	redisURL, err := viaProxy(a.redis.URL(), a.proxies["redis"])
	if err != nil {
		return a, err
	}
	if a.operatorService, err = a.openOperatorService(ctx, o, direct); err != nil {
		return a, err
	}
	a.closers = append(a.closers, a.operatorService.Close)
	a.fleet, err = openFleet(o.workers, a.log, worker.Settings{
		DatabaseURL: databaseURL, RedisURL: redisURL, EscrowURL: "http://" + a.proxies["escrow"].addr(), Brief: briefSettings(a.brief),
		LostAfter: o.lostAfter, TimeLimit: timeLimit, Grace: 2 * timeLimit, BaseDelay: 25 * time.Millisecond, Slots: 32, KeyLifetime: o.keyLifetime, InFlight: o.inFlight, Asynchronous: o.keyLifetime / 2, RemoteKeyLifetime: o.remoteKeyLifetime(),
	})
	if err != nil {
		return a, err
	}
	return a, a.openJobsProxy(o.seed)
}

func (a *testbed) openServers(ctx context.Context, o options) (err error) {
	if a.postgres, err = localpg.Start(ctx, localpg.Options{Dir: filepath.Join(a.dir, "postgres"), Durable: true, MaxConnections: 300}); err != nil {
		return err
	}
	a.closers = append(a.closers, a.postgres.Stop)
	if a.redis, err = localredis.Start(ctx, localredis.Options{Dir: filepath.Join(a.dir, "redis"), AppendOnly: o.appendOnly}); err != nil {
		return err
	}
	a.closers = append(a.closers, a.redis.Stop)
	if a.escrow, err = fakeescrow.Start(fakeescrow.Config{Late: lateDelay, KeyLifetime: o.keyLifetime, Lag: replicaLag}); err != nil {
		return err
	}
	a.closers = append(a.closers, func() error { a.escrow.Close(); return nil })
	if a.brief, err = fakeescrow.Start(fakeescrow.Config{Late: lateDelay, KeyLifetime: briefLifetime, LookupLifetime: time.Hour, Wait: briefWait, Lag: replicaLag}); err != nil {
		return err
	}
	a.closers = append(a.closers, func() error { a.brief.Close(); return nil })
	if _, err := (postadjudication.Migration{DatabaseURL: a.postgres.URL("postgres"), AppRole: localpg.AppRole}).Run(ctx); err != nil {
		return err
	}
	for name, server := range map[string]string{"postgres": a.postgres.URL("postgres"), "redis": a.redis.URL(), "escrow": a.escrow.URL()} {
		u, err := url.Parse(server)
		if err != nil {
			return err
		}
		if a.proxies[name], err = newProxy(u.Host); err != nil {
			return err
		}
		a.closers = append(a.closers, a.proxies[name].close)
	}
	if err := a.openDirectClients(); err != nil {
		return err
	}
	return localpg.MakeClock(ctx, a.db)
}

// openDirectClients opens connections that bypass the proxies.
func (a *testbed) openDirectClients() (err error) {
	if a.db, err = sql.Open("postgres", a.postgres.URL("postgres")); err != nil {
		return err
	}
	a.db.SetMaxOpenConns(8)
	a.closers = append(a.closers, a.db.Close)
	a.redisClient = redis.NewClient(&redis.Options{Addr: a.redis.Addr(), Password: a.redis.Password()})
	a.asynqClient = asynq.NewClient(asynq.RedisClientOpt{Addr: a.redis.Addr(), Password: a.redis.Password()})
	a.inspector = asynq.NewInspector(asynq.RedisClientOpt{Addr: a.redis.Addr(), Password: a.redis.Password()})
	a.closers = append(a.closers, a.redisClient.Close, a.asynqClient.Close, a.inspector.Close)
	return nil
}

// openOperatorService opens a service that executes nothing, and can look up at the escrow service.
func (a *testbed) openOperatorService(ctx context.Context, o options, databaseURL string) (*postadjudication.Service, error) {
	calls, err := escrowhttp.New(escrowhttp.Config{BaseURL: a.escrow.URL(), KeyLifetime: o.keyLifetime, InFlight: o.inFlight, Asynchronous: o.keyLifetime / 2})
	if err != nil {
		return nil, err
	}
	targets, err := briefSettings(a.brief).Targets("operators", func(worker.Statement) {}) // it executes nothing
	if err != nil {
		return nil, err
	}
	return postadjudication.Open(ctx, postadjudication.Config{
		Targets:     targets,
		DatabaseURL: databaseURL, Redis: asynq.RedisClientOpt{Addr: a.redis.Addr(), Password: a.redis.Password()},
		Families: []postadjudication.PlainFamily{worker.PlainFamily()}, Jobs: true, PaymentQueues: []string{remote.PayQueue}, Executor: calls, TimeLimit: timeLimit, LostAfter: o.lostAfter,
		Remote: postadjudication.RemoteWorkers{KeyLifetime: o.remoteKeyLifetime()},
	})
}

// viaProxy returns a URL that leads through a proxy.
func viaProxy(server string, p *proxy) (string, error) {
	u, err := url.Parse(server)
	if err != nil {
		return "", err
	}
	u.Host = p.addr()
	return u.String(), nil
}

// heal repairs everything that a fault may have left broken.
func (a *testbed) heal(ctx context.Context) error {
	for _, p := range a.proxies {
		p.setMode(modePass, 0)
	}
	if err := a.fleet.heal(); err != nil {
		return err
	}
	if err := a.restorePostgres(ctx); err != nil {
		return err
	}
	if err := a.restoreRedis(ctx); err != nil {
		return err
	}
	queues, err := a.inspector.Queues()
	if err != nil {
		return err
	}
	for _, q := range queues {
		info, err := a.inspector.GetQueueInfo(q)
		if err == nil && info.Paused {
			err = a.inspector.UnpauseQueue(q)
		}
		if err != nil && !errors.Is(err, asynq.ErrQueueNotFound) {
			return err
		}
	}
	return nil
}

// restorePostgres starts Postgres unless it answers.
func (a *testbed) restorePostgres(ctx context.Context) error {
	if a.db.PingContext(ctx) == nil {
		return nil
	}
	return a.postgres.Restart(ctx, localpg.Immediate)
}

// restoreRedis starts Redis unless it answers, and lifts its memory limit.
func (a *testbed) restoreRedis(ctx context.Context) error {
	if a.redisClient.Ping(ctx).Err() != nil {
		if err := a.redis.Restart(ctx); err != nil {
			return err
		}
	}
	// For a moment the client still returns its last failure to connect.
	for began := time.Now(); ; sleep(ctx, 100*time.Millisecond) {
		err := a.redisClient.ConfigSet(ctx, "maxmemory", "0").Err()
		if err == nil || time.Since(began) > 5*time.Second {
			return err
		}
	}
}

// close closes everything in reverse order. The directory stays.
func (a *testbed) close() error {
	errs := []error{a.jobs.stop()}
	if a.fleet != nil {
		errs = append(errs, a.fleet.kill())
	}
	for i := len(a.closers) - 1; i >= 0; i-- {
		errs = append(errs, a.closers[i]())
	}
	a.closers = nil
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("closing the testbed: %w", err)
	}
	return nil
}
