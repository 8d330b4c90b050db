package postadjudication

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/testkit"
	"github.com/recourse-dev/recourse/postadjudication/casestatus"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/internal/casework"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
)

// secondEscrow is another escrow service besides the one of a rig, with the same ledger and script.
type secondEscrow struct{ *scriptedEscrow }

// withTargets adds escrow services to a rig, each an endpoint of its own.
func withTargets(names ...string) func(*Config) {
	return func(c *Config) {
		for _, name := range names {
			c.Targets = append(c.Targets, Target{Name: name, Executor: &secondEscrow{c.Executor.(*scriptedEscrow)}})
		}
	}
}

// withAliases gives the escrow service of a rig more names.
func withAliases(names ...string) func(*Config) {
	return func(c *Config) {
		for _, name := range names {
			c.Targets = append(c.Targets, Target{Name: name})
		}
	}
}

func withTarget(target string, a Adjudication) Adjudication {
	a.Target = target
	return a
}

func refusedTarget(err error) bool {
	var field *refusal.FieldError
	return errors.As(err, &field) && field.Field == "target"
}

// Only configured targets are accepted, by every way to submit, and nothing of another is stored.
func TestATargetThatIsNotConfiguredIsRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t, withTargets("bank"), withAliases("north"))
	ctx := context.Background()
	if _, err := r.Submit(ctx, withTarget("elsewhere", release(1))); !refusedTarget(err) || !strings.Contains(err.Error(), `["bank" "escrow" "north"]`) {
		t.Errorf("Submit: %v", err)
	}
	tx, err := r.db.Begin()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.SubmitTx(ctx, tx, withTarget("elsewhere", release(1))); !refusedTarget(err) {
		t.Errorf("SubmitTx: %v", err)
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	_, errs := r.SubmitBatch(ctx, []Adjudication{release(2), withTarget("elsewhere", release(3)), withTarget("bank", release(4)), withTarget("north", release(5)), withTarget(escrow.DefaultTarget, release(6))})
	for i, err := range errs {
		if refusedTarget(err) != (i == 1) || err != nil && i != 1 {
			t.Errorf("adjudication %d of a batch: %v", i, err)
		}
	}
	if n := r.count(`SELECT count(*) FROM recourse.cases WHERE kind = 'settlement'`); n != 4 {
		t.Errorf("%d cases", n)
	}
	r.startWorkers().untilNoneLive()
	r.mustAudit()
}

// One executor has one circuit breaker, so only one target may have it.
func TestTargetsThatCanNotBeToldApartAreRefused(t *testing.T) {
	t.Parallel()
	one, other := newEscrow(), newEscrow()
	for name, of := range map[string][]Target{
		"the executor of the default": {{"bank", one}},
		"one executor twice":          {{"bank", other}, {"house", other}},
		"a name twice":                {{"bank", other}, {"bank", nil}},
		"the default again":           {{escrow.DefaultTarget, other}},
		"the family":                  {{casework.Family, other}},
		"no name":                     {{"", other}},
		"a control character":         {{"a\nb", other}},
		"a long name":                 {{strings.Repeat("x", 65), other}},
	} {
		c := Config{DatabaseURL: "postgres://nobody@127.0.0.1:1/none?sslmode=disable", Executor: one, Targets: of}
		if _, err := Open(context.Background(), c); err == nil || !strings.Contains(err.Error(), "Config.Targets") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A breaker opened by hand stays open, whatever alias a submission names.
func TestABreakerByHandHoldsForEveryNameOfAnEscrowService(t *testing.T) {
	t.Parallel()
	r := newRig(t, withTargets("bank"), withAliases("north", "south"))
	ctx := context.Background()
	b, err := r.As(AllTenants, "ops:kim").Breakers.Open(ctx, "north", "stop all")
	if err != nil || b.Target != escrow.DefaultTarget || b.State != background.BreakerOpen {
		t.Fatalf("%+v, %v", b, err)
	}
	var stopped []Submitted
	for n, name := range []string{escrow.DefaultTarget, "north", "south"} {
		stopped = append(stopped, r.mustSubmit(withTarget(name, release(n))))
	}
	r.startWorkers()
	open := r.mustSubmit(withTarget("bank", release(9)))
	r.until("the other escrow service is called", `SELECT state = 'succeeded' FROM recourse.runs WHERE id = $1`, open.Run.String())
	for _, s := range stopped {
		st, err := r.Status(ctx, "acme", s.Run)
		if err != nil || st.State != background.Pending || st.WaitsFor != casestatus.WaitsForBreaker || len(st.PausedBy) != 1 || st.PausedBy[0].Target != escrow.DefaultTarget {
			t.Errorf("%+v, %v", st, err)
		}
	}
	if n := r.escrow.totalCalls(); n != 1 {
		t.Errorf("%d calls", n)
	}
	for range 2 { // half-open, and closed
		if _, err := r.As(AllTenants, "ops:kim").Breakers.Release(ctx, "south", "go"); err != nil && !errors.Is(err, ErrBreakerNotOpen) {
			t.Fatal(err)
		}
	}
	r.untilNoneLive()
	found, err := r.As(AllTenants, "").Breakers.History(ctx, "north", 0, 10)
	if err != nil || len(found) < 2 {
		t.Errorf("%+v, %v", found, err)
	}
	r.mustAudit()
}

// An escrow service that fails has one breaker, which opens as early as with one name.
func TestABreakerOpensForEveryNameOfAnEscrowServiceAtOnce(t *testing.T) {
	t.Parallel()
	names := []string{escrow.DefaultTarget, "north", "south", "east", "west"}
	r := newRig(t, withAliases(names[1:]...), func(c *Config) { c.Breaker, c.Slots = BreakerRule{}, 1 })
	r.escrow.script = func(context.Context, escrow.Call) escrow.Answer { return busy429() }
	for n, name := range names { // of five new cases in a row, no name fails twice
		r.mustSubmit(withTarget(name, release(n)))
	}
	r.startWorkers()
	r.until("the breaker is open", `SELECT EXISTS (SELECT FROM recourse.circuit_breakers WHERE state <> 'closed')`)
	if n := r.count(`SELECT count(*) FROM recourse.circuit_breakers WHERE tenant = '' AND target <> $1`, escrow.DefaultTarget); n != 0 {
		t.Errorf("%d breakers of other names", n)
	}
	late := r.mustSubmit(withTarget("north", release(100)))
	if st, err := r.Status(context.Background(), "acme", late.Run); err != nil || st.WaitsFor != casestatus.WaitsForBreaker {
		t.Errorf("%+v, %v", st, err)
	}
}

// A run whose target is no longer configured waits, says for what, and can be cancelled; what was
// accepted stays accepted, and continues once a process calls the target again.
func TestARunOfATargetThatIsConfiguredNoMoreWaits(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	url := testkit.Migrated(t)
	server, opt := testkit.Redis(t)
	e := newEscrow()
	before := joinRig(t, url, opt, e, withTargets("bank"))
	kept, dropped := before.mustSubmit(withTarget("bank", release(1))), before.mustSubmit(withTarget("bank", release(2)))
	r := joinRig(t, url, opt, e, func(c *Config) { c.Sweep = 50 * time.Millisecond }).startWorkers()
	other := r.mustSubmit(release(3))
	r.until("another run is executed", `SELECT state = 'succeeded' FROM recourse.runs WHERE id = $1`, other.Run.String())
	r.untilTrue("it waits for its escrow service", func() bool {
		st, err := r.Status(ctx, "acme", kept.Run)
		return err == nil && st.State == background.Pending && st.WaitsFor == casestatus.WaitsForTarget && strings.Contains(st.WaitsBecause, "bank")
	})
	if found, err := r.Health().Uncalled(ctx); err != nil || !slices.Equal(found, []Uncalled{{Target: "bank", Runs: 2}}) {
		t.Errorf("%+v, %v", found, err)
	}
	if again := r.mustSubmit(withTarget("bank", release(1))); again.Reply != Deduplicated || again.Run != kept.Run {
		t.Errorf("submitted again: %+v", again)
	}
	higher := withTarget("bank", release(1))
	higher.Generation = 2
	if _, err := r.Submit(ctx, higher); !refusedTarget(err) {
		t.Errorf("a higher generation: %v", err)
	}
	if _, err := r.As("acme", "user:ada").Cases.Cancel(ctx, dropped.Run, "its bank is gone"); err != nil {
		t.Fatal(err)
	}
	if n := e.totalCalls(); n != 1 {
		t.Errorf("%d calls", n)
	}
	joinRig(t, url, opt, e, withTargets("bank"), func(c *Config) { c.Sweep = 50 * time.Millisecond }).startWorkers()
	r.stopWork()
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), Password: server.Password()})
	defer client.Close()
	if err := client.FlushAll(ctx).Err(); err != nil { // else the postponed notification comes within a minute
		t.Fatal(err)
	}
	r.untilNoneLive()
	if st, err := r.Status(ctx, "acme", kept.Run); err != nil || st.State != background.Succeeded {
		t.Errorf("%+v, %v", st, err)
	}
	r.mustAudit()
}

// A letter of unknown outcome is not looked up at another escrow service.
func TestALetterOfATargetThatIsConfiguredNoMoreIsNotAskedAbout(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	url := testkit.Migrated(t)
	_, opt := testkit.Redis(t)
	e := newEscrow()
	e.script = func(context.Context, escrow.Call) escrow.Answer { return noAnswer() }
	e.lookup = func(escrow.Call) escrow.Answer { return answerUnknown }
	before := joinRig(t, url, opt, e, withTargets("bank"), func(c *Config) { c.Policy.MaxRetryAttempts = 1 }).startWorkers()
	s := before.mustSubmit(withTarget("bank", release(1)))
	before.until("letter", `SELECT EXISTS (SELECT FROM recourse.runs WHERE letter = 'open')`)
	before.stopWork()
	r := joinRig(t, url, opt, e, withLookups).startWorkers()
	other := r.mustSubmit(release(2))
	r.until("the other letter is asked about", `SELECT EXISTS (SELECT FROM recourse.lookups WHERE run_id = $1)`, other.Run.String())
	if n := r.count(`SELECT count(*) FROM recourse.lookups WHERE run_id = $1`, s.Run.String()); n != 0 {
		t.Error("it was looked up")
	}
	if _, err := r.As("acme", "user:ada").DeadLetters.Lookup(ctx, s.Run); !errors.Is(err, refusal.ErrTargetUnknown) {
		t.Errorf("by hand: %v", err)
	}
	if found, err := r.Health().Uncalled(ctx); err != nil || !slices.Equal(found, []Uncalled{{Target: "bank", Letters: 1}}) {
		t.Errorf("%+v, %v", found, err)
	}
	f := casework.Finding{Reason: "statement", Reference: "stmt-1", Class: escrow.NotExecuted, CallOutstanding: true}
	if _, err := r.Reconcile(ctx, "acme", s.Run, f); err != nil {
		t.Errorf("a finding: %v", err)
	}
}
