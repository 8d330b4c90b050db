package bulk_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/bulk"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/internal/rig"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/settlement"
)

// cameBack is a return of the payment of a transaction.
func cameBack(transaction, reference string, minor int64) bulk.ReturnedPayment {
	return bulk.ReturnedPayment{Transaction: transaction, Reference: reference, Amount: settlement.Money{Minor: minor, Currency: "EUR"}, ReturnedAt: time.Date(2026, 11, 20, 9, 30, 0, 0, time.UTC)}
}

// planReturns plans returns as user:ada.
func planReturns(r *rig.Rig, returns ...bulk.ReturnedPayment) bulk.PlannedReturns {
	r.T.Helper()
	planned, err := r.As("acme", "user:ada").Bulk.PlanReturns(context.Background(), bulk.ReturnsRequest{Returns: returns, Reason: "account closed"})
	if err != nil {
		r.T.Fatal(err)
	}
	return planned
}

// recordReturns records returns by two people.
func recordReturns(r *rig.Rig, returns ...bulk.ReturnedPayment) bulk.Plan {
	r.T.Helper()
	planned := planReturns(r, returns...)
	if planned.Plan == nil || len(planned.Refused) > 0 {
		r.T.Fatalf("%+v", planned)
	}
	return r.RunPlan(*planned.Plan)
}

// settled submits and settles adjudications.
func settled(r *rig.Rig, n int) []postadjudication.Submitted {
	r.T.Helper()
	out := make([]postadjudication.Submitted, n)
	for i := range out {
		out[i] = r.MustSubmit(rig.Release(i + 1))
	}
	r.WaitNoneLive()
	return out
}

// A bank returns payments days after they settled. Two people record it, the escrows have the sums again, and a higher
// generation pays what came back.
func TestAPaymentThatCameBackIsRecordedByTwoPeopleAndPaidAgain(t *testing.T) {
	t.Parallel()
	r := rig.New(t).StartWorkers()
	ctx := context.Background()
	runs := settled(r, 2)
	planned := planReturns(r, cameBack("txr_1", "R-1", 1000), cameBack("txr_2", "R-2", 400), cameBack("txr_9", "R-9", 1))
	plan := planned.Plan
	if plan == nil || plan.Action != bulk.Return || plan.Items != 2 || plan.Ready != 2 || plan.People != 2 || plan.Money["EUR"] != settlement.SumOf(1400) || len(plan.Spec.Returns) != 2 || len(planned.Known) != 0 {
		t.Fatalf("%+v", planned)
	}
	if refused := planned.Refused; len(refused) != 1 || refused[0].Reference != "R-9" || refused[0].Why != "no case has this transaction" {
		t.Errorf("%+v", refused)
	}
	var second *bulk.SecondPersonError
	if _, err := r.As("acme", "user:ada").Bulk.Run(ctx, plan.ID, plan.Hash); !errors.As(err, &second) {
		t.Errorf("alone: %v", err)
	}
	if c := r.CaseOf(rig.Release(1)); c.Progression != settlement.Settled || c.Returned != 0 || c.Committed != 1000 {
		t.Errorf("before it is run: %+v", c)
	}
	if b := r.RunPlan(*plan); b.Progress.Done != 2 || b.Progress.Money["EUR"] != settlement.SumOf(1400) {
		t.Errorf("%+v", b.Progress)
	}
	for n, back := range []int64{1000, 400} {
		c := r.CaseOf(rig.Release(n + 1))
		if c.Progression != settlement.DisputeReady || c.ReasonCode != settlement.Escalate || c.Reason != "payment returned" || c.Lifecycle != settlement.ReEscalated ||
			c.Released != 1000 || c.Returned != back || c.Moved != 1000-back || c.Committed != 1000-back {
			t.Errorf("%+v", c)
		}
		payloads := r.Payloads(runs[n], receipts.Returned)
		if len(payloads) != 1 || payloads[0].Returned != back || payloads[0].PlannedBy != "user:ada" || payloads[0].Outcome != "release" || payloads[0].Reason != "account closed" ||
			!strings.HasPrefix(payloads[0].Reference, "R-") || payloads[0].ReturnedAt.IsZero() || payloads[0].Settlement.Returned != back {
			t.Errorf("%+v", payloads)
		}
		if s := r.MustSubmit(rig.Release(n + 1)); s.Reply != postadjudication.AlreadyExecuted {
			t.Errorf("the same again: %+v", s)
		}
	}
	r.MustAudit()
	for n, back := range []int64{1000, 400} {
		next := rig.Release(n + 1)
		next.Generation, next.Amount.Minor = 2, back+1
		if back < 1000 {
			if s := r.MustSubmit(next); s.Reply != postadjudication.ExceedsHeld {
				t.Errorf("more than came back: %+v", s)
			}
		}
		next.Amount.Minor = back
		if s := r.MustSubmit(next); s.Reply != postadjudication.Created {
			t.Errorf("a higher generation: %+v", s)
		}
	}
	r.WaitNoneLive()
	for n, back := range []int64{1000, 400} {
		if c := r.CaseOf(rig.Release(n + 1)); c.Progression != settlement.Settled || c.Released != 1000+back || c.Returned != back || c.Committed != 1000 {
			t.Errorf("%+v", c)
		}
	}
	r.MustAudit()
}

// A payment comes back in parts, and never more than was paid: not of the case, and not of one payment.
func TestNoMoreComesBackThanWasPaid(t *testing.T) {
	t.Parallel()
	r := rig.New(t).StartWorkers()
	settled(r, 1)
	recordReturns(r, cameBack("txr_1", "R-1", 300), cameBack("txr_1", "R-2", 200))
	if c := r.CaseOf(rig.Release(1)); c.Returned != 500 || c.Moved != 500 || c.Committed != 500 {
		t.Errorf("%+v", c)
	}
	tooMuch := planReturns(r, cameBack("txr_1", "R-3", 300), cameBack("txr_1", "R-4", 201))
	if len(tooMuch.Refused) != 1 || tooMuch.Refused[0].Reference != "R-4" || tooMuch.Refused[0].Gate != refusal.GateExceedsPaid || tooMuch.Plan == nil || tooMuch.Plan.Money["EUR"] != settlement.SumOf(300) {
		t.Errorf("%+v", tooMuch)
	}
	recordReturns(r, cameBack("txr_1", "R-5", 250)) // of what the first plan has planned
	if b := r.RunPlan(*tooMuch.Plan); b.Progress.ByGate[refusal.GateExceedsPaid] != 1 {
		t.Errorf("%+v", b.Progress)
	}
	next := rig.Refund(1)
	next.Generation, next.Amount.Minor = 2, 750
	if s := r.MustSubmit(next); s.Reply != postadjudication.Created {
		t.Fatalf("%+v", s)
	}
	r.WaitNoneLive()
	var wrong *refusal.FieldError
	_, err := r.As("acme", "user:ada").Bulk.PlanReturns(context.Background(), bulk.ReturnsRequest{Returns: []bulk.ReturnedPayment{cameBack("txr_1", "R-6", 1)}, Reason: "account closed"})
	if !errors.As(err, &wrong) || wrong.Field != "returns[0].run_id" {
		t.Errorf("whose payment: %v", err)
	}
	of := r.MustSubmit(next).Run
	refund := cameBack("txr_1", "R-6", 751)
	refund.Run = of
	if planned := planReturns(r, refund); planned.Plan != nil || planned.Refused[0].Gate != refusal.GateExceedsPaid {
		t.Errorf("beyond one payment: %+v", planned)
	}
	refund.Amount.Minor = 750
	recordReturns(r, refund)
	if c := r.CaseOf(next); c.Progression != settlement.DisputeReady || c.Refunded != 750 || c.Returned != 1500 || c.Committed != 250 {
		t.Errorf("%+v", c)
	}
	r.MustAudit()
}

// A reference identifies a return: handed over again it is known, with another sum or transaction it is refused, and of
// two plans that have it one records it.
func TestAReturnIsRecordedOnce(t *testing.T) {
	t.Parallel()
	r := rig.New(t).StartWorkers()
	settled(r, 2)
	line := cameBack("txr_1", "R-1", 400)
	first, second, third := planReturns(r, line, line), planReturns(r, line), planReturns(r, cameBack("txr_2", "R-1", 400))
	if first.Plan.Money["EUR"] != settlement.SumOf(400) {
		t.Errorf("the same line twice: %+v", first.Plan)
	}
	var wg sync.WaitGroup
	ends := make([]bulk.Plan, 3)
	for n, planned := range []bulk.PlannedReturns{first, second, third} {
		wg.Go(func() { ends[n] = r.RunPlan(*planned.Plan) })
	}
	wg.Wait()
	var done, used int64
	for _, b := range ends {
		done, used = done+b.Progress.Done, used+b.Progress.ByGate[refusal.GateReferenceUsed]
	}
	if done != 1 || used != 2 {
		t.Errorf("%+v", ends)
	}
	transaction := "txr_1"
	if r.CaseOf(rig.Release(2)).Returned > 0 {
		transaction = "txr_2"
	}
	if again := planReturns(r, cameBack(transaction, "R-1", 400)); again.Plan != nil || len(again.Known) != 1 || again.Known[0] != "R-1" {
		t.Errorf("again: %+v", again)
	}
	inDollars := cameBack(transaction, "R-1", 400)
	inDollars.Amount.Currency = "USD"
	for _, other := range []bulk.ReturnedPayment{cameBack(transaction, "R-1", 401), cameBack("txr_3", "R-1", 400), inDollars} {
		if planned := planReturns(r, other); planned.Plan != nil || len(planned.Refused) != 1 || planned.Refused[0].Gate != refusal.GateReferenceUsed {
			t.Errorf("another one: %+v", planned)
		}
	}
	var wrong *refusal.FieldError
	_, err := r.As("acme", "user:ada").Bulk.PlanReturns(context.Background(), bulk.ReturnsRequest{Returns: []bulk.ReturnedPayment{line, cameBack("txr_1", "R-1", 1)}, Reason: "account closed"})
	if !errors.As(err, &wrong) || wrong.Field != "returns[1].reference" {
		t.Errorf("two of one reference: %v", err)
	}
	if n := r.CountReceipts(rig.Receipts{Subtype: receipts.Returned}); n != 1 {
		t.Errorf("%d receipts", n)
	}
	r.MustAudit()
}

// Where one person is enough, a return is recorded at once.
func TestAReturnIsRecordedAtOnceWhereOnePersonIsEnough(t *testing.T) {
	t.Parallel()
	r := rig.New(t).StartWorkers()
	r.OnePerson("test")
	settled(r, 1)
	planned := planReturns(r, cameBack("txr_1", "R-1", 1000))
	if planned.Plan == nil || planned.Plan.StartedBy != "user:ada" || planned.Plan.People != 1 {
		t.Fatalf("%+v", planned)
	}
	r.WaitPlan(planned.Plan.ID)
	if c := r.CaseOf(rig.Release(1)); c.Progression != settlement.DisputeReady || c.Returned != 1000 {
		t.Errorf("%+v", c)
	}
	r.MustAudit()
}

// What an older decision paid comes back while the present one is carried out: it is recorded, and the case goes on.
func TestAReturnIsRecordedWhileARunOfAHigherGenerationIsLive(t *testing.T) {
	t.Parallel()
	r := rig.New(t).StartWorkers()
	settled(r, 1)
	recordReturns(r, cameBack("txr_1", "R-1", 400))
	called, answer := make(chan struct{}), make(chan struct{})
	r.Escrow.Answer(func(escrow.Call) escrow.Answer {
		close(called)
		<-answer
		return rig.Refused()
	})
	next := rig.Release(1)
	next.Generation, next.Amount.Minor = 2, 400
	letter := r.MustSubmit(next)
	planned := planReturns(r, cameBack("txr_1", "R-2", 100)) // what the attempt writes does not make it stale
	<-called
	if b := r.RunPlan(*planned.Plan); b.Progress.Done != 1 {
		t.Errorf("%+v", b.Progress)
	}
	if c := r.CaseOf(next); c.Progression != settlement.InProgress || c.Returned != 500 || c.Reserved != 400 || c.Committed != 900 {
		t.Errorf("%+v", c)
	}
	close(answer)
	r.WaitNoneLive()
	r.Escrow.Script(nil)
	c := r.CaseOf(next)
	if c.Progression != settlement.DisputeReady || c.Reason != "post-adjudication execution dead-lettered" || c.Returned != 500 || c.Reserved != 400 || c.Moved != 0 || c.Committed != 900 {
		t.Errorf("%+v", c)
	}
	r.MustAudit()
	if _, err := r.As("acme", "user:ada").DeadLetters.Fork(context.Background(), letter.Run, rig.ForkRequest); err != nil {
		t.Fatal(err)
	}
	r.WaitNoneLive()
	if c := r.CaseOf(next); c.Progression != settlement.Settled || c.Released != 1400 || c.Returned != 500 || c.Committed != 900 {
		t.Errorf("%+v", c)
	}
	r.MustAudit()
}

// A payment is known by its key: an answer or a finding that states it again, after it came back, is no other payment.
func TestAReturnedPaymentThatIsStatedAgainIsNoOtherPayment(t *testing.T) {
	t.Parallel()
	r := rig.New(t).StartWorkers()
	letter := r.DeadLetter(1, func(c escrow.Call) escrow.Answer { r.Escrow.Pay(c, 1000); return rig.Refused() })
	if _, err := r.Reconcile(context.Background(), "acme", letter.Run, rig.PaidFinding); err != nil {
		t.Fatal(err)
	}
	recordReturns(r, cameBack("txr_1", "R-1", 1000))
	if _, err := r.Reconcile(context.Background(), "acme", letter.Run, rig.PaidFinding); err == nil {
		t.Error("a finding of a reconciled letter is recorded")
	}
	if c := r.CaseOf(rig.Release(1)); c.Progression != settlement.DisputeReady || c.Released != 1000 || c.Returned != 1000 || c.Committed != 0 {
		t.Errorf("%+v", c)
	}
	r.MustAudit()
}
