package postadjudication_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/deadletter"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
	"github.com/recourse-dev/recourse/postadjudication/internal/rig"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/settlement"
)

// Findings that confirm nothing.
var (
	bankPaid    = deadletter.Finding{Reason: "the bank's statement", Class: escrow.Executed, Moved: 1000, Reference: "stmt-7"}
	bankPaidNot = deadletter.Finding{Reason: "the bank's statement", Class: escrow.NotExecuted, Reference: "stmt-8", CallOutstanding: true}
)

// withoutAnswer returns the letter of a transaction whose calls and lookups got no answer, whether or not a call paid.
func withoutAnswer(r *rig.Rig, n int, pays bool) postadjudication.Submitted {
	r.Escrow.ScriptLookups(func(escrow.Call) escrow.Answer { return answerUnknown })
	return r.DeadLetter(n, func(c escrow.Call) escrow.Answer {
		if pays {
			r.Escrow.Pay(c, c.Amount.Minor)
		}
		return rig.NoAnswer()
	})
}

// recordLookup puts an answer of a lookup about a letter on record.
func recordLookup(r *rig.Rig, s postadjudication.Submitted, said escrow.Class, moved int64) {
	r.T.Helper()
	ctx := context.Background()
	seen, err := r.Journal().Cases.Snapshot(ctx, s.Run)
	if err != nil {
		r.T.Fatal(err)
	}
	was, err := r.Journal().Lookups.Find(ctx, "acme", s.Run)
	if err != nil {
		r.T.Fatal(err)
	}
	next := journal.LookupRecord{Run: s.Run, Tenant: "acme", Attempt: seen.Run.Attempt, Count: was.Count + 1, LookedUpAt: r.Now(), Answer: said, Moved: moved, ManualReason: deadletter.LookupOtherAmount}
	if err := r.Journal().Lookups.Record(ctx, next); err != nil {
		r.T.Fatal(err)
	}
}

// wantContradicted checks that an error refuses a finding because of what is on record, and says what that is.
func wantContradicted(t *testing.T, err error, onRecord string) {
	t.Helper()
	var refused *refusal.RefusedError
	if !errors.As(err, &refused) || refused.Gate != refusal.GateContradictsRecord || !strings.Contains(refused.Because, onRecord) {
		t.Errorf("%v, want contradicts_record because of %q", err, onRecord)
	}
}

// A finding that contradicts an answer, a lookup or a finding on record is refused unless it is confirmed. The refusal
// says what is on record, and a confirmed finding has it in its receipt.
func TestAFindingAgainstTheRecordIsConfirmed(t *testing.T) {
	t.Parallel()
	r := rig.New(t).StartWorkers()
	ctx := context.Background()
	paysAndRefuses := func(c escrow.Call) escrow.Answer { r.Escrow.Pay(c, c.Amount.Minor); return rig.Refused() }
	for name, c := range map[string]struct {
		letter   func(n int) postadjudication.Submitted
		finding  deadletter.Finding
		onRecord string // "": nothing contradicts the finding
	}{
		"paid, after a refusal": {func(n int) postadjudication.Submitted { return r.DeadLetter(n, paysAndRefuses) }, bankPaid, "ended as not_executed at 2"},
		"paid, after a lookup that found nothing": {func(n int) postadjudication.Submitted {
			s := withoutAnswer(r, n, true)
			recordLookup(r, s, escrow.NotExecuted, 0)
			return s
		}, bankPaid, "answered the lookup of 2"},
		"paid, after a finding that it was not": {func(n int) postadjudication.Submitted {
			s := withoutAnswer(r, n, true)
			if _, err := r.Reconcile(ctx, "acme", s.Run, bankPaidNot); err != nil {
				t.Fatal(err)
			}
			return s
		}, bankPaid, "user:ada found not_executed at 2"},
		"not paid, after a lookup that found a payment": {func(n int) postadjudication.Submitted {
			s := withoutAnswer(r, n, false)
			recordLookup(r, s, escrow.Executed, 400)
			return s
		}, bankPaidNot, "with executed: 4.00 EUR"},
		"paid, and nothing is on record":     {func(n int) postadjudication.Submitted { return withoutAnswer(r, n, true) }, bankPaid, ""},
		"not paid, and nothing is on record": {func(n int) postadjudication.Submitted { return withoutAnswer(r, n, false) }, bankPaidNot, ""},
		"not paid, as a refusal says":        {func(n int) postadjudication.Submitted { return r.DeadLetter(n, rig.Refuses) }, bankPaidNot, ""},
		"paid, as a lookup says": {func(n int) postadjudication.Submitted {
			s := withoutAnswer(r, n, true)
			recordLookup(r, s, escrow.Executed, 1000)
			return s
		}, bankPaid, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := c.letter(r.CountRows("cases") + 1)
			head := r.Head(s.Case)
			status, err := r.Reconcile(ctx, "acme", s.Run, c.finding)
			if c.onRecord != "" {
				wantContradicted(t, err, c.onRecord)
				if p := r.Payloads(s, receipts.Refused); len(p) != 1 || p[0].RefusedBy != string(refusal.GateContradictsRecord) || r.Head(s.Case) != head+1 {
					t.Errorf("receipts of the refusal: %+v", p)
				}
				c.finding.ContradictsRecord = true
				status, err = r.Reconcile(ctx, "acme", s.Run, c.finding)
			}
			if err != nil || status.UnknownOpen != 0 || (status.Progression == settlement.Settled) != (c.finding.Class == escrow.Executed) {
				t.Fatalf("%+v, %v", status, err)
			}
			found := r.Payloads(s, receipts.Reconciled)
			if last := found[len(found)-1]; last.ContradictsRecord != (c.onRecord != "") {
				t.Errorf("%+v", last)
			}
		})
	}
	r.MustAudit()
}

// The second person sees what a finding contradicts. What came on record since the plan was made, which nobody
// saw, refuses it.
func TestThePlanOfAFindingSaysWhatItContradicts(t *testing.T) {
	t.Parallel()
	r := rig.New(t).StartWorkers()
	ctx := context.Background()
	refused := r.DeadLetter(1, func(c escrow.Call) escrow.Answer { r.Escrow.Pay(c, c.Amount.Minor); return rig.Refused() })
	ada := r.As("acme", "user:ada").DeadLetters
	_, err := ada.Reconcile(ctx, refused.Run, bankPaid)
	wantContradicted(t, err, "ended as not_executed")
	confirmed := bankPaid
	confirmed.ContradictsRecord = true
	_, err = ada.Reconcile(ctx, refused.Run, confirmed)
	plan := rig.PlanForSecondPerson(r, err)
	if !strings.Contains(plan.Spec.Finding.Contradicts, "ended as not_executed") {
		t.Errorf("%+v", plan.Spec.Finding)
	}
	if b := r.RunPlan(plan); b.Progress.Done != 1 || r.CaseOf(rig.Release(1)).Progression != settlement.Settled {
		t.Errorf("%+v", b.Progress)
	}
	// A confirmation that nothing needed when the plan was made covers nothing that came since.
	s := withoutAnswer(r, 2, true)
	_, err = ada.Reconcile(ctx, s.Run, confirmed)
	plan = rig.PlanForSecondPerson(r, err)
	if plan.Spec.Finding.Contradicts != "" {
		t.Errorf("%+v", plan.Spec.Finding)
	}
	recordLookup(r, s, escrow.NotExecuted, 0)
	if b := r.RunPlan(plan); b.Progress.ByGate[refusal.GateContradictsRecord] != 1 || r.CaseOf(rig.Release(2)).UnknownOpen == 0 {
		t.Errorf("%+v", b.Progress)
	}
}

// A person's lookup that finds nothing clears no letter of which a lookup before found a payment.
func TestALookupThatContradictsTheOneBeforeClearsNothing(t *testing.T) {
	t.Parallel()
	r := rig.New(t).StartWorkers()
	r.Escrow.SetLookupLife(escrow.Forever)
	s := withoutAnswer(r, 1, false)
	recordLookup(r, s, escrow.Executed, 400)
	r.Escrow.ScriptLookups(func(escrow.Call) escrow.Answer { return answerAbsent })
	var refused *refusal.RefusedError
	if _, err := rig.Lookup(context.Background(), r, "acme", s.Run); !errors.As(err, &refused) || refused.Gate != refusal.GateReconcileFirst || !strings.Contains(refused.Because, "with executed: 4.00 EUR: record a finding") {
		t.Errorf("%v", err)
	}
	if c := r.CaseOf(rig.Release(1)); c.UnknownOpen == 0 {
		t.Errorf("%+v", c)
	}
}
