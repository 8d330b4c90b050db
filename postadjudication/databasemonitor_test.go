package postadjudication

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/localpg"
	"github.com/recourse-dev/recourse/internal/localredis"
	"github.com/recourse-dev/recourse/internal/schema"
	"github.com/recourse-dev/recourse/internal/testkit"
	"github.com/recourse-dev/recourse/postadjudication/audit"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/internal/casework"
)

// A worker whose database was migrated to a newer version reports it and claims nothing more.
func TestAWorkerThatIsOlderThanTheSchemaClaimsNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t).startWorkers()
	r.mustNotify(r.mustSubmit(release(1)))
	r.untilNoneLive()
	if _, err := r.db.Exec(`INSERT INTO recourse.schema_version (version_id, is_applied) VALUES (999999, true)`); err != nil {
		t.Fatal(err)
	}
	r.untilTrue("it is not ready, and says why", func() bool {
		err := r.Health().Check(context.Background())
		return errors.Is(err, ErrSchema) && strings.Contains(err.Error(), "newer than this program's")
	})
	s := r.mustSubmit(release(2))
	r.mustNotify(s)
	beats := r.count(`SELECT max(beat) FROM recourse.sessions`)
	r.untilTrue("it continues to beat", func() bool { return r.count(`SELECT max(beat) FROM recourse.sessions`) > beats+3 })
	if st, err := r.Status(context.Background(), "acme", s.Run); err != nil || st.State != background.Pending || st.Attempts != 0 || r.escrow.totalCalls() != 1 {
		t.Errorf("%+v after %d calls, %v", st, r.escrow.totalCalls(), err)
	}
}

// Triggers turned off while a worker runs keep it from claiming until they are on again.
func TestNothingIsClaimedWhileTriggersAreOff(t *testing.T) {
	t.Parallel()
	r := newRig(t).startWorkers()
	r.untilNoneLive()
	if _, err := r.db.Exec(`ALTER TABLE recourse.runs DISABLE TRIGGER never_changed`); err != nil {
		t.Fatal(err)
	}
	r.untilTrue("it is not ready, and names the trigger", func() bool {
		err := r.Health().Check(context.Background())
		return errors.Is(err, ErrUnsuitable) && strings.Contains(err.Error(), "runs.never_changed")
	})
	s := r.mustSubmit(release(1))
	r.mustNotify(s)
	beats := r.count(`SELECT max(beat) FROM recourse.sessions`)
	r.untilTrue("it continues to beat", func() bool { return r.count(`SELECT max(beat) FROM recourse.sessions`) > beats+3 })
	if st := r.status(s.Run); st.State != background.Pending || st.Attempts != 0 || r.escrow.totalCalls() != 0 {
		t.Errorf("%+v after %d calls", st, r.escrow.totalCalls())
	}
	if _, _, err := Migrate(context.Background(), testkit.Owner(t, r.url)); err != nil {
		t.Fatal(err)
	}
	r.untilNoneLive()
	if st := r.status(s.Run); st.State != background.Succeeded {
		t.Errorf("%+v", st)
	}
	if err := r.Health().Check(context.Background()); err != nil {
		t.Error(err)
	}
	r.mustAudit()
}

// If the opened database is replaced by another, or loses its identity, the process claims,
// looks up and decides nothing, and does not register.
func TestADatabaseThatIsAnotherOneThanWasOpenedIsNotWorkedOn(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]string{
		"another one":         `UPDATE recourse.installation SET id = gen_random_uuid()`,
		"without an identity": `DELETE FROM recourse.installation`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, func(c *Config) { c.Lookups = casework.LookupRule{} })
			var asked atomic.Int64
			r.escrow.lookup = func(escrow.Call) escrow.Answer { asked.Add(1); return noAnswer() }
			r.startWorkers()
			r.deadLetters(1, 2, func(escrow.Call) escrow.Answer { return noAnswer() })
			if _, err := r.db.Exec(change); err != nil {
				t.Fatal(err)
			}
			r.untilTrue("it is not ready, and says why", func() bool {
				err := r.Health().Check(context.Background())
				return errors.Is(err, ErrUnsuitable) && strings.Contains(err.Error(), "another database")
			})
			var first string
			if err := r.db.QueryRow(`DELETE FROM recourse.sessions RETURNING worker`).Scan(&first); err != nil { // this database has no row of it
				t.Fatal(err)
			}
			calls, lookups := r.escrow.totalCalls(), asked.Load()
			_, elsewhere := testkit.Redis(t)
			other := joinRig(t, r.url, elsewhere, newEscrow(), func(c *Config) { c.Lookups = casework.LookupRule{} })
			var answered atomic.Bool
			other.escrow.lookup = func(c escrow.Call) escrow.Answer { answered.Store(true); return noAnswer() }
			other.startWorkers()
			other.mustNotify(other.mustSubmit(release(3)))
			other.until("a process that opens it now executes", `SELECT EXISTS (SELECT FROM recourse.runs WHERE retry_key = 'txr_3:release' AND state = 'succeeded')`)
			other.untilTrue("it looks up unknown outcomes", answered.Load)
			if r.escrow.totalCalls() != calls || asked.Load() > lookups+1 { // one may have been in flight
				t.Errorf("%d calls and %d lookups, were %d and %d", r.escrow.totalCalls(), asked.Load(), calls, lookups)
			}
			if n := r.count(`SELECT count(*) FROM recourse.sessions WHERE worker = $1`, first); n != 0 {
				t.Errorf("it registered %d times", n)
			}
		})
	}
}

// A standby takes no writes: it can be opened for audits only. Once promoted it is used for
// work, and every process reports that the last commits may be lost.
func TestAStandbyIsRefusedAndAFailoverIsReported(t *testing.T) {
	t.Parallel()
	ctx, dir := context.Background(), t.TempDir()
	for at := dir; at != os.TempDir() && at != "/"; at = filepath.Dir(at) {
		if err := os.Chmod(at, 0o755); err != nil { // the server runs as another user
			t.Fatal(err)
		}
	}
	cluster := filepath.Join(dir, "cluster")
	server, err := localpg.Start(ctx, localpg.Options{Dir: cluster})
	if err != nil {
		t.Fatal(err)
	}
	stop := func() {
		if err := server.Stop(); err != nil {
			t.Error(err)
		}
	}
	if _, err := (Migration{DatabaseURL: server.URL("postgres"), AppRole: localpg.AppRole}).Run(ctx); err != nil {
		t.Fatal(err)
	}
	url := server.AppURL("postgres")
	_, redis := testkit.Redis(t)
	r := joinRig(t, url, redis, newEscrow())
	r.escrow.lookup = func(escrow.Call) escrow.Answer { return noAnswer() }
	r.startWorkers()
	r.deadLetters(1, 2, func(escrow.Call) escrow.Answer { return noAnswer() })
	r.until("it is a letter of unknown outcome", `SELECT EXISTS (SELECT FROM recourse.runs WHERE letter = 'open' AND class = 'unknown')`)
	r.untilTrue("the timeline is recorded", func() bool { return r.count(`SELECT timeline FROM recourse.installation`) == 1 })
	if over := r.Health().Failover(); over != nil {
		t.Errorf("reported without a failover: %+v", over)
	}
	r.stopWork()
	r.stopWork = func() {}
	stop()

	if err := os.WriteFile(filepath.Join(cluster, "data", "standby.signal"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if server, err = localpg.Start(ctx, localpg.Options{Dir: cluster}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop() })
	config := Config{DatabaseURL: server.AppURL("postgres"), Redis: redis, Executor: r.escrow}
	if s, err := Open(ctx, config); !errors.Is(err, ErrUnsuitable) || !strings.Contains(err.Error(), "standby") {
		t.Fatalf("%v, %v", s, err)
	}
	audits := config
	audits.AllowUnsuitable, audits.Executor = true, nil
	s, err := Open(ctx, audits)
	if err != nil {
		t.Fatal(err)
	}
	if a, err := audit.Run(ctx, s.AuditReader(), s.AuditQuery()); err != nil || !a.OK() {
		t.Errorf("%+v, %v", a, err)
	}
	auditor, err := audit.Open(ctx, config.DatabaseURL)
	if err != nil {
		t.Fatal(err)
	}
	if a, err := audit.Run(ctx, auditor, audit.Query{}); err != nil || !a.OK() {
		t.Errorf("without a Service: %+v, %v", a, err)
	}
	if err := auditor.Close(); err != nil {
		t.Error(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}

	promoted := openAsOwner(t, server.URL("postgres"))
	if _, err := promoted.Exec(`SELECT pg_promote()`); err != nil {
		t.Fatal(err)
	}
	joined := joinRig(t, server.AppURL("postgres"), redis, r.escrow)
	joined.startWorkers()
	joined.untilTrue("the failover is reported, with what was decided before", func() bool { over := joined.Health().Failover(); return over != nil && over.Counted })
	over := joined.Health().Failover()
	if over.From != 1 || over.To != 2 || len(over.Tenants) != 1 || over.Tenants[0].Tenant != "acme" || over.Tenants[0].Unknown == 0 {
		t.Errorf("%+v", over)
	}
	if !strings.Contains(over.Command("acme"), "recourse dlq list --tenant acme") {
		t.Error(over.Command("acme"))
	}
}

func openAsOwner(t *testing.T, url string) *sql.DB {
	t.Helper()
	db, err := sql.Open("postgres", testkit.Owner(t, url))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db
}

// A Redis of another database, or one other than that in use, is refused before anything is
// claimed. A Redis that was emptied is restored.
func TestARedisThatIsNotThisDatabasesIsRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t).startWorkers()
	r.untilTrue("its Redis is recorded", func() bool { return r.count(`SELECT count(*) FROM recourse.sessions WHERE redis IS NOT NULL`) == 1 })
	client := redis.NewClient(&redis.Options{Addr: r.redis.(asynq.RedisClientOpt).Addr, Password: r.redis.(asynq.RedisClientOpt).Password})
	defer func() { _ = client.Close() }()
	r.untilTrue("its Redis carries the database's identity", func() bool { return client.Get(t.Context(), "recourse:database").Val() != "" })
	refused := func(what, databaseURL string, redis asynq.RedisConnOpt, word string) {
		t.Helper()
		s, err := Open(context.Background(), Config{DatabaseURL: databaseURL, Redis: redis, Executor: r.escrow})
		if err == nil {
			_ = s.Close() // the test has failed already
		}
		if !errors.Is(err, ErrRedis) || !strings.Contains(err.Error(), word) {
			t.Errorf("%s: %v", what, err)
		}
	}
	refused("another database's", testkit.Migrated(t), r.redis, "another database")
	_, second := testkit.Redis(t)
	refused("another than the one in use", r.url, second, "uses another one")
	logical := r.redis.(asynq.RedisClientOpt)
	logical.DB = 7
	refused("another logical database", r.url, logical, "uses another one")

	if err := client.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	joinRig(t, r.url, r.redis, r.escrow)
	r.mustSubmit(release(1))
	r.untilNoneLive()
	if err := r.Health().Check(t.Context()); err != nil {
		t.Error(err)
	}
}

// A Cluster behind the URL of a single server serves only some of the queues.
func TestAClusterThatIsNamedAsOneServerIsRefusedAndByItsNameItWorks(t *testing.T) {
	t.Parallel()
	node, err := localredis.Start(t.Context(), localredis.Options{Cluster: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := node.Stop(); err != nil {
			t.Error(err)
		}
	})
	client := redis.NewClient(&redis.Options{Addr: node.Addr(), Password: node.Password()})
	defer func() { _ = client.Close() }()
	if err := client.ClusterAddSlotsRange(t.Context(), 0, 16383).Err(); err != nil {
		t.Fatal(err)
	}
	url, e := testkit.Migrated(t), newEscrow()
	for deadline := time.Now().Add(time.Minute); !strings.Contains(client.ClusterInfo(t.Context()).Val(), "cluster_state:ok"); runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatal("the Cluster does not start")
		}
	}
	if s, err := Open(t.Context(), Config{DatabaseURL: url, Redis: asynq.RedisClientOpt{Addr: node.Addr(), Password: node.Password()}, Executor: e}); !errors.Is(err, ErrRedis) || !strings.Contains(err.Error(), "redis-cluster://") {
		t.Fatalf("%v, %v", s, err)
	}
	r := joinRig(t, url, asynq.RedisClusterClientOpt{Addrs: []string{node.Addr()}, Password: node.Password()}, e).startWorkers()
	r.mustNotify(r.mustSubmit(release(1)))
	r.untilNoneLive()
	if r.escrow.totalCalls() != 1 {
		t.Errorf("%d calls", r.escrow.totalCalls())
	}
	r.untilTrue("it is ready", func() bool { return r.Health().Check(context.Background()) == nil })
}

// The reason in readiness names no database, trigger or target; the full error does.
func TestWhyADatabaseMayNotBeWorkedOnIsReportedByItsKind(t *testing.T) {
	t.Parallel()
	const named = "shop-7 on 10.1.2.3"
	for reason, err := range map[string]error{
		"this database may not be used":                            fmt.Errorf("%w: %w (%s)", ErrUnsuitable, background.ErrOtherDatabase, named),
		"the schema of the database is of another version":         fmt.Errorf("%w: %s", ErrSchema, named),
		"triggers of the database are off":                         fmt.Errorf("%w: %w (%s)", ErrUnsuitable, schema.ErrTriggersOff, named),
		"targets have other circuit breakers than in this process": fmt.Errorf("%w: %s", ErrTargets, named),
	} {
		c := &databaseMonitor{}
		if got := c.unready(); got != nil {
			t.Fatalf("without an error: %v", got)
		}
		c.problem.Store(&err)
		var u *Unready
		if got := c.unready(); !errors.As(got, &u) || u.Reason != reason || !errors.Is(got, err) || got.Error() != err.Error() {
			t.Errorf("%v: %q, want %q", got, u.Reason, reason)
		}
	}
}

// Whether real money may be moved depends on the mark in the database, whoever opens it.
func TestARealExecutorIsNotRunOnADemonstration(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *Config) { c.Demonstration = true })
	if err := r.Health().MayRun(); err != nil {
		t.Fatal(err)
	}
	s := r.mustSubmit(release(1))
	_, redis := testkit.Redis(t)
	real := joinRig(t, r.url, redis, newEscrow())
	if err := real.Run(context.Background()); !errors.Is(err, ErrDemonstration) || !errors.Is(real.Health().MayRun(), ErrDemonstration) {
		t.Errorf("%v, %v", err, real.Health().MayRun())
	}
	if st, err := real.Status(context.Background(), "acme", s.Run); err != nil || st.State != background.Pending {
		t.Errorf("%+v, %v", st, err)
	}
	r.startWorkers().untilNoneLive()
	r.mustAudit()
}
