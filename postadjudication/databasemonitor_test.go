package postadjudication_test

import (
	"context"
	"errors"
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
	"github.com/recourse-dev/recourse/internal/testkit"
	"github.com/recourse-dev/recourse/internal/testkit/poll"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/audit"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/internal/rig"
)

// A worker whose database was migrated to a newer version reports it and claims nothing more.
func TestAWorkerThatIsOlderThanTheSchemaClaimsNothing(t *testing.T) {
	t.Parallel()
	r := rig.New(t).StartWorkers()
	r.MustNotify(r.MustSubmit(rig.Release(1)))
	r.WaitNoneLive()
	if _, err := r.DB.Exec(`INSERT INTO recourse.schema_version (version_id, is_applied) VALUES (999999, true)`); err != nil {
		t.Fatal(err)
	}
	r.Wait("it is not ready, and says why", func() bool {
		err := r.Health().Check(context.Background())
		return errors.Is(err, postadjudication.ErrSchema) && strings.Contains(err.Error(), "newer than this program's")
	})
	s := r.MustSubmit(rig.Release(2))
	r.MustNotify(s)
	beats := r.Beat()
	r.Wait("it continues to beat", func() bool { return r.Beat() > beats+3 })
	if st, err := r.Status(context.Background(), "acme", s.Run); err != nil || st.State != background.Pending || st.Attempts != 0 || r.Escrow.TotalCalls() != 1 {
		t.Errorf("%+v after %d calls, %v", st, r.Escrow.TotalCalls(), err)
	}
}

// Triggers turned off while a worker runs keep it from claiming until they are on again.
func TestNothingIsClaimedWhileTriggersAreOff(t *testing.T) {
	t.Parallel()
	r := rig.New(t).StartWorkers()
	r.WaitNoneLive()
	if _, err := r.DB.Exec(`ALTER TABLE recourse.runs DISABLE TRIGGER never_changed`); err != nil {
		t.Fatal(err)
	}
	r.Wait("it is not ready, and names the trigger", func() bool {
		err := r.Health().Check(context.Background())
		return errors.Is(err, postadjudication.ErrUnsuitable) && strings.Contains(err.Error(), "runs.never_changed")
	})
	s := r.MustSubmit(rig.Release(1))
	r.MustNotify(s)
	beats := r.Beat()
	r.Wait("it continues to beat", func() bool { return r.Beat() > beats+3 })
	if st := r.StatusOf(s.Run); st.State != background.Pending || st.Attempts != 0 || r.Escrow.TotalCalls() != 0 {
		t.Errorf("%+v after %d calls", st, r.Escrow.TotalCalls())
	}
	if _, _, err := postadjudication.Migrate(context.Background(), testkit.Owner(t, r.DatabaseURL)); err != nil {
		t.Fatal(err)
	}
	r.WaitNoneLive()
	if st := r.StatusOf(s.Run); st.State != background.Succeeded {
		t.Errorf("%+v", st)
	}
	if err := r.Health().Check(context.Background()); err != nil {
		t.Error(err)
	}
	r.MustAudit()
}

// A function that protects receipts, and was hollowed out after the process opened the database, keeps it from claiming.
func TestNothingIsClaimedWhileAGuardIsChanged(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	if _, err := r.DB.Exec(`CREATE OR REPLACE FUNCTION recourse.refuse_rewrite() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'`); err != nil {
		t.Fatal(err)
	}
	r.StartWorkers()
	named := func() bool {
		err := r.Health().Check(context.Background())
		return errors.Is(err, postadjudication.ErrUnsuitable) && strings.Contains(err.Error(), "refuse_rewrite")
	}
	poll.Within(t, time.Minute, "it is not ready, and names the function", named)
	s := r.MustSubmit(rig.Release(1))
	r.MustNotify(s)
	beats := r.Beat()
	r.Wait("it continues to beat", func() bool { return r.Beat() > beats+3 })
	if st := r.StatusOf(s.Run); st.State != background.Pending || r.Escrow.TotalCalls() != 0 || !named() {
		t.Errorf("%+v after %d calls", st, r.Escrow.TotalCalls())
	}
	if _, _, err := postadjudication.Migrate(context.Background(), testkit.Owner(t, r.DatabaseURL)); err != nil {
		t.Fatal(err)
	}
	r.WaitNoneLive()
	r.MustAudit()
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
			r := rig.New(t, func(c *postadjudication.Config) { c.Lookups = postadjudication.LookupRule{} })
			var asked atomic.Int64
			r.Escrow.ScriptLookups(func(escrow.Call) escrow.Answer { asked.Add(1); return rig.NoAnswer() })
			r.StartWorkers()
			r.DeadLetters(1, 2, rig.GivesNoAnswer)
			testkit.Tamper(t, r.DB, change)
			r.Wait("it is not ready, and says why", func() bool {
				err := r.Health().Check(context.Background())
				return errors.Is(err, postadjudication.ErrUnsuitable) && strings.Contains(err.Error(), "another database")
			})
			var first string
			if err := r.DB.QueryRow(`DELETE FROM recourse.sessions RETURNING worker`).Scan(&first); err != nil { // this database has no row of it
				t.Fatal(err)
			}
			calls, lookups := r.Escrow.TotalCalls(), asked.Load()
			_, elsewhere := testkit.Redis(t)
			other := rig.Join(t, r.DatabaseURL, elsewhere, rig.NewEscrow(), func(c *postadjudication.Config) { c.Lookups = postadjudication.LookupRule{} })
			var answered atomic.Bool
			other.Escrow.ScriptLookups(func(c escrow.Call) escrow.Answer { answered.Store(true); return rig.NoAnswer() })
			other.StartWorkers()
			other.MustNotify(other.MustSubmit(rig.Release(3)))
			other.WaitRuns(1, rig.Runs{RetryKey: "txr_3:release", State: background.Succeeded})
			other.Wait("it looks up unknown outcomes", answered.Load)
			if r.Escrow.TotalCalls() != calls || asked.Load() > lookups+1 { // one may have been in flight
				t.Errorf("%d calls and %d lookups, were %d and %d", r.Escrow.TotalCalls(), asked.Load(), calls, lookups)
			}
			if n := r.Count(`SELECT count(*) FROM recourse.sessions WHERE worker = $1`, first); n != 0 {
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
	if _, err := (postadjudication.Migration{DatabaseURL: server.URL("postgres"), AppRole: localpg.AppRole}).Run(ctx); err != nil {
		t.Fatal(err)
	}
	url := server.AppURL("postgres")
	_, redis := testkit.Redis(t)
	r := rig.Join(t, url, redis, rig.NewEscrow())
	r.Escrow.ScriptLookups(rig.GivesNoAnswer)
	r.StartWorkers()
	r.DeadLetters(1, 2, rig.GivesNoAnswer)
	r.WaitRuns(1, rig.Runs{Letter: background.LetterOpen, Class: escrow.Unknown})
	r.Wait("the timeline is recorded", func() bool { return r.Count(`SELECT timeline FROM recourse.installation`) == 1 })
	if over := r.Health().Failover(); over != nil {
		t.Errorf("reported without a failover: %+v", over)
	}
	r.StopWorkers()
	stop()

	if err := os.WriteFile(filepath.Join(cluster, "data", "standby.signal"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if server, err = localpg.Start(ctx, localpg.Options{Dir: cluster}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop() })
	config := postadjudication.Config{DatabaseURL: server.AppURL("postgres"), Redis: redis, Executor: r.Escrow}
	if s, err := postadjudication.Open(ctx, config); !errors.Is(err, postadjudication.ErrUnsuitable) || !strings.Contains(err.Error(), "standby") {
		t.Fatalf("%v, %v", s, err)
	}
	audits := config
	audits.AllowUnsuitable, audits.Executor = true, nil
	s, err := postadjudication.Open(ctx, audits)
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

	promoted := testkit.OpenAsOwner(t, server.URL("postgres"))
	if _, err := promoted.Exec(`SELECT pg_promote()`); err != nil {
		t.Fatal(err)
	}
	joined := rig.Join(t, server.AppURL("postgres"), redis, r.Escrow)
	joined.StartWorkers()
	joined.Wait("the failover is reported, with what was decided before", func() bool { over := joined.Health().Failover(); return over != nil && over.Counted })
	over := joined.Health().Failover()
	if over.From != 1 || over.To != 2 || len(over.Tenants) != 1 || over.Tenants[0].Tenant != "acme" || over.Tenants[0].Unknown == 0 {
		t.Errorf("%+v", over)
	}
	if !strings.Contains(over.Command("acme"), "recourse dlq list --tenant acme") {
		t.Error(over.Command("acme"))
	}
}

// A Redis of another database, or one other than that in use, is refused before anything is
// claimed. A Redis that was emptied is restored.
func TestARedisThatIsNotThisDatabasesIsRefused(t *testing.T) {
	t.Parallel()
	r := rig.New(t).StartWorkers()
	r.Wait("its Redis is recorded", func() bool { return r.Count(`SELECT count(*) FROM recourse.sessions WHERE redis IS NOT NULL`) == 1 })
	client := redis.NewClient(&redis.Options{Addr: r.Redis.(asynq.RedisClientOpt).Addr, Password: r.Redis.(asynq.RedisClientOpt).Password})
	defer func() { _ = client.Close() }()
	r.Wait("its Redis carries the database's identity", func() bool { return client.Get(t.Context(), "recourse:database").Val() != "" })
	refused := func(what, databaseURL string, redis asynq.RedisConnOpt, word string) {
		t.Helper()
		s, err := postadjudication.Open(context.Background(), postadjudication.Config{DatabaseURL: databaseURL, Redis: redis, Executor: r.Escrow})
		if err == nil {
			_ = s.Close() // the test has failed already
		}
		if !errors.Is(err, postadjudication.ErrRedis) || !strings.Contains(err.Error(), word) {
			t.Errorf("%s: %v", what, err)
		}
	}
	refused("another database's", testkit.Migrated(t), r.Redis, "another database")
	_, second := testkit.Redis(t)
	refused("another than the one in use", r.DatabaseURL, second, "uses another one")
	logical := r.Redis.(asynq.RedisClientOpt)
	logical.DB = 7
	refused("another logical database", r.DatabaseURL, logical, "uses another one")

	if err := client.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	rig.Join(t, r.DatabaseURL, r.Redis, r.Escrow)
	r.MustSubmit(rig.Release(1))
	r.WaitNoneLive()
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
	url, e := testkit.Migrated(t), rig.NewEscrow()
	for deadline := time.Now().Add(time.Minute); !strings.Contains(client.ClusterInfo(t.Context()).Val(), "cluster_state:ok"); runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatal("the Cluster does not start")
		}
	}
	if s, err := postadjudication.Open(t.Context(), postadjudication.Config{DatabaseURL: url, Redis: asynq.RedisClientOpt{Addr: node.Addr(), Password: node.Password()}, Executor: e}); !errors.Is(err, postadjudication.ErrRedis) || !strings.Contains(err.Error(), "redis-cluster://") {
		t.Fatalf("%v, %v", s, err)
	}
	r := rig.Join(t, url, asynq.RedisClusterClientOpt{Addrs: []string{node.Addr()}, Password: node.Password()}, e).StartWorkers()
	r.MustNotify(r.MustSubmit(rig.Release(1)))
	r.WaitNoneLive()
	if r.Escrow.TotalCalls() != 1 {
		t.Errorf("%d calls", r.Escrow.TotalCalls())
	}
	r.Wait("it is ready", func() bool { return r.Health().Check(context.Background()) == nil })
}

// Whether real money may be moved depends on the mark in the database, whoever opens it.
func TestARealExecutorIsNotRunOnADemonstration(t *testing.T) {
	t.Parallel()
	r := rig.New(t, func(c *postadjudication.Config) { c.Demonstration = true })
	if err := r.Health().MayRun(); err != nil {
		t.Fatal(err)
	}
	s := r.MustSubmit(rig.Release(1))
	_, redis := testkit.Redis(t)
	real := rig.Join(t, r.DatabaseURL, redis, rig.NewEscrow())
	if err := real.Run(context.Background()); !errors.Is(err, postadjudication.ErrDemonstration) || !errors.Is(real.Health().MayRun(), postadjudication.ErrDemonstration) {
		t.Errorf("%v, %v", err, real.Health().MayRun())
	}
	if st, err := real.Status(context.Background(), "acme", s.Run); err != nil || st.State != background.Pending {
		t.Errorf("%+v, %v", st, err)
	}
	r.StartWorkers().WaitNoneLive()
	r.MustAudit()
}

// A process refuses a database that can't keep every text.
func TestADatabaseOfAnotherEncodingIsNotOpened(t *testing.T) {
	t.Parallel()
	url := testkit.Migrated(t)
	_, redis := testkit.Redis(t)
	testkit.SetEncoding(t, url, "LATIN1")
	s, err := postadjudication.Open(t.Context(), postadjudication.Config{DatabaseURL: url, Redis: redis, Executor: rig.NewEscrow()})
	if !errors.Is(err, postadjudication.ErrUnsuitable) || !strings.Contains(err.Error(), "LATIN1") {
		t.Errorf("%v, %v", s, err)
	}
}
