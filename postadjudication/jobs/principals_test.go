package jobs_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/background/lease"
	"github.com/recourse-dev/recourse/internal/testkit"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/jobs"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/retrypolicy"
)

// as returns what another principal of the tenant, with a worker's key of its own, may do.
func (f *fixture) as(principal string) *fixture {
	return &fixture{f.Rig, f.As("acme", principal).Jobs, f.t}
}

// wantNotTheHolder fails the test unless whatever a principal says of a job, under the worker's name or none, is refused,
// changes nothing, and leaves one receipt of each kind of answer.
func (f *fixture) wantNotTheHolder(principal string, job jobs.Status) {
	f.t.Helper()
	ctx, before := context.Background(), f.mustFind(job.ID)
	other := f.as(principal)
	for _, attempt := range []int{0, before.Attempt} {
		for _, worker := range []string{"", "w1"} {
			a := jobs.Answer{ID: job.ID, Worker: worker, Attempt: attempt}
			_, err := other.Ack(ctx, a, payment(1000, "EUR"))
			wantGate(f.t, err, refusal.GateNotTheHolder)
			_, err = other.Nack(ctx, a, notExecuted, false, background.EndByPolicy)
			wantGate(f.t, err, refusal.GateNotTheHolder)
			_, err = other.HandBack(ctx, a, notExecuted)
			wantGate(f.t, err, refusal.GateNotTheHolder)
			_, err = other.Heartbeat(ctx, worker, []string{job.ID}, 0)
			wantGate(f.t, err, refusal.GateNotTheHolder)
		}
	}
	if now := f.mustFind(job.ID); now.State != before.State || now.Attempt != before.Attempt {
		f.t.Errorf("%+v, before %+v", now, before)
	}
	if got, want := f.refusedOf(principal, job), []string{"ack", "hand-back", "heartbeat", "nack"}; !slices.Equal(got, want) {
		f.t.Errorf("receipts of refusals: %v, want %v", got, want)
	}
}

// refusedOf returns what a principal was refused of a job because it is not the holder, by the receipts, in alphabetical order.
func (f *fixture) refusedOf(principal string, job jobs.Status) (asked []string) {
	f.t.Helper()
	rs, err := f.Receipts(context.Background(), "acme", job.Case, 0, 100)
	if err != nil {
		f.t.Fatal(err)
	}
	for _, r := range rs {
		if r.Subtype != receipts.Refused || r.Actor != principal {
			continue
		}
		p, err := r.Payload()
		if err != nil || p.RefusedBy != string(refusal.GateNotTheHolder) {
			f.t.Errorf("%+v, %v", p, err)
		}
		asked = append(asked, p.AskedFor)
	}
	slices.Sort(asked)
	return asked
}

// A lease belongs to the principal that fetched it. The answers of others are refused while it is held, after its end,
// after the job has ended, and while a third one holds it. So are those of the principal that held it before, except what
// it says of a payment: that is a fact.
func TestAnotherPrincipalAnswersForNoLease(t *testing.T) {
	t.Parallel()
	f := newFixture(t, func(c *postadjudication.Config) { c.Remote.KeyLifetime = time.Hour })
	f.StartWorkers()
	const holder, before, other = "service:shop", "user:before", "user:other"
	shortly := func(by *fixture) order {
		t.Helper()
		if got, err := by.Fetch(t.Context(), jobs.Fetch{Queues: []string{mail}, Count: 1, Worker: "w1", Visibility: shortLeaseLength}); err != nil || len(got) != 1 {
			t.Fatalf("%+v, %v", got, err)
		}
		return by.mustFetchOrder("w1", shortLease)
	}
	for n, state := range []string{"held", "settled", "taken", "ended"} {
		plain := f.mustEnqueue(attempts(3, retrypolicy.DeadLetter))
		s, adjudication := f.submitRemote(n)
		paid, fetched := int64(0), order{}
		switch state {
		case "held", "settled":
			f.mustFetch(plain)
			fetched = f.mustFetchOrder("w1")
			if state == "held" {
				break
			}
			paid = 1000
			if _, err := f.Ack(t.Context(), by(plain), nil); err != nil {
				t.Fatal(err)
			}
			if _, err := f.Ack(t.Context(), by(adjudication), f.pay(fetched)); err != nil {
				t.Fatal(err)
			}
		case "taken":
			fetched = shortly(f.as(before))
			for _, queue := range []string{mail, payouts} {
				f.Wait("the holder has the job", func() bool {
					got, err := f.Fetch(t.Context(), jobs.Fetch{Queues: []string{queue}, Count: 1, Worker: "w1"})
					return err == nil && len(got) == 1
				})
			}
			f.wantNotTheHolder(before, plain)
		case "ended":
			shortly(f)
			f.Wait("the leases have ended", func() bool {
				return f.mustFind(plain.ID).State != background.Running && f.mustFind(adjudication.ID).State != background.Running
			})
		}
		t.Log(state)
		f.wantNotTheHolder(other, plain)
		f.wantNotTheHolder(other, adjudication)
		f.wantPaid(s, paid)
		if state == "held" {
			if _, err := f.Ack(t.Context(), by(plain), nil); err != nil {
				t.Error(err)
			}
			if _, err := f.Ack(t.Context(), by(adjudication), f.pay(fetched)); err != nil {
				t.Error(err)
			}
			f.wantPaid(s, 1000)
		}
		if state == "taken" {
			_, err := f.as(before).Heartbeat(t.Context(), "w1", []string{adjudication.ID}, 0)
			wantGate(t, err, refusal.GateNotTheHolder)
			_, err = f.as(before).Ack(t.Context(), by(adjudication), f.pay(fetched))
			wantConflict(t, err, background.Running)
			if got := f.subtypes(adjudication); !slices.Contains(got, receipts.AnsweredLate) {
				t.Errorf("what was paid by the principal that held the order before is not on record: %v", got)
			}
		}
	}
	f.MustAudit()
}

// After the end of its lease an order is a dead letter. Its holder tells a payment late, and nobody else.
func TestAnotherPrincipalAnswersForNoEndedLease(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.StartWorkers()
	s, job := f.submitRemote(1)
	o := f.mustFetchOrder("w1", shortLease)
	f.WaitLetter(s.Run)
	f.wantNotTheHolder("user:other", job)
	f.wantPaid(s, 0)
	if st := f.StatusOf(s.Run); st.Letter != background.LetterOpen {
		t.Errorf("%+v", st)
	}
	_, err := f.Ack(context.Background(), by(job), f.pay(o))
	wantConflict(t, err, background.DeadLettered)
	f.wantPaid(s, 1000)
	f.MustAudit()
}

// A heartbeat for several jobs extends those of its own principal.
func TestAHeartbeatExtendsTheLeasesOfItsPrincipal(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	other := f.as("user:other")
	theirs := f.mustEnqueue()
	f.mustFetch(theirs)
	own := f.mustEnqueue()
	other.mustFetch(own)
	if got, err := other.Heartbeat(t.Context(), "w1", []string{theirs.ID, own.ID}, 0); err != nil || !slices.Equal(got, []string{own.ID}) {
		t.Errorf("extended: %v, %v", got, err)
	}
	f.wantSubtypes(theirs, receipts.Submitted, receipts.AttemptStarted, receipts.Refused)
	f.wantSubtypes(own, receipts.Submitted, receipts.AttemptStarted)
}

// Another principal that uses the key of a fetch is given other jobs.
func TestTheKeyOfAFetchIsThatOfItsPrincipal(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	job := f.mustEnqueue()
	fetch := jobs.Fetch{Queues: []string{mail}, Count: 1, Worker: "w1", Key: lease.FetchKey{7}}
	for range 2 {
		if got, err := f.Fetch(t.Context(), fetch); err != nil || len(got) != 1 || got[0].ID != job.ID {
			t.Fatalf("%+v, %v", got, err)
		}
		if got, err := f.as("user:other").Fetch(t.Context(), fetch); err != nil || len(got) != 0 {
			t.Errorf("%+v, %v", got, err)
		}
	}
}

// A fetch whose caller has no name is refused: nobody could answer for its lease.
func TestAFetchNamesItsPrincipal(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	job := f.mustEnqueue()
	if got, err := f.as("").Fetch(t.Context(), jobs.Fetch{Queues: []string{mail}, Count: 1}); !errors.As(err, new(*refusal.FieldError)) || len(got) != 0 {
		t.Errorf("%+v, %v", got, err)
	}
	f.mustFetch(job)
}

// A process of the version before stores no principal with the lease: the receipt of the attempt says whose it is.
func TestALeaseWithoutAPrincipalIsThatOfItsReceipt(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	server := f.other()
	s, order := f.submitRemote(1)
	o := f.mustFetchOrder("w1")
	plain := f.mustEnqueue()
	fetch := jobs.Fetch{Queues: []string{mail}, Count: 1, Worker: "w1", Key: lease.FetchKey{7}}
	if got, err := f.Fetch(t.Context(), fetch); err != nil || len(got) != 1 {
		t.Fatalf("%+v, %v", got, err)
	}
	testkit.Tamper(t, f.DB, `UPDATE recourse.leases SET principal = ''`)
	f.MustAudit()
	server.wantNotTheHolder("user:other", order)
	server.wantNotTheHolder("user:other", plain)
	if got, err := server.as("user:other").Fetch(t.Context(), fetch); err != nil || len(got) != 0 {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := server.Fetch(t.Context(), fetch); err != nil || len(got) != 1 || got[0].ID != plain.ID {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := server.Heartbeat(t.Context(), "w1", []string{order.ID, plain.ID}, 0); err != nil || len(got) != 2 {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := server.Ack(t.Context(), by(plain), nil); err != nil {
		t.Error(err)
	}
	if _, err := server.Ack(t.Context(), by(order), f.pay(o)); err != nil {
		t.Error(err)
	}
	f.wantPaid(s, 1000)
}
