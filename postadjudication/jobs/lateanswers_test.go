package jobs_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/background/lease"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/deadletter"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/internal/rig"
	"github.com/recourse-dev/recourse/postadjudication/jobs"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/receipts"
)

// A worker that is silent may have paid. Without a key lifetime nobody else pays: a person finds out.
func TestASilentWorkerLeavesAnUnknownOutcome(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.StartWorkers()
	s, job := f.submitRemote(1)
	f.mustFetchOrder("w1", shortLease)
	f.WaitLetter(s.Run)
	f.fetchNoOrder()
	if got := f.mustFind(job.ID); !got.OutcomeUnknown || got.State != background.DeadLettered || len(got.Failures) != 1 || got.Failures[0].Type != string(lease.Expired) {
		t.Errorf("%+v", got)
	}
	f.wantSubtypes(job, receipts.Submitted, receipts.AttemptStarted, receipts.AttemptInterrupted, receipts.DeadLettered)
	if p := f.Payloads(s, receipts.AttemptInterrupted)[0]; p.AttemptClass != string(background.Unknown) || p.Recoveries != 1 || p.BudgetSpent != 0 || p.Call != receipts.CallOut {
		t.Errorf("%+v", p)
	}
	if p := f.Payloads(s, receipts.DeadLettered)[0]; p.ReasonCode != background.ReasonOutcomeUnknown {
		t.Errorf("%+v", p)
	}
	_, err := f.Jobs.DeadLetters().Retry(context.Background(), job.ID, jobs.Retry{Reason: "again"})
	wantGate(t, err, refusal.GateReconcileFirst)
	if err := f.Jobs.DeadLetters().Delete(context.Background(), job.ID, "away"); !errors.Is(err, jobs.ErrNeedsPlan) {
		t.Errorf("%v", err)
	}
	wantNoLookup(t, f, s.Run)
	// Nobody can say for how long the worker may still pay, unless the finding says that it knows.
	finding := deadletter.Finding{Reason: "the worker's disk", Class: escrow.NotExecuted, Reference: "disk-1"}
	_, err = f.Reconcile(context.Background(), "acme", s.Run, finding)
	wantGate(t, err, refusal.GateCallOutstanding)
	finding.CallOutstanding = true
	if _, err := f.Reconcile(context.Background(), "acme", s.Run, finding); err != nil {
		t.Fatal(err)
	}
	forked, err := f.Jobs.DeadLetters().Retry(context.Background(), job.ID, jobs.Retry{Reason: "again"})
	if err != nil || forked.ID != job.ID || forked.Run == s.Run || forked.State != background.Pending {
		t.Fatalf("%+v, %v", forked, err)
	}
	o := f.mustFetchOrder("w2")
	if o.ID != forked.Run.String() || o.Meta.Attempt != 1 {
		t.Errorf("%+v", o)
	}
	if _, err := f.Ack(context.Background(), jobs.Answer{ID: o.ID, Worker: "w2", Attempt: 1}, f.pay(o)); err != nil {
		t.Fatal(err)
	}
	if got := f.mustFind(job.ID); got.State != background.Succeeded || got.ID != job.ID {
		t.Errorf("%+v", got)
	}
	f.wantPaid(s, 1000)
	f.MustAudit()
}

// wantNoLookup fails the test if a letter of a remote target offers a lookup: there is no escrow
// service to ask.
func wantNoLookup(t *testing.T, f *fixture, run background.RunID) {
	t.Helper()
	letters := f.As("acme", "user:ada").DeadLetters
	seen, err := letters.Inspect(context.Background(), run)
	if err != nil || seen.Lookups != nil {
		t.Errorf("%+v, %v", seen.Lookups, err)
	}
	for _, a := range seen.Actions {
		if a.Name == refusal.ActionLookup && (a.Allowed || a.RefusedBy != refusal.GateNoExecutor) {
			t.Errorf("%+v", a)
		}
	}
	_, err = letters.Lookup(context.Background(), run)
	wantGate(t, err, refusal.GateReconcileFirst)
	var refused *refusal.RefusedError
	if errors.As(err, &refused) && refused.Because != "the lookup decided nothing: lookup.unsupported: remote workers pay for queue:"+payouts+", so there is no escrow service to ask: record a finding" {
		t.Error(err)
	}
}

// A worker that was frozen past its lease pays and tells it: the payment is a fact.
func TestALateAckSettles(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.StartWorkers()
	s, job := f.submitRemote(1)
	o := f.mustFetchOrder("w1", shortLease)
	f.WaitLetter(s.Run)
	_, err := f.Ack(context.Background(), jobs.Answer{ID: job.ID, Worker: "w2"}, payment(1000, "EUR"))
	wantConflict(t, err, background.DeadLettered)
	f.wantPaid(s, 0)
	said := f.pay(o)
	_, err = f.Ack(context.Background(), by(job), said)
	wantConflict(t, err, background.DeadLettered)
	f.wantPaid(s, 1000)
	if st := f.StatusOf(s.Run); st.Letter != background.LetterReconciled {
		t.Errorf("%+v", st)
	}
	_, err = f.Ack(context.Background(), by(job), said) // again
	wantConflict(t, err, background.DeadLettered)
	_, err = f.Nack(context.Background(), by(job), notExecuted, true, background.EndByPolicy)
	wantConflict(t, err, background.DeadLettered)
	f.wantSubtypes(job, receipts.Submitted, receipts.AttemptStarted, receipts.AttemptInterrupted, receipts.DeadLettered, receipts.AnsweredLate, receipts.Reconciled,
		receipts.AnsweredLate, receipts.Contradicted) // by the nack
	f.MustAudit()
}

// Whatever another worker says around the end of a lease is not the holder's answer.
func TestAnotherWorkerIsNotTakenForALateHolder(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.StartWorkers()
	s, job := f.submitRemote(1)
	f.mustFetchOrder("w1", shortLease)
	stop := make(chan struct{})
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				var conflict *jobs.ConflictError
				if _, err := f.Ack(context.Background(), jobs.Answer{ID: job.ID, Worker: "w2"}, payment(1000, "EUR")); !errors.As(err, &conflict) {
					t.Errorf("%v", err)
					return
				}
			}
		})
	}
	f.WaitLetter(s.Run)
	close(stop)
	all.Wait()
	f.wantPaid(s, 0)
	f.wantSubtypes(job, receipts.Submitted, receipts.AttemptStarted, receipts.AttemptInterrupted, receipts.DeadLettered)
	f.MustAudit()
}

// A fetch that is repeated again and again does not keep its lease: only heartbeats do.
func TestARepeatedFetchDoesNotKeepItsLease(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.StartWorkers()
	f.submitRemote(1)
	fetch := func() int {
		got, err := f.Fetch(context.Background(), jobs.Fetch{Queues: []string{payouts}, Count: 1, Worker: "w1", Key: lease.FetchKey{1}, Visibility: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		return len(got)
	}
	if fetch() != 1 {
		t.Fatal("nothing was fetched")
	}
	f.Wait("the lease ends although its fetch is repeated", func() bool { return fetch() == 0 })
}

// With a stated key lifetime another worker repeats the order under the same key, and the attempts are
// told apart.
func TestAnOrderIsRepeatedWithinTheLifetimeOfItsKey(t *testing.T) {
	t.Parallel()
	f := newFixture(t, func(c *postadjudication.Config) { c.Remote.KeyLifetime = time.Hour })
	f.StartWorkers()
	s, job := f.submitRemote(1)
	first := f.mustFetchOrder("w1", shortLease)
	f.WaitState(s.Run, background.Scheduled)
	second := f.mustFetchOrder("w1")
	if second.Meta.OperationKey != first.Meta.OperationKey || second.Meta.Attempt != 2 || string(second.Args[0]) != string(first.Args[0]) {
		t.Errorf("%+v, then %+v", first.Meta, second.Meta)
	}
	_, err := f.Ack(context.Background(), by(job), payment(1000, "EUR")) // of which attempt?
	wantConflict(t, err, background.Running)
	_, err = f.Ack(context.Background(), jobs.Answer{ID: job.ID}, payment(1000, "EUR"))
	wantConflict(t, err, background.Running)
	f.wantPaid(s, 0)
	said := f.pay(first)
	_, err = f.Ack(context.Background(), jobs.Answer{ID: job.ID, Attempt: 1}, said) // late, while the second runs
	wantConflict(t, err, background.Running)
	f.wantPaid(s, 1000)
	if done, err := f.Ack(context.Background(), jobs.Answer{ID: job.ID, Attempt: 2}, f.pay(second)); err != nil || done.State != background.Succeeded {
		t.Fatalf("%+v, %v", done, err)
	}
	f.wantPaid(s, 1000)
	f.wantSubtypes(job, receipts.Submitted, receipts.AttemptStarted, receipts.AttemptInterrupted, receipts.AttemptStarted, receipts.AnsweredLate, receipts.AttemptSucceeded)
	f.MustAudit()
}

// An order that is handed back while the payment of an earlier attempt is on record has succeeded: it was not handed
// back, by its row and by its receipts.
func TestAnOrderThatIsHandedBackAfterALatePaymentHasSucceeded(t *testing.T) {
	t.Parallel()
	f := newFixture(t, func(c *postadjudication.Config) { c.Remote.KeyLifetime = time.Hour })
	f.StartWorkers()
	ctx := context.Background()
	s, job := f.submitRemote(1)
	first := f.mustFetchOrder("w1", shortLease)
	f.WaitState(s.Run, background.Scheduled)
	f.mustFetchOrder("w2")
	_, err := f.Ack(ctx, jobs.Answer{ID: job.ID, Worker: "w1", Attempt: 1}, f.pay(first))
	wantConflict(t, err, background.Running)
	if got, err := f.HandBack(ctx, jobs.Answer{ID: job.ID, Worker: "w2", Attempt: 2}, notExecuted); err != nil || got.State != background.Succeeded {
		t.Fatalf("%+v, %v", got, err)
	}
	f.wantPaid(s, 1000)
	f.wantSubtypes(job, receipts.Submitted, receipts.AttemptStarted, receipts.AttemptInterrupted, receipts.AttemptStarted, receipts.AnsweredLate, receipts.AttemptSucceeded)
	f.MustAudit()
}

// A worker that states the payment of an earlier attempt once more, and then denies it, contradicts itself, whoever
// stated it first. One that knows of no payment contradicts none that a person found.
func TestAWorkerThatDeniesWhatItStatedIsOnRecord(t *testing.T) {
	t.Parallel()
	f := newFixture(t, func(c *postadjudication.Config) { c.Remote.KeyLifetime = time.Hour })
	f.StartWorkers()
	denies := func(s postadjudication.Submitted, of jobs.Answer, contradictions int) {
		t.Helper()
		if _, err := f.Nack(t.Context(), of, notExecuted, true, background.EndByPolicy); err == nil {
			t.Error("it is accepted")
		}
		if got, err := f.CaseByID(t.Context(), "acme", s.Case); err != nil || got.Released != 1000 || got.Contradictions != contradictions {
			t.Errorf("released %d, %d contradictions, %v", got.Released, got.Contradictions, err)
		}
	}
	s, job := f.submitRemote(1)
	first := f.mustFetchOrder("w1", shortLease)
	f.WaitState(s.Run, background.Scheduled)
	second := f.mustFetchOrder("w2")
	_, err := f.Ack(t.Context(), jobs.Answer{ID: job.ID, Worker: "w1", Attempt: 1}, f.pay(first))
	wantConflict(t, err, background.Running)
	said := jobs.Answer{ID: job.ID, Worker: "w2", Attempt: 2}
	if _, err := f.Ack(t.Context(), said, f.pay(second)); err != nil {
		t.Fatal(err)
	}
	denies(s, said, 1)

	found, honest := f.submitRemote(2)
	f.pay(f.mustFetchOrder("w1")) // it does not know that it paid
	of := jobs.Answer{ID: honest.ID, Worker: "w1", Attempt: 1}
	if _, err := f.Nack(t.Context(), of, unclear, false, background.EndByPolicy); err != nil {
		t.Fatal(err)
	}
	f.WaitLetter(found.Run)
	_, err = f.Service.As("acme", "user:ada").DeadLetters.Reconcile(t.Context(), found.Run, rig.PaidFinding)
	f.RunPlan(rig.PlanForSecondPerson(f.Rig, err))
	denies(found, of, 0)
	f.MustAudit()
}

// An order of a higher generation is given again after an attempt of its own of unknown outcome.
func TestAnOrderOfAHigherGenerationIsGivenAgain(t *testing.T) {
	t.Parallel()
	f := newFixture(t, func(c *postadjudication.Config) { c.Remote.KeyLifetime = time.Hour })
	f.StartWorkers()
	f.deadOrder(1, notExecuted)
	next := rig.Release(1)
	next.Generation, next.Target = 2, escrow.RemotePrefix+payouts
	s := f.MustSubmit(next)
	f.mustFetchOrder("w1", shortLease)
	f.WaitState(s.Run, background.Scheduled)
	o := f.mustFetchOrder("w2")
	if _, err := f.Ack(t.Context(), jobs.Answer{ID: o.ID, Worker: "w2", Attempt: 2}, f.pay(o)); err != nil {
		t.Fatal(err)
	}
	f.wantPaid(s, 1000)
	f.MustAudit()
}

// Losses are bounded: the next one is a dead letter.
func TestAnOrderThatLosesItsWorkersIsADeadLetter(t *testing.T) {
	t.Parallel()
	f := newFixture(t, func(c *postadjudication.Config) { c.Remote.KeyLifetime, c.MaxRecoveries = escrow.Forever, 1 })
	f.StartWorkers()
	s, job := f.submitRemote(1)
	f.mustFetchOrder("w1", shortLease)
	f.WaitState(s.Run, background.Scheduled)
	f.mustFetchOrder("w2", shortLease)
	f.WaitLetter(s.Run)
	if st := f.StatusOf(s.Run); st.ReasonCode != background.ReasonPoisonPill {
		t.Errorf("%+v", st)
	}
	f.wantSubtypes(job, receipts.Submitted, receipts.AttemptStarted, receipts.AttemptInterrupted, receipts.AttemptStarted, receipts.DeadLettered)
	f.MustAudit()
}

// Who holds an order may be about to pay: a cancel is asked for, and granted only if nothing was paid. Its
// receipt names who asked, not the worker whose answer ended the run.
func TestCancellingAHeldAdjudicationAsks(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.StartWorkers()
	ctx := context.Background()
	worker := &fixture{f.Rig, f.As("acme", "service:worker").Jobs, t}
	for n, c := range []struct {
		answer func(jobs.Status, order) error
		state  background.State
		paid   int64
	}{
		{func(j jobs.Status, o order) error { _, err := worker.Ack(ctx, by(j), f.pay(o)); return err }, background.Succeeded, 1000},
		{func(j jobs.Status, _ order) error {
			_, err := worker.Nack(ctx, by(j), notExecuted, true, background.EndByPolicy)
			return err
		}, background.Cancelled, 0},
		{func(j jobs.Status, _ order) error { _, err := worker.HandBack(ctx, by(j), notExecuted); return err }, background.Cancelled, 0},
		{func(j jobs.Status, _ order) error {
			_, err := worker.Nack(ctx, by(j), unclear, true, background.EndByPolicy)
			return err
		}, background.DeadLettered, 0},
	} {
		s, job := f.submitRemote(n)
		o := worker.mustFetchOrder("w1")
		_, err := f.Cancel(ctx, job.ID, "the parties agreed")
		var conflict *jobs.ConflictError
		if !errors.As(err, &conflict) || !conflict.Status.CancelRequested {
			t.Fatalf("%d: %v", n, err)
		}
		if err := c.answer(job, o); err != nil {
			t.Fatalf("%d: %v", n, err)
		}
		f.WaitState(s.Run, c.state)
		f.wantPaid(s, c.paid)
		trail, err := f.Receipts(ctx, "acme", s.Case, 0, 100)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range trail {
			if r.Subtype == receipts.Cancelled && r.Actor != "service:shop" {
				t.Errorf("%d: cancelled by %s", n, r.Actor)
			}
		}
	}
	_, job := f.submitRemote(100)
	if got, err := f.Cancel(ctx, job.ID, "the parties agreed"); err != nil || got.State != background.Cancelled {
		t.Errorf("waiting: %+v, %v", got, err)
	}
	f.fetchNoOrder()
	f.MustAudit()
}

// A fetch whose answer was lost is repeated with its key, here at another process, and gets what the first
// one got.
func TestARepeatedFetchGetsTheSameLeases(t *testing.T) {
	t.Parallel()
	recognised := func(c *postadjudication.Config) { c.Remote.KeyLifetime = time.Hour }
	f := newFixture(t, recognised)
	other := f.other(recognised)
	for n := range 3 {
		f.submitRemote(n)
	}
	fetch := func(f *fixture, key byte) (ids []string) {
		t.Helper()
		got, err := f.Fetch(context.Background(), jobs.Fetch{Queues: []string{payouts}, Count: 2, Worker: "w1", Key: lease.FetchKey{key}})
		if err != nil {
			t.Fatal(err)
		}
		for _, g := range got {
			ids = append(ids, fmt.Sprint(g.ID, " ", g.Attempt, " ", string(g.Payload)))
		}
		return ids
	}
	first := fetch(f, 1)
	if again := fetch(other, 1); len(first) != 2 || fmt.Sprint(again) != fmt.Sprint(first) {
		t.Fatalf("%v, then %v", first, again)
	}
	if next := fetch(other, 2); len(next) != 1 || next[0] == first[0] || next[0] == first[1] {
		t.Errorf("another key: %v", next)
	}
	id := first[0][:36]
	if _, err := other.Ack(context.Background(), jobs.Answer{ID: id, Worker: "w1"}, payment(1000, "EUR")); err != nil {
		t.Fatal(err)
	}
	if left := fetch(f, 1); len(left) != 1 || left[0] != first[1] {
		t.Errorf("after an ack: %v", left)
	}
	if n := f.CountReceipts(rig.Receipts{Subtype: receipts.AttemptStarted}); n != 3 {
		t.Errorf("%d attempts", n)
	}
}

// A lease is extended by its holder, and a circuit breaker by hand holds what is fetched next.
func TestHeartbeatsAndCircuitBreakersHoldAdjudications(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ctx := context.Background()
	s, job := f.submitRemote(1)
	breakers := f.As("acme", "user:ada").Breakers
	if _, err := breakers.Open(ctx, escrow.RemotePrefix+payouts, "the bank is closed"); err != nil {
		t.Fatal(err)
	}
	f.fetchNoOrder()
	if _, err := breakers.Release(ctx, escrow.RemotePrefix+payouts, "the bank is open"); err != nil {
		t.Fatal(err)
	}
	o := f.mustFetchOrder("w1")
	for worker, want := range map[string]int{"w1": 1, "w2": 0} {
		if got, err := f.Heartbeat(ctx, worker, []string{job.ID}, 0); err != nil || len(got) != want {
			t.Errorf("%s: %v, %v", worker, got, err)
		}
	}
	if _, err := f.Ack(ctx, by(job), f.pay(o)); err != nil {
		t.Fatal(err)
	}
	f.wantPaid(s, 1000)
	f.MustAudit()
}

// wantGate fails the test unless an error is the refusal of a gate.
func wantGate(t *testing.T, err error, gate refusal.Gate) {
	t.Helper()
	var refused *refusal.RefusedError
	if !errors.As(err, &refused) || refused.Gate != gate {
		t.Errorf("error %v, want the gate %s", err, gate)
	}
}

// However long ago its lease ended, a worker may still pay, unless the operator states a span. A person who
// found that nothing was executed has to say that it knows.
func TestNobodyCanSayForHowLongARemoteWorkerMayPay(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.StartWorkers()
	s, _ := f.submitRemote(1)
	f.mustFetchOrder("w1", shortLease)
	f.WaitLetter(s.Run)
	const year = 365 * 24 * time.Hour
	finding := deadletter.Finding{Reason: "the worker's disk", Class: escrow.NotExecuted, Reference: "disk-1"}
	unstated, clock := f.WithClock(withJobs)
	clock.Set(year)
	_, err := unstated.Reconcile(context.Background(), "acme", s.Run, finding)
	wantGate(t, err, refusal.GateCallOutstanding)
	stated, clock := f.WithClock(withJobs, func(c *postadjudication.Config) { c.Remote.InFlight = time.Hour })
	clock.Set(year)
	if _, err := stated.Reconcile(context.Background(), "acme", s.Run, finding); err != nil {
		t.Errorf("with an hour stated: %v", err)
	}
}

// A worker that answers again for an attempt is refused, and what it says then is on record: a higher sum is a payment
// of the rest, a lower one, a refusal, or a sum that can't be recorded contradicts the payment.
func TestASecondAnswerWithAnotherSumIsOnRecord(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	s, job := f.submitRemote(1)
	f.mustFetchOrder("w1")
	if _, err := f.DB.Exec(`ALTER TABLE recourse.cases ADD CONSTRAINT refused CHECK (released <> 1100)`); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Ack(t.Context(), by(job), payment(400, "EUR")); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name                  string
		answer                func() error
		released              int64
		contradictions, grows int
	}{
		{"the same", func() error { _, err := f.Ack(t.Context(), by(job), payment(400, "EUR")); return err }, 400, 0, 0},
		{"more", func() error { _, err := f.Ack(t.Context(), by(job), payment(1000, "EUR")); return err }, 1000, 0, 1},
		{"less", func() error { _, err := f.Ack(t.Context(), by(job), payment(400, "EUR")); return err }, 1000, 1, 2},
		{"less again", func() error { _, err := f.Ack(t.Context(), by(job), payment(400, "EUR")); return err }, 1000, 1, 0},
		{"nothing", func() error {
			_, err := f.Nack(t.Context(), by(job), notExecuted, true, background.EndByPolicy)
			return err
		}, 1000, 2, 2},
		{"unclear", func() error {
			_, err := f.Nack(t.Context(), by(job), unclear, true, background.EndByPolicy)
			return err
		}, 1000, 2, 0},
		{"more than can be recorded", func() error { _, err := f.Ack(t.Context(), by(job), payment(1100, "EUR")); return err }, 1000, 3, 2},
		{"that again", func() error { _, err := f.Ack(t.Context(), by(job), payment(1100, "EUR")); return err }, 1000, 3, 0},
	} {
		before := f.Head(s.Case)
		if err := c.answer(); err == nil {
			t.Errorf("%s: it is accepted", c.name)
		}
		got, err := f.CaseByID(t.Context(), "acme", s.Case)
		if err != nil || got.Released != c.released || got.Contradictions != c.contradictions || f.Head(s.Case) != before+c.grows {
			t.Errorf("%s: released %d, %d contradictions, %d receipts, was %d, %v", c.name, got.Released, got.Contradictions, f.Head(s.Case), before, err)
		}
	}
	if report, err := f.Audit(t.Context()); err != nil || !report.OK() {
		t.Errorf("audit: %+v, %v", report.Breaks, err)
	}
}
