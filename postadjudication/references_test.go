package postadjudication_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/bulk"
	"github.com/recourse-dev/recourse/postadjudication/deadletter"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/internal/rig"
	"github.com/recourse-dev/recourse/postadjudication/references"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/settlement"
)

// kid is a reference of a bank that is also a number of Maestro.
const kid = "5010123456789012"

// setReferences sets the policy of references of acme.
func setReferences(r *rig.Rig, rules ...references.Rule) references.Version {
	r.T.Helper()
	now, err := r.As("acme", "user:root").References.Set(context.Background(), references.Change{Policy: references.Policy{Rules: append([]references.Rule{}, rules...)}, Reason: "the agreement with the bank"})
	if err != nil {
		r.T.Fatal(err)
	}
	return now
}

// kidOf is a rule for the KIDs of a field.
func kidOf(field string) references.Rule {
	return references.Rule{Field: field, Scheme: references.KID, Modulus: 10, Length: 16}
}

// wantRefused checks that an error refuses a field.
func wantRefused(t *testing.T, what string, err error, field string) {
	t.Helper()
	var wrong *refusal.FieldError
	if !errors.As(err, &wrong) || wrong.Field != field {
		t.Errorf("%s: %v, want a refusal of %s", what, err, field)
	}
}

// A finding cites the bank's own reference with the policy, and is refused without it. Its receipt has the reference.
func TestAFindingCitesAReferenceOfTheBank(t *testing.T) {
	t.Parallel()
	r := rig.New(t).StartWorkers()
	ctx := context.Background()
	letter := r.DeadLetter(1, rig.GivesNoAnswer)
	found := deadletter.Finding{Reason: "the bank's statement", Class: escrow.Executed, Moved: 1000, Reference: kid, ContradictsRecord: true} // a lookup found nothing
	ada := r.As("acme", "user:ada").DeadLetters
	_, err := ada.Reconcile(ctx, letter.Run, found)
	wantRefused(t, "without a policy", err, "reference")
	setReferences(r, kidOf(references.FieldReference))
	spelled := found
	spelled.Reference = "KID 5010 1234 5678 9012"
	_, err = ada.Reconcile(ctx, letter.Run, spelled)
	wantRefused(t, "in another spelling", err, "reference")
	spelled.Reference = kid + " password=hunter2"
	_, err = ada.Reconcile(ctx, letter.Run, spelled)
	wantRefused(t, "with a password", err, "reference")

	_, err = ada.Reconcile(ctx, letter.Run, found)
	plan := rig.PlanForSecondPerson(r, err)
	if plan.Spec.Finding.Reference != kid {
		t.Errorf("the second person is shown %q", plan.Spec.Finding.Reference)
	}
	setReferences(r) // the plan keeps what was accepted when it was made
	if done := r.RunPlan(plan); done.Progress.Done != 1 {
		t.Errorf("%+v", done.Progress)
	}
	if p := r.Payloads(letter, receipts.Reconciled); len(p) != 1 || p[0].FindingReference != kid || p[0].Reference != kid {
		t.Errorf("%+v", p)
	}
	nothing := deadletter.Finding{Reason: "the bank's statement", Class: escrow.NotExecuted, Reference: kid}
	second := r.DeadLetter(2, rig.GivesNoAnswer)
	_, err = ada.Reconcile(ctx, second.Run, nothing)
	wantRefused(t, "after the policy was removed", err, "reference")
	wantAuditOK(t, r)
}

// What an escrow service answers is kept as the reference that it is, in one spelling, and without the policy by a mark.
func TestAnAnswerWithAReferenceOfTheBankIsKept(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answer, want string
		rules        []references.Rule
	}{
		"with the policy":    {kid, kid, []references.Rule{kidOf(references.FieldReference)}},
		"spelled by hand":    {"KID 5010 1234 5678 9012", kid, []references.Rule{kidOf(references.FieldReference)}},
		"without the policy": {kid, "[card]", nil},
		"with another field": {kid, "[card]", []references.Rule{kidOf(references.FieldEscrow)}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := rig.New(t)
			if c.rules != nil {
				setReferences(r, c.rules...)
			}
			r.Escrow.Script(func(_ context.Context, call escrow.Call) escrow.Answer {
				r.Escrow.Pay(call, call.Amount.Minor)
				return paid(call.Amount.Minor, c.answer)
			})
			s := r.StartWorkers().MustSubmit(rig.Release(1))
			r.WaitState(s.Run, background.Succeeded)
			if p := r.Payloads(s, receipts.AttemptSucceeded); len(p) != 1 || p[0].Reference != c.want {
				t.Errorf("%+v", p)
			}
			wantAuditOK(t, r)
		})
	}
}

// Two spellings of one reference, and one that was kept by a mark before there was a policy, are no other payment.
func TestSpellingsOfOneReferenceAreNoOtherPayment(t *testing.T) {
	t.Parallel()
	for name, setLater := range map[string]bool{"spelled in two ways": false, "the policy came between": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, answerFirst := answersTwice(t, paid(1000, "KID "+kid), paid(1000, kid))
			if !setLater {
				setReferences(r, kidOf(references.FieldReference))
			}
			a := rig.Release(1)
			s := r.StartWorkers().MustSubmit(a)
			r.WaitState(s.Run, background.Succeeded)
			if setLater {
				setReferences(r, kidOf(references.FieldReference))
			}
			answerFirst()
			r.WaitReceipt(s.Case, receipts.AnsweredLate)
			if c := r.CaseOf(a); c.Progression != settlement.Settled || c.Contradictions != 0 || c.Released != 1000 {
				t.Errorf("%+v", c)
			}
			wantAuditOK(t, r)
		})
	}
}

// Ids and members of payloads that the policy names may hold references; other fields, and other secrets, are refused.
func TestIDsAndPayloadsMayHoldReferencesOfTheBank(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	ctx := context.Background()
	withIDs := rig.Release(1)
	withIDs.TransactionReceiptID, withIDs.EscrowReference, withIDs.AdjudicationID, withIDs.SubmissionReceiptID = kid, kid, kid, kid
	_, err := r.Submit(ctx, withIDs)
	wantRefused(t, "without a policy", err, references.FieldTransaction)
	setReferences(r, kidOf(references.FieldTransaction), kidOf(references.FieldEscrow), kidOf(references.FieldAdjudication), kidOf("payload/lines/*/kid"))
	_, err = r.Submit(ctx, withIDs)
	wantRefused(t, "a field without a rule", err, references.FieldSubmission)
	withIDs.SubmissionReceiptID = "sub_1"
	for payload, field := range map[string]string{
		`{"lines[0].kid":"` + kid + `"}`:                    "payload.lines[0].kid",
		`{"lines":[{"kid":"` + kid + `","token":"abc12"}]}`: "payload.lines[0].token",
		`{"lines":[{"kid":"KID ` + kid + `"}]}`:             "payload.lines[0].kid",
		`{"lines":[{"kid":"` + kid + ` Bearer abcdefgh"}]}`: "payload.lines[0].kid",
	} {
		withIDs.Payload = json.RawMessage(payload)
		_, err := r.Submit(ctx, withIDs)
		wantRefused(t, payload, err, field)
	}
	withIDs.Payload = json.RawMessage(`{"lines":[{"kid":"` + kid + `"}]}`)
	s := r.MustSubmit(withIDs)
	if p := r.Payloads(s, receipts.Submitted); s.Reply != postadjudication.Created || p[0].TransactionReceiptID != kid || p[0].EscrowReference != kid {
		t.Errorf("%s: %+v", s.Reply, p)
	}
	setReferences(r)
	if again, err := r.Submit(ctx, withIDs); err != nil || again.Reply != postadjudication.Deduplicated {
		t.Errorf("the same again, after the policy was removed: %v, %v", again.Reply, err)
	}
}

// Returned payments and evidence for freed money cite references. A repeated request is answered with its plan, also after the
// policy was removed, and another spelling is no second return.
func TestReturnsAndFreesCiteReferencesOfTheBank(t *testing.T) {
	t.Parallel()
	r := rig.New(t).StartWorkers()
	ctx := context.Background()
	ada := r.As("acme", "user:ada").Bulk
	s := r.MustSubmit(rig.Release(1))
	r.WaitState(s.Run, background.Succeeded)
	r.DeadLetter(2, rig.Refuses)
	returns := func(reference string) bulk.ReturnsRequest {
		return bulk.ReturnsRequest{Reason: "account closed", Request: "req-1", Returns: []bulk.ReturnedPayment{{
			Transaction: "txr_1", Reference: reference, Amount: rig.Euros(400), ReturnedAt: time.Date(2026, 11, 20, 9, 30, 0, 0, time.UTC),
		}}}
	}
	frees := bulk.FreeRequest{All: true, Reason: "withdrawn", Reference: kid, Request: "req-2"}
	_, err := ada.PlanReturns(ctx, returns(kid))
	wantRefused(t, "returns without a policy", err, "returns[0].reference")
	_, err = ada.PlanFree(ctx, frees)
	wantRefused(t, "frees without a policy", err, "reference")
	setReferences(r, kidOf(references.FieldReference))
	_, err = ada.PlanReturns(ctx, returns("KID "+kid))
	wantRefused(t, "another spelling", err, "returns[0].reference")
	planned, err := ada.PlanReturns(ctx, returns(kid))
	if err != nil || planned.Plan == nil || planned.Plan.Spec.Returns[0].Reference != kid {
		t.Fatalf("%+v, %v", planned, err)
	}
	freed, err := ada.PlanFree(ctx, frees)
	if err != nil || freed.Spec.Reference != kid {
		t.Fatalf("%+v, %v", freed, err)
	}
	setReferences(r)
	if again, err := ada.PlanReturns(ctx, returns(kid)); err != nil || again.Plan == nil || again.Plan.ID != planned.Plan.ID {
		t.Errorf("the same returns again: %+v, %v", again, err)
	}
	if again, err := ada.PlanFree(ctx, frees); err != nil || again.ID != freed.ID {
		t.Errorf("the same frees again: %+v, %v", again, err)
	}
	if done := r.RunPlan(*planned.Plan); done.Progress.Done != 1 {
		t.Errorf("%+v", done.Progress)
	}
	if p := r.Payloads(s, receipts.Returned); len(p) != 1 || p[0].Reference != kid {
		t.Errorf("%+v", p)
	}
	wantAuditOK(t, r)
}

// The library shows the policy, its versions, and refuses what is incomplete.
func TestAPolicyOfReferencesIsShownWithItsVersions(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	ctx := context.Background()
	policy := r.As("acme", "user:root").References
	if now, err := policy.Show(ctx); err != nil || now.Version != 0 {
		t.Errorf("%+v, %v", now, err)
	}
	setReferences(r, kidOf(references.FieldReference))
	if now, err := policy.Show(ctx); err != nil || now.Version != 1 || now.Actor != "user:root" || len(now.Policy.Rules) != 1 {
		t.Errorf("%+v, %v", now, err)
	}
	if found, err := policy.History(ctx, 0, 10); err != nil || len(found) != 1 {
		t.Errorf("%+v, %v", found, err)
	}
	for what, err := range map[string]error{
		"reason": func() error { _, err := policy.Set(ctx, references.Change{}); return err }(),
		"tenant": func() error { _, err := r.As("", "user:root").References.Show(ctx); return err }(),
		"limit":  func() error { _, err := policy.History(ctx, 0, 0); return err }(),
		"after":  func() error { _, err := policy.History(ctx, -1, 1); return err }(),
	} {
		wantRefused(t, what, err, what)
	}
	wantAuditOK(t, r)
}
