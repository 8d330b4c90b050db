package postadjudication_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/background/circuit"
	"github.com/recourse-dev/recourse/internal/testkit"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/casestatus"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/internal/rig"
)

func breakerRecorded(r *rig.Rig, target string) (of string) {
	r.T.Helper()
	if err := r.DB.QueryRow(`SELECT coalesce((SELECT breaker FROM recourse.targets WHERE name = $1), '')`, target).Scan(&of); err != nil {
		r.T.Fatal(err)
	}
	return of
}

// runRefusedByTargets runs a rig that must refuse, and returns the error.
func runRefusedByTargets(r *rig.Rig) string {
	r.T.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	err := r.Run(ctx)
	if !errors.Is(err, postadjudication.ErrTargets) {
		r.T.Fatalf("Run: %v", err)
	}
	return err.Error()
}

// A process that does not execute records no targets.
func TestOnlyAProcessThatRunsRecordsTheBreakersOfItsTargets(t *testing.T) {
	t.Parallel()
	r := rig.New(t, withAliases("gold"))
	if n := r.CountRows("targets"); n != 0 {
		t.Errorf("%d targets are recorded by a process that was only opened", n)
	}
	if b, err := r.As(postadjudication.AllTenants, "ops:kim").Breakers.Open(context.Background(), "gold", "as configured here"); err != nil || b.Target != escrow.DefaultTarget {
		t.Errorf("%+v, %v", b, err)
	}
	r.StartWorkers().Wait("they are recorded", func() bool { return r.CountRows("targets") == 2 })
}

// A process can't change the circuit breaker of targets that running processes use.
func TestTheBreakerOfATargetThatIsCalledIsNotChanged(t *testing.T) {
	t.Parallel()
	url := testkit.Migrated(t)
	_, opt := testkit.Redis(t)
	e := rig.NewEscrow()
	r := rig.Join(t, url, opt, e, withTargets("gold"), func(c *postadjudication.Config) { c.Worker = "first" }).StartWorkers()
	r.WaitSessionCalls("gold")
	if why := runRefusedByTargets(rig.Join(t, url, opt, e, withAliases("gold"))); !strings.Contains(why, "first") || !strings.Contains(why, "gold") {
		t.Error(why)
	}
	if of := breakerRecorded(r, "gold"); of != "gold" {
		t.Errorf("it uses the circuit breaker of %q", of)
	}
	s := r.MustSubmit(withTarget("gold", rig.Release(1)))
	r.WaitState(s.Run, background.Succeeded)
	r.StopWorkers()
	next := rig.Join(t, url, opt, e, withAliases("gold")).StartWorkers()
	next.Wait("it is changed", func() bool { return breakerRecorded(next, "gold") == escrow.DefaultTarget })
	next.MustAudit()
}

// A process claims nothing while its targets use other circuit breakers than it has configured.
func TestAProcessWhoseTargetsGoByOtherBreakersClaimsNothing(t *testing.T) {
	t.Parallel()
	r := rig.New(t, withTargets("gold")).StartWorkers()
	r.WaitSessionCalls("gold")
	for _, to := range []string{escrow.DefaultTarget, "gold"} {
		if _, err := r.DB.Exec(`UPDATE recourse.targets SET breaker = $1 WHERE name = 'gold'`, to); err != nil {
			t.Fatal(err)
		}
		r.WaitBarredByServers(to != "gold")
	}
	r.MustSubmit(withTarget("gold", rig.Release(1)))
	r.WaitNoneLive()
	r.MustAudit()
}

// A breaker that is open stays in force when its target becomes an alias of an escrow service:
// nothing is executed under the alias until it is released by that name.
func TestABreakerThatIsOpenIsReleasedBeforeItsTargetBecomesAnotherName(t *testing.T) {
	t.Parallel()
	for name, tenant := range map[string]string{"over all tenants": postadjudication.AllTenants, "of a tenant": "acme"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := context.Background()
			url := testkit.Migrated(t)
			_, opt := testkit.Redis(t)
			e := rig.NewEscrow()
			before := rig.Join(t, url, opt, e, withTargets("gold"))
			if b, err := before.As(tenant, "ops:kim").Breakers.Open(ctx, "gold", "stop gold"); err != nil || b.Target != "gold" {
				t.Fatalf("%+v, %v", b, err)
			}
			before.MustSubmit(withTarget("gold", rig.Release(1)))
			r := rig.Join(t, url, opt, e, withAliases("gold"))
			if why := runRefusedByTargets(r); !strings.Contains(why, "gold") || !strings.Contains(why, "release it") || !strings.Contains(why, tenant) {
				t.Error(why)
			}
			if n := e.TotalCalls(); n != 0 {
				t.Errorf("%d calls", n)
			}
			if b, err := r.As(tenant, "ops:lee").Breakers.Open(ctx, "gold", "again"); err != nil || b.Target != "gold" || b.Actor != "ops:kim" {
				t.Errorf("%+v, %v", b, err)
			}
			for b := (casestatus.Breaker{}); b.State != circuit.Closed; {
				var err error
				if b, err = r.As(tenant, "ops:kim").Breakers.Release(ctx, "gold", "go"); err != nil || b.Target != "gold" {
					t.Fatalf("%+v, %v", b, err)
				}
			}
			r.StartWorkers().WaitNoneLive()
			if of := breakerRecorded(r, "gold"); of != escrow.DefaultTarget {
				t.Errorf("it uses the circuit breaker of %q", of)
			}
			r.MustAudit()
		})
	}
}

// A process that does not call a target leaves its open circuit breaker to those that do.
func TestABreakerIsLedByAProcessThatCallsItsTarget(t *testing.T) {
	t.Parallel()
	r := rig.New(t, withTargets("bank"), withBreakers)
	o := newOutage(r)
	o.down.Store(true)
	r.StartWorkers()
	for n := range 20 {
		r.MustSubmit(withTarget("bank", rig.Release(n)))
	}
	untilBreaker(r, circuit.Open)
	r.StopWorkers()
	other := rig.Join(t, r.DatabaseURL, r.Redis, r.Escrow, withBreakers).StartWorkers()
	other.Wait("it has seen the open circuit breaker", func() bool { return other.Health().Stats().BreakersNotClosed == 1 })
	o.down.Store(false)
	patient := func(c *postadjudication.Config) {
		c.Breaker = postadjudication.BreakerRule{LeaderTimeout: 3 * time.Second}
	} // the other one would lead first
	rig.Join(t, r.DatabaseURL, r.Redis, r.Escrow, withTargets("bank"), patient).StartWorkers()
	untilClosed(r)
}

// A process that does not call every alias of an escrow service leaves the service's open circuit
// breaker to those that call the waiting runs, and probes with those that it calls itself.
func TestABreakerIsLedByAProcessThatCallsWhatWaits(t *testing.T) {
	t.Parallel()
	r := rig.New(t, withAliases("gold"), withBreakers)
	o := newOutage(r)
	o.down.Store(true)
	r.StartWorkers()
	for n := range 20 {
		r.MustSubmit(withTarget("gold", rig.Release(n)))
	}
	untilBreaker(r, circuit.Open)
	r.StopWorkers()
	other := rig.Join(t, r.DatabaseURL, r.Redis, r.Escrow, withBreakers).StartWorkers()
	other.Wait("it has seen the open circuit breaker", func() bool { return other.Health().Stats().BreakersNotClosed == 1 })
	o.down.Store(false)
	patient := func(c *postadjudication.Config) {
		c.Breaker = postadjudication.BreakerRule{LeaderTimeout: 3 * time.Second}
	} // the other one would lead first
	rig.Join(t, r.DatabaseURL, r.Redis, r.Escrow, withAliases("gold"), patient).StartWorkers()
	untilClosed(r)
}

// A leader leaves the circuit breaker to a process that calls the new cases, however often it
// could probe its own runs, which fail.
func TestABreakerIsLeftByALeaderThatProbesRunsOfItsOwn(t *testing.T) {
	t.Parallel()
	r := rig.New(t, withAliases("gold"), withBreakers, func(c *postadjudication.Config) { c.Policy.Coefficient = 1 }) // each probe may be repeated soon
	r.Escrow.Script(func(_ context.Context, c escrow.Call) escrow.Answer {
		if c.Target == "gold" {
			return r.Escrow.Pay(c, c.Amount.Minor)
		}
		return rig.RateLimited()
	})
	r.StartWorkers()
	submitAll(r, 0, 20)
	untilBreaker(r, circuit.Open)
	r.StopWorkers()
	often := func(c *postadjudication.Config) {
		c.Breaker = postadjudication.BreakerRule{ProbeInterval: 5 * time.Millisecond, FallbackInterval: 5 * time.Millisecond, FallbackIntervalMax: 20 * time.Millisecond, LeaderTimeout: 500 * time.Millisecond}
	}
	other := rig.Join(t, r.DatabaseURL, r.Redis, r.Escrow, often).StartWorkers()
	r.WaitRuns(20, rig.Runs{Target: "escrow", Called: true})
	r.MustSubmit(withTarget("gold", rig.Release(20)))
	rig.Join(t, r.DatabaseURL, r.Redis, r.Escrow, withAliases("gold"), often).StartWorkers()
	other.WaitRuns(1, rig.Runs{Target: "gold", State: background.Succeeded})
}

// Runs that no process calls block no process, however many are before its own.
func TestABreakerIsProbedBehindRunsThatNobodyCalls(t *testing.T) {
	t.Parallel()
	r := rig.New(t, withAliases("gold"), withBreakers)
	o := newOutage(r)
	o.down.Store(true)
	r.StartWorkers()
	submitAll(r, 0, 20)
	untilBreaker(r, circuit.Open)
	for n := range 30 {
		r.MustSubmit(withTarget("gold", rig.Release(20+n)))
	}
	r.StopWorkers()
	o.down.Store(false)
	rig.Join(t, r.DatabaseURL, r.Redis, r.Escrow, withBreakers).StartWorkers()
	untilClosed(r)
	r.WaitRuns(20, rig.Runs{Target: "escrow", State: background.Succeeded})
}

// A breaker opened by hand by one alias of an escrow service stays open when that alias becomes
// another service's.
func TestABreakerPulledByAnotherNameIsReleasedBeforeThatNameLeavesIt(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	url := testkit.Migrated(t)
	_, opt := testkit.Redis(t)
	e := rig.NewEscrow()
	before := rig.Join(t, url, opt, e, withAliases("gold")).StartWorkers()
	before.Wait("it is recorded", func() bool { return breakerRecorded(before, "gold") == escrow.DefaultTarget })
	if b, err := before.As("acme", "ops:kim").Breakers.Open(ctx, "gold", "stop gold"); err != nil || b.Target != escrow.DefaultTarget {
		t.Fatalf("%+v, %v", b, err)
	}
	before.MustSubmit(withTarget("gold", rig.Release(1)))
	before.StopWorkers()
	r := rig.Join(t, url, opt, e, withTargets("gold"))
	if why := runRefusedByTargets(r); !strings.Contains(why, "gold") || !strings.Contains(why, "by hand for tenant acme") || !strings.Contains(why, "release it") {
		t.Error(why)
	}
	if n := e.TotalCalls(); n != 0 {
		t.Errorf("%d calls", n)
	}
	if b, err := r.As("acme", "ops:kim").Breakers.Release(ctx, "gold", "go"); err != nil || b.State != circuit.Closed || b.Target != escrow.DefaultTarget {
		t.Fatalf("%+v, %v", b, err)
	}
	r.StartWorkers().WaitNoneLive()
	if of := breakerRecorded(r, "gold"); of != "gold" {
		t.Errorf("it uses the circuit breaker of %q", of)
	}
	r.MustAudit()
}

// A breaker opened by hand while a starting process changes which one its target uses is the one
// that applies from then on.
func TestABreakerPulledWhileItsTargetChangesHoldsAfterwards(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	r := rig.New(t, withTargets("gold")).StartWorkers()
	r.Wait("it is recorded", func() bool { return breakerRecorded(r, "gold") == "gold" })
	r.StopWorkers()
	tx, err := r.DB.Begin()
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	for _, statement := range []string{`LOCK TABLE recourse.targets IN SHARE ROW EXCLUSIVE MODE`, `UPDATE recourse.targets SET breaker = 'escrow' WHERE name = 'gold'`} {
		if _, err := tx.Exec(statement); err != nil {
			t.Fatal(err)
		}
	}
	type answer struct {
		b   casestatus.Breaker
		err error
	}
	opened := make(chan answer, 1)
	go func() {
		b, err := r.As(postadjudication.AllTenants, "ops:kim").Breakers.Open(ctx, "gold", "stop gold")
		opened <- answer{b, err}
	}()
	r.WaitBlockedOn("targets")
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	if a := <-opened; a.err != nil || a.b.Target != escrow.DefaultTarget || a.b.State != circuit.Open || !a.b.ByHand {
		t.Errorf("%+v", a)
	}
}
