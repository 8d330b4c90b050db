package postadjudication

import (
	"context"
	"errors"
	"testing"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/settlement"
)

// Beside the database a lookup asks the escrow service that somebody typed: that it says executed
// takes two people. That nothing was executed takes one, and so does a lookup over HTTP.
func TestALookupBesideTheDatabaseTakesTwoPeople(t *testing.T) {
	t.Parallel()
	r := newRig(t).work()
	ctx := WithCaller(context.Background(), Caller{SelfDeclared: true})
	letter := r.dead(1, func(c Call) Answer { r.escrow.pay(c, c.Amount.Minor); return refused() })
	unpaid := r.dead(2, func(Call) Answer { return refused() })
	byKey := r.dead(3, func(c Call) Answer { r.escrow.pay(c, c.Amount.Minor); return refused() })
	_, err := r.ReconcileByLookup(ctx, "acme", letter.Run, "user:ada")
	plan := r.secondPerson(err)
	if f := plan.Asked.Finding; plan.Action != BulkFinding || f == nil || *f != (BulkFound{Class: Executed, Moved: 1000, Reference: "looked up", Lookup: true}) || plan.Money["EUR"] != 1000 {
		t.Errorf("%+v, %+v", plan, f)
	}
	var second *SecondPersonError
	if _, err := r.RunBulk(ctx, "acme", plan.ID, plan.Hash, "user:ada"); !errors.As(err, &second) {
		t.Errorf("alone: %v", err)
	}
	if c := r.caseOf(release(1)); c.Progression != settlement.DisputeReady || c.Released != 0 {
		t.Errorf("%+v", c.State)
	}
	if b := r.ran(plan); b.Progress.Done != 1 || !b.SelfDeclared {
		t.Errorf("%+v", b)
	}
	told := r.told(letter, receipts.Reconciled)
	if len(told) != 1 || told[0].Lookup != string(Executed) || told[0].Moved != 1000 || told[0].PlannedBy != "user:ada" || !told[0].SelfDeclared || told[0].Reason != "the escrow service that user:ada named was asked" {
		t.Errorf("%+v", told)
	}
	if c := r.caseOf(release(1)); c.Progression != settlement.Settled || c.Released != 1000 {
		t.Errorf("%+v", c.State)
	}
	if _, err := r.ReconcileByLookup(ctx, "acme", unpaid.Run, "user:ada"); err != nil {
		t.Errorf("not executed: %v", err)
	}
	if _, err := r.SetPeople(ctx, PeopleChange{Tenant: "acme", People: 1, Actor: "user:root", Reason: "we are one"}); err != nil {
		t.Fatal(err)
	}
	if _, err := r.ReconcileByLookup(ctx, "acme", byKey.Run, "service:desk"); !errors.As(err, &second) {
		t.Errorf("a program: %v", err)
	}
	if c, err := r.ReconcileByLookup(ctx, "acme", byKey.Run, "user:ada"); err != nil || c.Progression != settlement.Settled {
		t.Errorf("one person: %+v, %v", c, err)
	}
	if told := r.told(byKey, receipts.Reconciled); len(told) != 1 || told[0].People != 1 || !told[0].SelfDeclared {
		t.Errorf("%+v", told)
	}
	r.sound()
}

// Over HTTP the server's own escrow service is asked.
func TestALookupOverHTTPTakesOnePerson(t *testing.T) {
	t.Parallel()
	r := newRig(t).work()
	letter := r.dead(1, func(c Call) Answer { r.escrow.pay(c, c.Amount.Minor); return refused() })
	c, err := r.ReconcileByLookup(WithCaller(context.Background(), Caller{Key: "rck_x"}), "acme", letter.Run, "user:ada")
	if err != nil || c.Progression != settlement.Settled || r.standing(letter) != background.LetterReconciled {
		t.Errorf("%+v, %v", c, err)
	}
	r.sound()
}
