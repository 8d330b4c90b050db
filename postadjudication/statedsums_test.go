package postadjudication_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/internal/casework"
	"github.com/recourse-dev/recourse/postadjudication/internal/rig"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/settlement"
)

// answersTwice starts a service whose first attempt times out and whose second is answered first. It returns what lets
// the late answer of the first come.
func answersTwice(t *testing.T, first, second escrow.Answer) (r *rig.Rig, answerFirst func()) {
	t.Helper()
	r = rig.New(t, func(c *postadjudication.Config) { c.TimeLimit = time.Second })
	late := make(chan struct{})
	r.Escrow.Script(func(_ context.Context, c escrow.Call) escrow.Answer {
		if c.Attempt == 1 {
			<-late
			return first
		}
		return second
	})
	return r, func() { close(late) }
}

func paid(minor int64, reference string) escrow.Answer {
	return escrow.Answer{Class: escrow.Executed, Moved: minor, Reference: reference}
}

// An escrow service states the total that it moved under a key: 400, and 1000 a moment later, are 1000.
func TestAHigherSumUnderTheSameKeyIsAPaymentOfTheRest(t *testing.T) {
	t.Parallel()
	r, answerFirst := answersTwice(t, paid(1000, "pay_A"), paid(400, "pay_B"))
	a := rig.Release(1)
	s := r.StartWorkers().MustSubmit(a)
	r.WaitState(s.Run, background.Succeeded)
	answerFirst()
	r.WaitReceipt(s.Case, receipts.AnsweredLate)
	c := r.CaseOf(a)
	if c.Progression != settlement.Settled || c.Moved != 1000 || c.Released != 1000 || c.Reserved != 0 || c.Excess != 0 || c.Contradictions != 0 {
		t.Errorf("%+v", c)
	}
	b := a
	b.Generation, b.AdjudicationID, b.Amount.Minor = 2, "adj_2nd", 600
	if got, err := r.Submit(context.Background(), b); err != nil || got.Reply != postadjudication.CaseEnded {
		t.Errorf("another decision about the 600 that were paid: %v, %v", got.Reply, err)
	}
	wantAuditOK(t, r)
}

// What an answer states less, or by another reference, takes nothing back. It is on record once, and people are told.
func TestAnAnswerThatContradictsAPaymentIsOnRecord(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ first, second escrow.Answer }{
		"less":              {paid(400, "pay_A"), paid(1000, "pay_A")},
		"another reference": {paid(1000, "pay_B"), paid(1000, "pay_A")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, answerFirst := answersTwice(t, c.first, c.second)
			a := rig.Release(1)
			s := r.StartWorkers().MustSubmit(a)
			r.WaitState(s.Run, background.Succeeded)
			answerFirst()
			r.WaitReceipt(s.Case, receipts.Contradicted)
			p := r.Payloads(s, receipts.Contradicted)[0]
			if p.Moved != c.first.Moved || p.Reference != c.first.Reference || p.Recorded != 1000 || p.RecordedReference != "pay_A" || p.AttemptClass != "executed" {
				t.Errorf("%+v", p)
			}
			if got := r.CaseOf(a); got.Progression != settlement.Settled || got.Released != 1000 || got.Contradictions != 1 {
				t.Errorf("%+v", got)
			}
			r.Wait("the alarm is raised", func() bool { return r.Health().Breaches().Contradictions == 1 })
			wantAuditOK(t, r)
		})
	}
}

// A person may find that a run which has settled its case paid more. The same finding again changes nothing.
func TestAFindingCorrectsWhatASettledRunPaid(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	r.Escrow.Script(func(context.Context, escrow.Call) escrow.Answer { return paid(1000, "pay_A") })
	a := rig.Release(1)
	s := r.StartWorkers().MustSubmit(a)
	r.WaitState(s.Run, background.Succeeded)
	found := casework.Finding{Class: escrow.Executed, Moved: 1300, Reference: "statement 7", Reason: "the bank shows two payments"}
	if _, err := r.Reconcile(context.Background(), "acme", s.Run, found); err != nil {
		t.Fatal(err)
	}
	var refused *refusal.RefusedError
	if _, err := r.Reconcile(context.Background(), "acme", s.Run, found); !errors.As(err, &refused) || refused.Gate != refusal.GateAlreadyRecorded {
		t.Errorf("what is on record already: %v", err)
	}
	c := r.CaseOf(a)
	if c.Progression != settlement.Settled || c.Released != 1300 || c.Excess != 300 || len(r.Payloads(s, receipts.Reconciled)) != 1 {
		t.Errorf("%+v", c)
	}
	wantAuditOK(t, r)
}

func wantAuditOK(t *testing.T, r *rig.Rig) {
	t.Helper()
	if report, err := r.Audit(context.Background()); err != nil || !report.OK() {
		t.Errorf("audit: %+v, %v", report.Breaks, err)
	}
}
