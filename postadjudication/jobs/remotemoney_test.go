package jobs_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/background/lease"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/jobs"
	"github.com/recourse-dev/recourse/postadjudication/references"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/receipts"
)

// Ids of jobs are their clients'. A job with the id of an adjudication's run must not get the answers that
// the worker of the adjudication gives.
func TestAJobDoesNotTakeTheAnswersOfAnAdjudication(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ctx := context.Background()
	s, job := f.submitRemote(1)
	o := f.mustFetchOrder("w1")
	_, err := f.Enqueue(ctx, newJob(func(j *jobs.Job) { j.ID = job.ID }))
	if err == nil {
		if got, err := f.Fetch(ctx, jobs.Fetch{Queues: []string{mail}, Count: 1, Worker: "w2"}); err != nil || len(got) != 1 {
			t.Fatalf("%+v, %v", got, err)
		}
	}
	if _, err := f.Ack(ctx, jobs.Answer{ID: job.ID, Worker: "w1", Attempt: 1}, f.pay(o)); err != nil {
		t.Errorf("the ack of what was paid: %v", err)
	}
	f.wantPaid(s, 1000)
}

// The other way: what the worker of a job answers is not said of money. Here another server than the one that
// gave the job gets the answer.
func TestTheAnswerOfAJobIsNotThatOfAnAdjudication(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	other := f.other()
	ctx := context.Background()
	s, job := f.submitRemote(1)
	f.mustFetchOrder("w1")
	if _, err := f.Enqueue(ctx, newJob(func(j *jobs.Job) { j.ID = job.ID })); err != nil {
		return // refused: no job has that id
	}
	if got, err := f.Fetch(ctx, jobs.Fetch{Queues: []string{mail}, Count: 1, Worker: "w2"}); err != nil || len(got) != 1 {
		t.Fatalf("%+v, %v", got, err)
	}
	done, err := other.Nack(ctx, jobs.Answer{ID: job.ID}, refused, false, background.EndByPolicy) // of the mail
	if st := f.StatusOf(s.Run); st.State != background.Running {
		t.Errorf("the nack of a mail, answered with %s %s (%v), ended the adjudication as %s", done.Type, done.State, err, st.State)
	}
}

// A repeated fetch checks the order as the first one does: bytes that were changed beside the product since
// are not what was submitted.
func TestARepeatedFetchGivesNoAlteredOrder(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	s, _ := f.submitRemote(1)
	fetch := func() []jobs.Fetched {
		t.Helper()
		got, err := f.Fetch(context.Background(), jobs.Fetch{Queues: []string{payouts}, Count: 1, Worker: "w1", Key: lease.FetchKey{1}})
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	if got := fetch(); len(got) != 1 || !strings.Contains(string(got[0].Payload), `"minor":1000`) {
		t.Fatalf("%s", got[0].Payload)
	}
	for _, q := range []string{`ALTER TABLE recourse.operations DISABLE TRIGGER ALL`,
		`UPDATE recourse.operations SET request = replace(convert_from(request, 'UTF8'), '"minor":1000', '"minor":9000')::bytea WHERE case_id = '` + s.Case.String() + `'`} {
		if _, err := f.DB.Exec(q); err != nil {
			t.Fatal(err)
		}
	}
	if got := fetch(); len(got) != 0 {
		t.Errorf("an order that was not submitted: %s", got[0].Payload)
	}
}

// What a hand-back rests on is in evidence, as it is of a nack.
func TestAHandedBackAttemptKeepsWhatItsWorkerSaid(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	s, job := f.submitRemote(1)
	f.mustFetchOrder("w1")
	if _, err := f.HandBack(context.Background(), by(job), notExecuted); err != nil {
		t.Fatal(err)
	}
	if p := f.Payloads(s, receipts.AttemptInterrupted)[0]; p.Error.Code != notExecuted.Code || p.Error.Message != notExecuted.Message {
		t.Errorf("the receipt says %+v of %+v", p.Error, notExecuted)
	}
}

// What contradicts itself is unknown.
func TestANackThatContradictsItselfIsUnknown(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for n, why := range []background.Failure{
		{Type: "bank", Code: "x_not_executed", Message: "?", Details: `{"outcome_class":"unknown"}`},
		{Type: "bank", Code: "x_not_executed", Message: "?", Details: `{"outcome_class":"executed"}`},
		{Type: "bank", Code: "x_not_executed_is_not_sure", Message: "?", Details: `{"outcome_class":"unknown"}`},
	} {
		s, job := f.submitRemote(n)
		f.mustFetchOrder("w1")
		if _, err := f.Nack(context.Background(), by(job), why, true, background.EndByPolicy); err != nil {
			t.Fatal(err)
		}
		if st := f.StatusOf(s.Run); st.Class != escrow.Unknown {
			t.Errorf("%s %s: %s", why.Code, why.Details, st.Class)
		}
		_, _ = f.Fetch(context.Background(), jobs.Fetch{Queues: []string{payouts}, Count: 1, Worker: "w1"})
	}
}

// The reference of a payment is evidence: what is stored is what the worker said, or the ack is refused.
func TestTheReferenceOfAnAckIsKeptAsItIs(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for n, reference := range []string{"4111111111111111", "a\u0000b", "\u0007", "ref\n2", "DE89370400440532013000", strings.Repeat("é", 127)} {
		s, job := f.submitRemote(n)
		f.mustFetchOrder("w1")
		quoted, _ := json.Marshal(reference)
		done, err := f.Ack(context.Background(), by(job), json.RawMessage(`{"moved":{"minor":1000,"currency":"EUR"},"reference":`+string(quoted)+`}`))
		if err != nil {
			t.Logf("%q: refused: %v", reference, err)
			if _, err := f.Ack(context.Background(), by(job), payment(1000, "EUR")); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if p := f.Payloads(s, receipts.AttemptSucceeded); len(p) != 1 || p[0].Reference != reference {
			t.Errorf("%q is stored as %+v (%s)", reference, p, done.State)
		}
	}
}

// A worker acknowledges a payment by the bank's own reference: with the policy it is kept in its canonical spelling, without
// one the ack is refused and changes nothing.
func TestAnAckCitesAReferenceOfTheBank(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ctx := context.Background()
	s, job := f.submitRemote(1)
	f.mustFetchOrder("w1")
	ack := func(reference string) error {
		_, err := f.Ack(ctx, by(job), json.RawMessage(`{"moved":{"minor":1000,"currency":"EUR"},"reference":"`+reference+`"}`))
		return err
	}
	var wrong *refusal.FieldError
	if err := ack("5010123456789012"); !errors.As(err, &wrong) || wrong.Field != "result.reference" {
		t.Errorf("without a policy: %v", err)
	}
	if _, err := f.As("acme", "user:root").References.Set(ctx, references.Change{Reason: "the agreement with the bank", Policy: references.Policy{Rules: []references.Rule{
		{Field: references.FieldReference, Scheme: references.KID, Modulus: 10, Length: 16},
	}}}); err != nil {
		t.Fatal(err)
	}
	if err := ack("5010123456789012 password=hunter2"); !errors.As(err, &wrong) {
		t.Errorf("with a password: %v", err)
	}
	if err := ack("KID 5010 1234 5678 9012"); err != nil {
		t.Fatal(err)
	}
	if p := f.Payloads(s, receipts.AttemptSucceeded); len(p) != 1 || p[0].Reference != "5010123456789012" {
		t.Errorf("%+v", p)
	}
	f.wantPaid(s, 1000)
}

// A worker may pay until recourse.not_after. Until then its lease must not count as over, whatever a heartbeat
// says, here one without a name: else "nothing was executed" is believed while the worker may still pay.
func TestAHeartbeatDoesNotEndALeaseBeforeItsOrderMayNoLongerBeExecuted(t *testing.T) {
	t.Parallel()
	stated := func(c *postadjudication.Config) { c.Remote.InFlight = time.Second }
	f := newFixture(t, stated)
	f.StartWorkers()
	s, job := f.submitRemote(1)
	o := f.mustFetchOrder("w1", func(q *jobs.Fetch) { q.Visibility = 12 * time.Hour })
	if _, err := f.Heartbeat(context.Background(), "", []string{job.ID}, time.Millisecond); err != nil {
		t.Fatal(err)
	}
	other, _ := f.submitRemote(2)
	f.mustFetchOrder("w2", shortLease)
	f.WaitLetter(other.Run) // a lease that is shorter, and began later, is over
	if st := f.StatusOf(s.Run); st.State != background.Running {
		t.Errorf("not_after is %s away, and the attempt counts as lost: %+v", time.Until(o.Meta.NotAfter).Round(time.Minute), st)
	}
	f.MustAudit()
}

// What a worker says was paid, and Postgres refuses as a sum and as a text, is left to a person, who sees that the worker said
// so.
func TestAPaymentThatCanNotBeRecordedLeavesItsClass(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	if _, err := f.DB.Exec(`ALTER TABLE recourse.cases ADD CONSTRAINT refused CHECK (released = 0);
		ALTER TABLE recourse.runs ADD CONSTRAINT refused CHECK (reason <> 'unrecordable' OR error_text = '')`); err != nil {
		t.Fatal(err)
	}
	s, job := f.submitRemote(1)
	o := f.mustFetchOrder("w1")
	if done, err := f.Ack(context.Background(), jobs.Answer{ID: job.ID}, f.pay(o)); err != nil || done.State != background.DeadLettered || !done.OutcomeUnknown {
		t.Errorf("%+v, %v", done, err)
	}
	if p := f.Payloads(s, receipts.DeadLettered)[0]; p.ReasonCode != background.ReasonUnrecordable || p.Error.Code != string(background.Executed) {
		t.Errorf("%+v", p)
	}
	f.MustAudit()
}
