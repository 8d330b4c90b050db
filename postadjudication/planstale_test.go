package postadjudication

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/settlement"
)

// Whoever is refused something leaves a receipt, and makes no plan stale by it: of one item, of
// many that share a commit, or of cases.
func TestARefusalMakesNoPlanStale(t *testing.T) {
	t.Parallel()
	r := newRig(t).work()
	ctx := context.Background()
	lies := func(c Call) Answer { r.escrow.pay(c, c.Amount.Minor); return refused() }
	found, freed := r.dead(1, lies), r.dead(2, func(Call) Answer { return refused() })
	forked := r.deadAll(3, 5, func(Call) Answer { return refused() })
	finding, err := r.PlanFinding(ctx, "acme", found.Run, bankSays)
	if err != nil {
		t.Fatal(err)
	}
	free := r.mustPlanFree(withdrawn("txr_2"))
	fork := r.planned(BulkRequest{Tenant: "acme", Filter: LetterFilter{Family: Family}, Action: BulkFork, Actor: "user:ada", Reason: "mended"})
	refusals := func(s Submitted) {
		t.Helper()
		if err := r.NoteRefusal(ctx, AccessRefusal{Tenant: "acme", Actor: "user:eve", Action: "fork", Rule: "role_missing", Run: s.Run}); err != nil {
			t.Fatal(err)
		}
		if _, err := r.cancel(s); !errors.Is(err, ErrEnded) {
			t.Fatal(err)
		}
	}
	for _, s := range append(forked, found, freed) {
		refusals(s)
		if told := r.told(s, receipts.Refused); len(told) != 2 {
			t.Fatalf("%+v", told)
		}
	}
	for _, plan := range []Bulk{finding, free} {
		if b := r.ran(plan); b.Progress.Done != 1 {
			t.Errorf("%s: %+v", plan.Action, b.Progress)
		}
	}
	if b := r.ran(fork); b.Progress.Done != 2 || b.Progress.PlanStale != 2 { // the other two were settled and freed since
		t.Errorf("%+v", b.Progress)
	}
	r.atRest()
	if c := r.caseOf(release(1)); c.Progression != settlement.Settled || c.Released != 1000 {
		t.Errorf("%+v", c.State)
	}
	r.sound()
}

// What is found of a letter since decides, and so does what moves its money.
func TestAFindingMakesAPlanStale(t *testing.T) {
	t.Parallel()
	r := newRig(t).work()
	ctx := context.Background()
	letter := r.dead(1, func(Call) Answer { return refused() })
	finding, err := r.PlanFinding(ctx, "acme", letter.Run, bankSays)
	if err != nil {
		t.Fatal(err)
	}
	free := r.mustPlanFree(withdrawn("txr_1"))
	none := Finding{Actor: "user:ben", Reason: "the bank says no", Class: NotExecuted, Reference: "stmt-1", CallOutstanding: true}
	if _, err := r.Reconcile(ctx, "acme", letter.Run, none); err != nil {
		t.Fatal(err)
	}
	for _, plan := range []Bulk{finding, free} {
		if b := r.ran(plan); b.Progress.PlanStale != 1 {
			t.Errorf("%s: %+v", plan.Action, b.Progress)
		}
	}
	r.sound()
}

// An attempt of a run that waits with unknown money leaves it as it was planned.
func TestAnAttemptOfAWaitingRunMakesNoFindingStale(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *Config) { c.Policy.BaseDelay = 4 * time.Second }).work()
	ctx := context.Background()
	r.escrow.script = func(_ context.Context, c Call) Answer { r.escrow.pay(c, c.Amount.Minor); return noAnswer() }
	s := r.mustSubmit(release(1))
	r.until("it waits", `SELECT EXISTS (SELECT FROM recourse.runs WHERE state = 'scheduled')`)
	plan, err := r.PlanFinding(ctx, "acme", s.Run, bankSays)
	if err != nil {
		t.Fatal(err)
	}
	r.until("it was tried again", `SELECT EXISTS (SELECT FROM recourse.runs WHERE state = 'scheduled' AND attempt_count = 2)`)
	if b := r.ran(plan); b.Progress.Done != 1 {
		t.Errorf("%+v", b.Progress)
	}
	if c, st := r.caseOf(release(1)), r.status(s.Run); c.Progression != settlement.Settled || c.Released != 1000 || st.State != background.Succeeded {
		t.Errorf("%+v, %+v", c.State, st)
	}
	r.sound()
}
