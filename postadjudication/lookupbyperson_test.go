package postadjudication

import (
	"context"
	"errors"
	"testing"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/internal/casework"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/settlement"
)

// With direct access to the database, a lookup at an escrow service that a person typed takes
// two people if the answer is executed. An answer of not executed takes one, as does a lookup over HTTP.
func TestALookupBesideTheDatabaseTakesTwoPeople(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *Config) {
		c.Executor = addressedEscrow{c.Executor.(*scriptedEscrow), "https://ada:hunter2@escrow.example:8443/v1/executions?key=sesame#top"}
	}).startWorkers()
	const asked = "https://escrow.example:8443/v1/executions"
	ctx := casework.WithCaller(context.Background(), casework.Caller{SelfDeclared: true})
	letter := r.deadLetter(1, func(c escrow.Call) escrow.Answer { r.escrow.pay(c, c.Amount.Minor); return refused() })
	unpaid := r.deadLetter(2, func(escrow.Call) escrow.Answer { return refused() })
	byKey := r.deadLetter(3, func(c escrow.Call) escrow.Answer { r.escrow.pay(c, c.Amount.Minor); return refused() })
	_, err := r.As("acme", "user:ada").DeadLetters.Lookup(ctx, letter.Run)
	plan := r.secondPerson(err)
	if f := plan.Spec.Finding; plan.Action != BulkFinding || f == nil || *f != (PlannedFinding{Class: escrow.Executed, Moved: 1000, Reference: "looked up", Lookup: true, LookupURL: asked, Transaction: release(1).TransactionReceiptID}) || plan.Money["EUR"] != 1000 {
		t.Errorf("%+v, %+v", plan, f)
	}
	var second *SecondPersonError
	if _, err := r.As("acme", "user:ada").Bulk.Run(ctx, plan.ID, plan.Hash); !errors.As(err, &second) {
		t.Errorf("alone: %v", err)
	}
	if c := r.caseOf(release(1)); c.Progression != settlement.DisputeReady || c.Released != 0 {
		t.Errorf("%+v", c.State)
	}
	if b := r.runPlan(plan); b.Progress.Done != 1 || !b.SelfDeclared {
		t.Errorf("%+v", b)
	}
	payloads := r.payloadsOf(letter, receipts.Reconciled)
	if len(payloads) != 1 || payloads[0].Lookup != string(escrow.Executed) || payloads[0].Moved != 1000 || payloads[0].PlannedBy != "user:ada" || !payloads[0].SelfDeclared || payloads[0].LookupURL != asked || payloads[0].Reason != "the escrow service that user:ada named was asked" {
		t.Errorf("%+v", payloads)
	}
	if c := r.caseOf(release(1)); c.Progression != settlement.Settled || c.Released != 1000 {
		t.Errorf("%+v", c.State)
	}
	if _, err := r.As("acme", "user:ada").DeadLetters.Lookup(ctx, unpaid.Run); err != nil {
		t.Errorf("not executed: %v", err)
	}
	if payloads := r.payloadsOf(unpaid, receipts.Reconciled); len(payloads) != 1 || payloads[0].LookupURL != asked || !payloads[0].SelfDeclared {
		t.Errorf("not executed: %+v", payloads)
	}
	if _, err := r.As("acme", "user:root").People.Set(ctx, PeopleChange{People: 1, Reason: "we are one"}); err != nil {
		t.Fatal(err)
	}
	if _, err := r.As("acme", "service:desk").DeadLetters.Lookup(ctx, byKey.Run); !errors.As(err, &second) {
		t.Errorf("a program: %v", err)
	}
	if c, err := r.As("acme", "user:ada").DeadLetters.Lookup(ctx, byKey.Run); err != nil || c.Progression != settlement.Settled {
		t.Errorf("one person: %+v, %v", c, err)
	}
	if payloads := r.payloadsOf(byKey, receipts.Reconciled); len(payloads) != 1 || payloads[0].People != 1 || !payloads[0].SelfDeclared || payloads[0].LookupURL != asked {
		t.Errorf("%+v", payloads)
	}
	r.mustAudit()
}

// addressedEscrow is an Addressed executor.
type addressedEscrow struct {
	*scriptedEscrow
	at string
}

func (e addressedEscrow) Address() string { return e.at }

// A run of another target is looked up at that target, and the receipt names its URL.
func TestALookupNamesTheEscrowServiceThatWasAsked(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *Config) {
		bank := addressedEscrow{c.Executor.(*scriptedEscrow), "https://bank.example/v1"}
		c.Targets = []Target{{Name: "bank", Executor: bank}}
		c.Executor = addressedEscrow{c.Executor.(*scriptedEscrow), "https://escrow.example/v1"}
	}).startWorkers()
	ctx := casework.WithCaller(context.Background(), casework.Caller{SelfDeclared: true})
	r.escrow.script = func(_ context.Context, c escrow.Call) escrow.Answer {
		if c.Amount.Minor == 400 {
			r.escrow.pay(c, c.Amount.Minor)
		}
		return refused()
	}
	for target, at := range map[string]string{escrow.DefaultTarget: "https://escrow.example/v1", "bank": "https://bank.example/v1"} {
		unpaid, paid := withTarget(target, release(len(target))), withTarget(target, release(10+len(target)))
		paid.Amount = euros(400)
		for _, a := range []Adjudication{unpaid, paid} {
			s := r.mustSubmit(a)
			r.until("dead", `SELECT letter = 'open' FROM recourse.runs WHERE id = $1`, s.Run.String())
			_, err := r.As("acme", "user:ada").DeadLetters.Lookup(ctx, s.Run)
			if a.Amount.Minor == 400 {
				r.runPlan(r.secondPerson(err))
			} else if err != nil {
				t.Fatalf("%s: %v", target, err)
			}
			if payloads := r.payloadsOf(s, receipts.Reconciled); len(payloads) != 1 || payloads[0].LookupURL != at {
				t.Errorf("%s: %+v, want %q", target, payloads, at)
			}
		}
	}
	r.mustAudit()
}

// Over HTTP the server's own escrow service is asked.
func TestALookupOverHTTPTakesOnePerson(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *Config) {
		c.Executor = addressedEscrow{c.Executor.(*scriptedEscrow), "https://escrow.example"}
	}).startWorkers()
	letter := r.deadLetter(1, func(c escrow.Call) escrow.Answer { r.escrow.pay(c, c.Amount.Minor); return refused() })
	c, err := r.As("acme", "user:ada").DeadLetters.Lookup(casework.WithCaller(context.Background(), casework.Caller{Key: "rck_x"}), letter.Run)
	if err != nil || c.Progression != settlement.Settled || r.letterStatus(letter) != background.LetterReconciled {
		t.Errorf("%+v, %v", c, err)
	}
	if payloads := r.payloadsOf(letter, receipts.Reconciled); len(payloads) != 1 || payloads[0].LookupURL != "" {
		t.Errorf("%+v", payloads)
	}
	r.mustAudit()
}
