package postadjudication_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/bulk"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/internal/rig"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/settlement"
)

// With direct access to the database, a lookup at an escrow service that a person typed takes
// two people if the answer is executed. An answer of not executed takes one, as does a lookup over HTTP.
func TestALookupBesideTheDatabaseTakesTwoPeople(t *testing.T) {
	t.Parallel()
	r := rig.New(t, func(c *postadjudication.Config) {
		c.Executor = addressedEscrow{c.Executor.(*rig.Escrow), "https://ada:hunter2@escrow.example:8443/v1/executions?key=sesame#top"}
	}).StartWorkers()
	const asked = "https://escrow.example:8443/v1/executions"
	ctx := postadjudication.WithCaller(context.Background(), postadjudication.Caller{SelfDeclared: true})
	letter := r.DeadLetter(1, func(c escrow.Call) escrow.Answer { r.Escrow.Pay(c, c.Amount.Minor); return rig.Refused() })
	unpaid := r.DeadLetter(2, rig.Refuses)
	byKey := r.DeadLetter(3, func(c escrow.Call) escrow.Answer { r.Escrow.Pay(c, c.Amount.Minor); return rig.Refused() })
	_, err := r.As("acme", "user:ada").DeadLetters.Lookup(ctx, letter.Run)
	plan := rig.PlanForSecondPerson(r, err)
	if f := plan.Spec.Finding; f != nil {
		if !strings.HasPrefix(f.Contradicts, "attempt 1 ended as not_executed at ") {
			t.Errorf("the plan does not say that the service refused the call: %q", f.Contradicts)
		}
		f.Contradicts = ""
	}
	if f := plan.Spec.Finding; plan.Action != bulk.Finding || f == nil || *f != (bulk.PlannedFinding{Class: escrow.Executed, Moved: 1000, Currency: "EUR", Reference: "looked up", Lookup: true, LookupURL: asked, Transaction: rig.Release(1).TransactionReceiptID}) || plan.Money["EUR"] != settlement.SumOf(1000) {
		t.Errorf("%+v, %+v", plan, f)
	}
	var second *bulk.SecondPersonError
	if _, err := r.As("acme", "user:ada").Bulk.Run(ctx, plan.ID, plan.Hash); !errors.As(err, &second) {
		t.Errorf("alone: %v", err)
	}
	if c := r.CaseOf(rig.Release(1)); c.Progression != settlement.DisputeReady || c.Released != 0 {
		t.Errorf("%+v", c.State)
	}
	if b := r.RunPlan(plan); b.Progress.Done != 1 || !b.SelfDeclared {
		t.Errorf("%+v", b)
	}
	payloads := r.Payloads(letter, receipts.Reconciled)
	if len(payloads) != 1 || payloads[0].Lookup != string(escrow.Executed) || payloads[0].Moved != 1000 || payloads[0].PlannedBy != "user:ada" || !payloads[0].SelfDeclared || payloads[0].LookupURL != asked || payloads[0].Reason != "the escrow service that user:ada named was asked" {
		t.Errorf("%+v", payloads)
	}
	if c := r.CaseOf(rig.Release(1)); c.Progression != settlement.Settled || c.Released != 1000 {
		t.Errorf("%+v", c.State)
	}
	if _, err := r.As("acme", "user:ada").DeadLetters.Lookup(ctx, unpaid.Run); err != nil {
		t.Errorf("not executed: %v", err)
	}
	if payloads := r.Payloads(unpaid, receipts.Reconciled); len(payloads) != 1 || payloads[0].LookupURL != asked || !payloads[0].SelfDeclared {
		t.Errorf("not executed: %+v", payloads)
	}
	r.OnePerson("we are one")
	if _, err := r.As("acme", "service:desk").DeadLetters.Lookup(ctx, byKey.Run); !errors.As(err, &second) {
		t.Errorf("a program: %v", err)
	}
	if c, err := r.As("acme", "user:ada").DeadLetters.Lookup(ctx, byKey.Run); err != nil || c.Progression != settlement.Settled {
		t.Errorf("one person: %+v, %v", c, err)
	}
	if payloads := r.Payloads(byKey, receipts.Reconciled); len(payloads) != 1 || payloads[0].People != 1 || !payloads[0].SelfDeclared || payloads[0].LookupURL != asked {
		t.Errorf("%+v", payloads)
	}
	r.MustAudit()
}

// addressedEscrow is an Addressed executor.
type addressedEscrow struct {
	*rig.Escrow
	at string
}

func (e addressedEscrow) Address() string { return e.at }

// A run of another target is looked up at that target, and the receipt names its URL.
func TestALookupNamesTheEscrowServiceThatWasAsked(t *testing.T) {
	t.Parallel()
	r := rig.New(t, func(c *postadjudication.Config) {
		bank := addressedEscrow{c.Executor.(*rig.Escrow), "https://bank.example/v1"}
		c.Targets = []postadjudication.Target{{Name: "bank", Executor: bank}}
		c.Executor = addressedEscrow{c.Executor.(*rig.Escrow), "https://escrow.example/v1"}
	}).StartWorkers()
	ctx := postadjudication.WithCaller(context.Background(), postadjudication.Caller{SelfDeclared: true})
	r.Escrow.Script(func(_ context.Context, c escrow.Call) escrow.Answer {
		if c.Amount.Minor == 400 {
			r.Escrow.Pay(c, c.Amount.Minor)
		}
		return rig.Refused()
	})
	for target, at := range map[string]string{escrow.DefaultTarget: "https://escrow.example/v1", "bank": "https://bank.example/v1"} {
		unpaid, paid := withTarget(target, rig.Release(len(target))), withTarget(target, rig.Release(10+len(target)))
		paid.Amount = rig.Euros(400)
		for _, a := range []postadjudication.Adjudication{unpaid, paid} {
			s := r.MustSubmit(a)
			r.WaitLetter(s.Run)
			_, err := r.As("acme", "user:ada").DeadLetters.Lookup(ctx, s.Run)
			if a.Amount.Minor == 400 {
				r.RunPlan(rig.PlanForSecondPerson(r, err))
			} else if err != nil {
				t.Fatalf("%s: %v", target, err)
			}
			if payloads := r.Payloads(s, receipts.Reconciled); len(payloads) != 1 || payloads[0].LookupURL != at {
				t.Errorf("%s: %+v, want %q", target, payloads, at)
			}
		}
	}
	r.MustAudit()
}

// Over HTTP the server's own escrow service is asked.
func TestALookupOverHTTPTakesOnePerson(t *testing.T) {
	t.Parallel()
	r := rig.New(t, func(c *postadjudication.Config) {
		c.Executor = addressedEscrow{c.Executor.(*rig.Escrow), "https://escrow.example"}
	}).StartWorkers()
	letter := r.DeadLetter(1, func(c escrow.Call) escrow.Answer { r.Escrow.Pay(c, c.Amount.Minor); return rig.Refused() })
	c, err := r.As("acme", "user:ada").DeadLetters.Lookup(postadjudication.WithCaller(context.Background(), postadjudication.Caller{Key: "rck_x"}), letter.Run)
	if err != nil || c.Progression != settlement.Settled || r.LetterStatus(letter) != background.LetterReconciled {
		t.Errorf("%+v, %v", c, err)
	}
	if payloads := r.Payloads(letter, receipts.Reconciled); len(payloads) != 1 || payloads[0].LookupURL != "" {
		t.Errorf("%+v", payloads)
	}
	r.MustAudit()
}
