package jobs_test

import (
	"context"
	"errors"
	"testing"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication/jobs"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/receipts"
)

// asOther returns what another principal of the tenant, with a worker's key of its own, may do.
func (f *fixture) asOther() jobs.Jobs { return f.As("acme", "user:mal").Jobs }

// A lease belongs to the principal that fetched it: whatever another one says, under the worker's name or none, changes
// nothing and is on record once.
func TestAnotherPrincipalAnswersForNoLease(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	s, job := f.submitRemote(1)
	o := f.mustFetchOrder("w1")
	wantRefused := func(name string, err error) {
		t.Helper()
		var refused *refusal.RefusedError
		if !errors.As(err, &refused) || refused.Gate != refusal.GateNotTheHolder {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, a := range map[string]jobs.Answer{"unnamed": {ID: job.ID}, "as the worker": by(job), "as the worker, with the attempt": {ID: job.ID, Worker: "w1", Attempt: 1}} {
		_, err := f.asOther().Ack(context.Background(), a, payment(1000, "EUR"))
		wantRefused(name+", ack", err)
		_, err = f.asOther().Nack(context.Background(), a, notExecuted, false, background.EndByPolicy)
		wantRefused(name+", nack", err)
		_, err = f.asOther().HandBack(context.Background(), a, notExecuted)
		wantRefused(name+", hand back", err)
	}
	if extended, err := f.asOther().Heartbeat(context.Background(), "w1", []string{job.ID}, 0); err != nil || len(extended) != 0 {
		t.Errorf("heartbeat: %v, %v", extended, err)
	}
	f.wantPaid(s, 0)
	f.wantSubtypes(job, receipts.Submitted, receipts.AttemptStarted, receipts.Refused)
	if extended, err := f.Heartbeat(context.Background(), "w1", []string{job.ID}, 0); err != nil || len(extended) != 1 {
		t.Errorf("the holder's heartbeat: %v, %v", extended, err)
	}
	if _, err := f.Ack(context.Background(), by(job), f.pay(o)); err != nil {
		t.Fatal(err)
	}
	f.wantPaid(s, 1000)
	f.MustAudit()
}

// What another principal says after the end of a lease settles nothing: it never held the order.
func TestAnotherPrincipalAnswersForNoEndedLease(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.StartWorkers()
	s, job := f.submitRemote(1)
	o := f.mustFetchOrder("w1", shortLease)
	f.WaitLetter(s.Run)
	for _, a := range []jobs.Answer{{ID: job.ID}, by(job), {ID: job.ID, Worker: "w1", Attempt: 1}} {
		var refused *refusal.RefusedError
		if _, err := f.asOther().Ack(context.Background(), a, payment(1000, "EUR")); !errors.As(err, &refused) || refused.Gate != refusal.GateNotTheHolder {
			t.Errorf("%+v: %v", a, err)
		}
	}
	f.wantPaid(s, 0)
	_, err := f.Ack(context.Background(), by(job), f.pay(o))
	wantConflict(t, err, background.DeadLettered)
	f.wantPaid(s, 1000)
	f.MustAudit()
}

// The same holds for jobs that move no money.
func TestAnotherPrincipalAnswersForNoJob(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	job := f.mustEnqueue()
	f.mustFetch(job)
	var refused *refusal.RefusedError
	for _, a := range []jobs.Answer{{ID: job.ID}, by(job)} {
		if _, err := f.asOther().Ack(context.Background(), a, nil); !errors.As(err, &refused) || refused.Gate != refusal.GateNotTheHolder {
			t.Errorf("%+v: %v", a, err)
		}
	}
	if got := f.mustFind(job.ID); got.State != background.Running {
		t.Errorf("%+v", got)
	}
	f.MustAudit()
}
