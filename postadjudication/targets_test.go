package postadjudication_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/background/circuit"
	"github.com/recourse-dev/recourse/internal/testkit"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/bulk"
	"github.com/recourse-dev/recourse/postadjudication/casestatus"
	"github.com/recourse-dev/recourse/postadjudication/deadletter"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/internal/rig"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/receipts"
)

// secondEscrow is another escrow service besides the one of a rig, with the same ledger and script.
type secondEscrow struct{ *rig.Escrow }

// withTargets adds escrow services to a rig, each an endpoint of its own.
func withTargets(names ...string) func(*postadjudication.Config) {
	return func(c *postadjudication.Config) {
		for _, name := range names {
			c.Targets = append(c.Targets, postadjudication.Target{Name: name, Executor: &secondEscrow{c.Executor.(*rig.Escrow)}})
		}
	}
}

// withAliases gives the escrow service of a rig more names.
func withAliases(names ...string) func(*postadjudication.Config) {
	return func(c *postadjudication.Config) {
		for _, name := range names {
			c.Targets = append(c.Targets, postadjudication.Target{Name: name})
		}
	}
}

func withTarget(target string, a postadjudication.Adjudication) postadjudication.Adjudication {
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
	r := rig.New(t, withTargets("bank"), withAliases("north"))
	ctx := context.Background()
	if _, err := r.Submit(ctx, withTarget("elsewhere", rig.Release(1))); !refusedTarget(err) || !strings.Contains(err.Error(), `["bank" "escrow" "north"]`) {
		t.Errorf("Submit: %v", err)
	}
	tx, err := r.DB.Begin()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.SubmitTx(ctx, tx, withTarget("elsewhere", rig.Release(1))); !refusedTarget(err) {
		t.Errorf("SubmitTx: %v", err)
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	_, errs := r.SubmitBatch(ctx, []postadjudication.Adjudication{rig.Release(2), withTarget("elsewhere", rig.Release(3)), withTarget("bank", rig.Release(4)), withTarget("north", rig.Release(5)), withTarget(escrow.DefaultTarget, rig.Release(6))})
	for i, err := range errs {
		if refusedTarget(err) != (i == 1) || err != nil && i != 1 {
			t.Errorf("adjudication %d of a batch: %v", i, err)
		}
	}
	if n := r.CountCases(rig.Cases{Kind: "settlement"}); n != 4 {
		t.Errorf("%d cases", n)
	}
	r.StartWorkers().WaitNoneLive()
	r.MustAudit()
}

// One executor has one circuit breaker, so only one target may have it.
func TestTargetsThatCanNotBeToldApartAreRefused(t *testing.T) {
	t.Parallel()
	one, other := rig.NewEscrow(), rig.NewEscrow()
	for name, of := range map[string][]postadjudication.Target{
		"the executor of the default": {{"bank", one}},
		"one executor twice":          {{"bank", other}, {"house", other}},
		"a name twice":                {{"bank", other}, {"bank", nil}},
		"the default again":           {{escrow.DefaultTarget, other}},
		"the family":                  {{postadjudication.Family, other}},
		"no name":                     {{"", other}},
		"a control character":         {{"a\nb", other}},
		"a long name":                 {{strings.Repeat("x", 65), other}},
	} {
		c := postadjudication.Config{DatabaseURL: "postgres://nobody@127.0.0.1:1/none?sslmode=disable", Executor: one, Targets: of}
		if _, err := postadjudication.Open(context.Background(), c); err == nil || !strings.Contains(err.Error(), "Config.Targets") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A breaker opened by hand stays open, whatever alias a submission names.
func TestABreakerByHandHoldsForEveryNameOfAnEscrowService(t *testing.T) {
	t.Parallel()
	r := rig.New(t, withTargets("bank"), withAliases("north", "south"))
	ctx := context.Background()
	b, err := r.As(postadjudication.AllTenants, "ops:kim").Breakers.Open(ctx, "north", "stop all")
	if err != nil || b.Target != escrow.DefaultTarget || b.State != circuit.Open {
		t.Fatalf("%+v, %v", b, err)
	}
	var stopped []postadjudication.Submitted
	for n, name := range []string{escrow.DefaultTarget, "north", "south"} {
		stopped = append(stopped, r.MustSubmit(withTarget(name, rig.Release(n))))
	}
	r.StartWorkers()
	open := r.MustSubmit(withTarget("bank", rig.Release(9)))
	r.WaitState(open.Run, background.Succeeded)
	for _, s := range stopped {
		st, err := r.Status(ctx, "acme", s.Run)
		if err != nil || st.State != background.Pending || st.WaitsFor != casestatus.WaitsForBreaker || len(st.PausedBy) != 1 || st.PausedBy[0].Target != escrow.DefaultTarget {
			t.Errorf("%+v, %v", st, err)
		}
	}
	if n := r.Escrow.TotalCalls(); n != 1 {
		t.Errorf("%d calls", n)
	}
	for range 2 { // half-open, and closed
		if _, err := r.As(postadjudication.AllTenants, "ops:kim").Breakers.Release(ctx, "south", "go"); err != nil && !errors.Is(err, postadjudication.ErrBreakerNotOpen) {
			t.Fatal(err)
		}
	}
	r.WaitNoneLive()
	found, err := r.As(postadjudication.AllTenants, "").Breakers.History(ctx, "north", 0, 10)
	if err != nil || len(found) < 2 {
		t.Errorf("%+v, %v", found, err)
	}
	r.MustAudit()
}

// An escrow service that fails has one breaker, which opens as early as with one name.
func TestABreakerOpensForEveryNameOfAnEscrowServiceAtOnce(t *testing.T) {
	t.Parallel()
	names := []string{escrow.DefaultTarget, "north", "south", "east", "west"}
	r := rig.New(t, withAliases(names[1:]...), func(c *postadjudication.Config) { c.Breaker, c.Slots = postadjudication.BreakerRule{}, 1 })
	r.Escrow.Answer(rig.RateLimits)
	for n, name := range names { // of five new cases in a row, no name fails twice
		r.MustSubmit(withTarget(name, rig.Release(n)))
	}
	r.StartWorkers()
	r.WaitBreakerOpens()
	if n := r.Count(`SELECT count(*) FROM recourse.circuit_breakers WHERE tenant = '' AND target <> $1`, escrow.DefaultTarget); n != 0 {
		t.Errorf("%d breakers of other names", n)
	}
	late := r.MustSubmit(withTarget("north", rig.Release(100)))
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
	e := rig.NewEscrow()
	before := rig.Join(t, url, opt, e, withTargets("bank"))
	kept, dropped := before.MustSubmit(withTarget("bank", rig.Release(1))), before.MustSubmit(withTarget("bank", rig.Release(2)))
	r := rig.Join(t, url, opt, e, func(c *postadjudication.Config) { c.Sweep = 50 * time.Millisecond }).StartWorkers()
	other := r.MustSubmit(rig.Release(3))
	r.WaitState(other.Run, background.Succeeded)
	r.Wait("it waits for its escrow service", func() bool {
		st, err := r.Status(ctx, "acme", kept.Run)
		return err == nil && st.State == background.Pending && st.WaitsFor == casestatus.WaitsForTarget && strings.Contains(st.WaitsBecause, "bank")
	})
	if found, err := r.Health().Uncalled(ctx); err != nil || !slices.Equal(found, []postadjudication.Uncalled{{Target: "bank", Runs: 2}}) {
		t.Errorf("%+v, %v", found, err)
	}
	if again := r.MustSubmit(withTarget("bank", rig.Release(1))); again.Reply != postadjudication.Deduplicated || again.Run != kept.Run {
		t.Errorf("submitted again: %+v", again)
	}
	higher := withTarget("bank", rig.Release(1))
	higher.Generation = 2
	if _, err := r.Submit(ctx, higher); !refusedTarget(err) {
		t.Errorf("a higher generation: %v", err)
	}
	if _, err := r.As("acme", "user:ada").Cases.Cancel(ctx, dropped.Run, "its bank is gone"); err != nil {
		t.Fatal(err)
	}
	if n := e.TotalCalls(); n != 1 {
		t.Errorf("%d calls", n)
	}
	rig.Join(t, url, opt, e, withTargets("bank"), func(c *postadjudication.Config) { c.Sweep = 50 * time.Millisecond }).StartWorkers()
	r.StopWorkers()
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), Password: server.Password()})
	defer client.Close()
	if err := client.FlushAll(ctx).Err(); err != nil { // else the postponed notification comes within a minute
		t.Fatal(err)
	}
	r.WaitNoneLive()
	if st, err := r.Status(ctx, "acme", kept.Run); err != nil || st.State != background.Succeeded {
		t.Errorf("%+v, %v", st, err)
	}
	r.MustAudit()
}

// A letter of unknown outcome is not looked up at another escrow service.
func TestALetterOfATargetThatIsConfiguredNoMoreIsNotAskedAbout(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	url := testkit.Migrated(t)
	_, opt := testkit.Redis(t)
	e := rig.NewEscrow()
	e.Answer(rig.GivesNoAnswer)
	e.ScriptLookups(func(escrow.Call) escrow.Answer { return answerUnknown })
	before := rig.Join(t, url, opt, e, withTargets("bank"), func(c *postadjudication.Config) { c.Policy.MaxRetryAttempts = 1 }).StartWorkers()
	s := before.MustSubmit(withTarget("bank", rig.Release(1)))
	before.WaitLetter(s.Run)
	before.StopWorkers()
	r := rig.Join(t, url, opt, e, withLookups).StartWorkers()
	other := r.MustSubmit(rig.Release(2))
	r.WaitAskedAbout(other.Run, 1)
	if n := r.TimesAskedAbout(s.Run); n != 0 {
		t.Error("it was looked up")
	}
	if _, err := r.As("acme", "user:ada").DeadLetters.Lookup(ctx, s.Run); !errors.Is(err, refusal.ErrTargetUnknown) {
		t.Errorf("by hand: %v", err)
	}
	if found, err := r.Health().Uncalled(ctx); err != nil || !slices.Equal(found, []postadjudication.Uncalled{{Target: "bank", Letters: 1}}) {
		t.Errorf("%+v, %v", found, err)
	}
	f := deadletter.Finding{Reason: "statement", Reference: "stmt-1", Class: escrow.NotExecuted, CallOutstanding: true}
	if _, err := r.Reconcile(ctx, "acme", s.Run, f); err != nil {
		t.Errorf("a finding: %v", err)
	}
}

// A higher generation moves its case to another escrow service only after a plan of two people, by every way to submit; and what
// was accepted stays accepted.
func TestAHigherGenerationIsPaidElsewhereAfterAPlanOfTwoPeopleOnly(t *testing.T) {
	t.Parallel()
	r := rig.New(t, withTargets("bank"), withAliases("north"), func(c *postadjudication.Config) { c.PaymentQueues = []string{"mine"} }).StartWorkers()
	ctx := context.Background()
	letters := r.DeadLetters(1, 3, rig.Refuses)
	generation := func(n, g int, target string) postadjudication.Adjudication {
		a := withTarget(target, rig.Release(n))
		a.Generation = g
		return a
	}
	inTx := func(a postadjudication.Adjudication) postadjudication.Submitted {
		tx, err := r.DB.BeginTx(ctx, nil)
		if err != nil {
			t.Fatal(err)
		}
		s, err := r.SubmitTx(ctx, tx, a)
		if err = errors.Join(err, tx.Commit()); err != nil {
			t.Fatal(err)
		}
		return s
	}
	for range 2 {
		for _, target := range []string{"bank", "queue:mine"} {
			for way, s := range map[string]postadjudication.Submitted{"Submit": r.MustSubmit(generation(1, 2, target)), "SubmitTx": inTx(generation(1, 2, target))} {
				if s.Reply != postadjudication.TargetChanged || s.Run != letters[0].Run || s.Reply.Accepted() {
					t.Errorf("%s to %s: %s", way, target, s)
				}
			}
		}
	}
	if n := r.CountReceipts(rig.Receipts{Subtype: receipts.Refused, Payload: map[string]any{"refused_by": "target_changed"}}); n != 2 {
		t.Errorf("%d receipts of two refused decisions", n)
	}
	nowhere := bulk.MoveRequest{Transaction: "txr_1", Target: "bankk", Reason: "the other one is gone"}
	var wrong *refusal.FieldError
	if _, err := r.As("acme", "user:ada").Bulk.PlanMove(ctx, nowhere); !errors.As(err, &wrong) || wrong.Field != "unserved" {
		t.Errorf("to a target that nobody serves: %v", err)
	}
	nowhere.Unserved = true
	if plan, err := r.As("acme", "user:ada").Bulk.PlanMove(ctx, nowhere); err != nil || plan.Spec.Move.Target != "bankk" {
		t.Errorf("to one that will be served: %+v, %v", plan.Spec.Move, err)
	}
	plan, err := r.As("acme", "user:ada").Bulk.PlanMove(ctx, bulk.MoveRequest{Transaction: "txr_1", Target: "bank", Reason: "the other one is gone"})
	if err != nil {
		t.Fatal(err)
	}
	if s := r.MustSubmit(generation(1, 2, "bank")); s.Reply != postadjudication.TargetChanged {
		t.Errorf("a plan that nobody has run permits: %s", s)
	}
	var second *bulk.SecondPersonError
	if _, err := r.As("acme", "user:ada").Bulk.Run(ctx, plan.ID, plan.Hash); !errors.As(err, &second) {
		t.Errorf("its author runs it: %v", err)
	}
	if b, err := r.As("acme", "user:bob").Bulk.Run(ctx, plan.ID, plan.Hash); err != nil || b.State != bulk.Done {
		t.Fatalf("%+v, %v", b, err)
	}
	if s := r.MustSubmit(generation(1, 2, "queue:mine")); s.Reply != postadjudication.TargetChanged {
		t.Errorf("a target that the plan does not name: %s", s)
	}
	if s := r.MustSubmit(generation(2, 2, "bank")); s.Reply != postadjudication.TargetChanged {
		t.Errorf("a case that the plan does not name: %s", s)
	}
	if s := inTx(generation(1, 2, "bank")); s.Reply != postadjudication.Created {
		t.Fatalf("with the plan: %s", s)
	}
	if payloads := r.Payloads(letters[0], receipts.Submitted); len(payloads) != 2 || payloads[1].Bulk != plan.ID.String() || payloads[1].PlannedBy != "user:ada" {
		t.Errorf("%+v", payloads)
	}
	r.WaitNoneLive()
	if s := r.MustSubmit(generation(1, 2, "bank")); !slices.Contains([]postadjudication.Reply{postadjudication.AlreadyExecuted, postadjudication.DeadLettered}, s.Reply) {
		t.Errorf("sent again: %s", s)
	}
	if s := r.MustSubmit(generation(2, 2, "north")); s.Reply != postadjudication.Created {
		t.Errorf("another name of the same escrow service: %s", s)
	}
	r.WaitNoneLive()
	r.MustAudit()
}

// Where money takes one person, no plan is needed, and the receipt says so.
func TestWhereOnePersonDecidesAHigherGenerationMayNameAnotherTarget(t *testing.T) {
	t.Parallel()
	r := rig.New(t, withTargets("bank")).StartWorkers()
	r.DeadLetter(1, rig.Refuses)
	r.OnePerson("we are one")
	next := withTarget("bank", rig.Release(1))
	next.Generation = 2
	made := r.MustSubmit(next)
	if made.Reply != postadjudication.Created {
		t.Fatalf("%s", made)
	}
	if payloads := r.Payloads(made, receipts.Submitted); len(payloads) != 2 || payloads[1].People != 1 {
		t.Errorf("%+v", payloads)
	}
	r.WaitNoneLive()
	r.MustAudit()
}
