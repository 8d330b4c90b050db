package jobs_test

import (
	"errors"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/bulk"
	"github.com/recourse-dev/recourse/postadjudication/deadletter"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/internal/rig"
	"github.com/recourse-dev/recourse/postadjudication/jobs"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/settlement"
)

// No escrow service can be asked about a payment of a remote worker. After its lease only the principal that held it
// tells the payment alone, and of its own attempt only: each other door refuses it, or plans it for a second person.
func TestOnlyTheHolderTellsAPaymentOfARemoteWorkerAlone(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.StartWorkers() // they work on plans
	s, job := f.submitRemote(1)
	o := f.mustFetchOrder("w1", shortLease)
	f.WaitLetter(s.Run)
	const other = "user:other"
	letters, bulks := f.Rig.As("acme", other).DeadLetters, f.Rig.As("acme", other).Bulk
	finding := deadletter.Finding{Reason: "the bank says so", Class: escrow.Executed, Moved: 1000, Reference: "bank-1"}
	wantSecond := func(err error) {
		t.Helper()
		if !errors.As(err, new(*bulk.SecondPersonError)) {
			t.Errorf("error %v, want that a second person is required", err)
		}
	}
	for name, door := range map[string]func(){
		"answer": func() {
			for _, attempt := range []int{0, 1} {
				_, err := f.as(other).Ack(t.Context(), jobs.Answer{ID: job.ID, Worker: "w1", Attempt: attempt}, payment(1000, "EUR"))
				wantGate(t, err, refusal.GateNotTheHolder)
			}
		},
		"lookup": func() {
			_, err := letters.Lookup(t.Context(), s.Run)
			wantGate(t, err, refusal.GateReconcileFirst)
		},
		"lookup by a plan": func() {
			planned := f.MustPlan(bulk.Request{Action: bulk.Reconcile, Filter: deadletter.Filter{Family: postadjudication.Family}, Reason: "ask"})
			if done := f.RunPlan(planned); done.Progress.Done != 0 {
				t.Errorf("the plan looked up %+v", done.Progress)
			}
		},
		"finding": func() {
			_, err := letters.Reconcile(t.Context(), s.Run, finding)
			wantSecond(err)
		},
		"finding of a transaction": func() {
			_, err := letters.ReconcileCase(t.Context(), rig.Release(1).TransactionReceiptID, finding)
			wantSecond(err)
		},
		"finding of the worker": func() { // what a worker pays late it answers itself
			_, err := f.Rig.As("acme", "service:shop").DeadLetters.Reconcile(t.Context(), s.Run, finding)
			wantSecond(err)
		},
	} {
		door()
		if st := f.StatusOf(s.Run); st.Letter != background.LetterOpen {
			t.Errorf("%s: %s", name, st.Letter)
		}
		f.wantPaid(s, 0)
	}
	_, err := f.Ack(t.Context(), by(job), f.pay(o))
	wantConflict(t, err, background.DeadLettered)
	f.wantPaid(s, 1000)
	back := bulk.ReturnedPayment{Transaction: rig.Release(1).TransactionReceiptID, Reference: "R-1", Amount: settlement.Money{Minor: 1000, Currency: "EUR"}}
	planned, err := bulks.PlanReturns(t.Context(), bulk.ReturnsRequest{Returns: []bulk.ReturnedPayment{back}, Reason: "account closed"})
	if err != nil || planned.Plan == nil || planned.Plan.People != 2 {
		t.Fatalf("%+v, %v", planned, err)
	}
	_, err = bulks.Run(t.Context(), planned.Plan.ID, planned.Plan.Hash)
	wantSecond(err)
	f.wantPaid(s, 1000)
	f.MustAudit()
}

// A principal whose lease was taken by another one tells what it paid itself, and not what the other one pays: neither by
// the number of its attempt nor without one.
func TestAPrincipalTellsThePaymentsOfItsOwnAttempts(t *testing.T) {
	t.Parallel()
	f := newFixture(t, func(c *postadjudication.Config) { c.Remote.KeyLifetime = time.Hour })
	f.StartWorkers()
	s, job := f.submitRemote(1)
	before := f.as("user:before")
	first := before.mustFetchOrder("w1", shortLease)
	f.WaitState(s.Run, background.Scheduled)
	second := f.mustFetchOrder("w1")
	for by, attempt := range map[*fixture]int{before: 2, f: 1} {
		a := jobs.Answer{ID: job.ID, Worker: "w1", Attempt: attempt}
		_, err := by.Ack(t.Context(), a, payment(1000, "EUR"))
		wantGate(t, err, refusal.GateNotTheHolder)
		_, err = by.Nack(t.Context(), a, notExecuted, false, background.EndByPolicy)
		wantGate(t, err, refusal.GateNotTheHolder)
		_, err = by.HandBack(t.Context(), a, notExecuted)
		wantGate(t, err, refusal.GateNotTheHolder)
	}
	f.wantPaid(s, 0)
	if _, err := before.Ack(t.Context(), jobs.Answer{ID: job.ID, Worker: "w1"}, f.pay(first)); err == nil {
		t.Error("a late answer is accepted as one in time")
	}
	f.wantPaid(s, 1000)
	if done, err := f.Ack(t.Context(), jobs.Answer{ID: job.ID, Worker: "w1"}, f.pay(second)); err != nil || done.State != background.Succeeded {
		t.Errorf("%+v, %v", done, err)
	}
	f.wantPaid(s, 1000)
	f.MustAudit()
}
