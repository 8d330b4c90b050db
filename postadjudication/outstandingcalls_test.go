package postadjudication_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/testkit"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/bulk"
	"github.com/recourse-dev/recourse/postadjudication/casestatus"
	"github.com/recourse-dev/recourse/postadjudication/deadletter"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/internal/casework"
	"github.com/recourse-dev/recourse/postadjudication/internal/rig"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/settlement"
)

// A lookup that finds nothing is not conclusive while the call is still in flight.
func TestALookupIsNotBelievedWhileACallIsOut(t *testing.T) {
	t.Parallel()
	r := rig.New(t, func(c *postadjudication.Config) { c.TimeLimit = 100 * time.Millisecond; c.Policy.MaxRetryAttempts = 1 })
	answer := make(chan struct{})
	r.Escrow.Script(func(_ context.Context, c escrow.Call) escrow.Answer {
		<-answer
		return r.Escrow.Pay(c, c.Amount.Minor)
	})
	s := r.StartWorkers().MustSubmit(rig.Release(1))
	r.WaitLetter(s.Run)
	opposite := rig.Refund(1)
	opposite.Generation = 2
	if got := r.MustSubmit(opposite); got.Reply != postadjudication.ReconcileFirst {
		t.Errorf("the opposite outcome while a call is out: %s", got.Reply)
	}
	close(answer)
	r.WaitSettled(1)
	if st, err := r.Status(context.Background(), "acme", s.Run); err != nil || st.Letter != background.LetterReconciled || st.Class != escrow.Executed {
		t.Errorf("%+v, %v", st, err)
	}
	r.MustAudit()
}

// An abandoned call waits in the network, and pays after a lookup found nothing. The Lookuper is
// given the time since the last call.
func TestALookupIsToldWhetherACallMayBeOnItsWay(t *testing.T) {
	t.Parallel()
	const inFlight = time.Minute
	r := rig.New(t, func(c *postadjudication.Config) { c.TimeLimit = time.Second; c.Policy.MaxRetryAttempts = 1 })
	arrive, arrived := make(chan struct{}), make(chan escrow.Answer, 1)
	r.Escrow.Script(func(_ context.Context, c escrow.Call) escrow.Answer {
		go func() {
			<-arrive
			arrived <- r.Escrow.Pay(c, c.Amount.Minor)
		}()
		return escrow.Answer{Class: escrow.Unknown, Retry: true, Type: "no.answer"}
	})
	r.Escrow.ScriptLookups(func(c escrow.Call) escrow.Answer {
		switch paid := r.Escrow.Paid(c.OperationKey); {
		case paid > 0:
			return escrow.Answer{Class: escrow.Executed, Moved: paid}
		case c.SentAgo < inFlight:
			return escrow.Answer{Class: escrow.Unknown, Type: "premature", Message: "ask again"}
		}
		return escrow.Answer{Class: escrow.NotExecuted}
	})
	s := r.StartWorkers().MustSubmit(rig.Release(1))
	r.WaitLetter(s.Run)
	ctx := context.Background()
	opposite := rig.Refund(1)
	opposite.Generation = 2
	if got := r.MustSubmit(opposite); got.Reply != postadjudication.ReconcileFirst {
		t.Errorf("the opposite outcome while a call is on its way: %s", got.Reply)
	}
	var refused *refusal.RefusedError
	if _, err := rig.Lookup(ctx, r, "acme", s.Run); !errors.As(err, &refused) || refused.Gate != refusal.GateReconcileFirst || !strings.Contains(err.Error(), "ask again") {
		t.Errorf("%v", err)
	}
	letter, err := r.Journal().Cases.Snapshot(ctx, s.Run)
	if err != nil {
		t.Fatal(err)
	}
	for ahead, believed := range map[time.Duration]bool{-time.Hour: false, inFlight - time.Second: false, inFlight + time.Hour: true} {
		if got := r.LookupLater(ctx, letter.Run, ahead); got.Class != escrow.Unknown || (got.Failure.Type == "lookup.said_once") != believed {
			t.Errorf("asked %v later: %+v", ahead, got)
		}
	}
	close(arrive)
	if a := <-arrived; a.Class != escrow.Executed {
		t.Fatalf("%+v", a)
	}
	if c, err := rig.Lookup(ctx, r, "acme", s.Run); err != nil || c.Progression != settlement.Settled {
		t.Errorf("%+v, %v", c, err)
	}
	r.MustAudit()
}

// The same for a fork, which has the same operation key.
func TestALookupIsNotBelievedWhileACallOfTheParentIsOut(t *testing.T) {
	t.Parallel()
	r := rig.New(t, func(c *postadjudication.Config) { c.TimeLimit = 100 * time.Millisecond; c.Policy.MaxRetryAttempts = 1 })
	answer := make(chan struct{})
	letter := postadjudication.Submitted{}
	r.Escrow.Script(func(_ context.Context, c escrow.Call) escrow.Answer {
		if c.Run != letter.Run {
			return rig.Refused()
		}
		<-answer
		return r.Escrow.Pay(c, c.Amount.Minor)
	})
	letter = r.MustSubmit(rig.Release(1))
	r.StartWorkers()
	r.WaitLetter(letter.Run)
	ctx := context.Background()
	fork, err := r.As("acme", "user:ada").DeadLetters.Fork(ctx, letter.Run, rig.ForkRequest)
	if err != nil {
		t.Fatal(err)
	}
	r.WaitLetter(fork.Run)
	var refused *refusal.RefusedError
	if _, err := rig.Lookup(ctx, r, "acme", fork.Run); !errors.As(err, &refused) || refused.Gate != refusal.GateReconcileFirst {
		t.Errorf("reconciled by lookup: %v", err)
	}
	opposite := rig.Refund(1)
	opposite.Generation = 2
	if got := r.MustSubmit(opposite); got.Reply != postadjudication.ReconcileFirst {
		t.Errorf("the opposite outcome while a call is out: %s", got.Reply)
	}
	close(answer)
	r.WaitReceipt(letter.Case, receipts.AnsweredLate)
	r.WaitNoneLive()
	if c := r.CaseOf(rig.Release(1)); c.Progression != settlement.Settled || c.UnknownOpen != 0 {
		t.Errorf("case %+v", c)
	}
	r.MustAudit()
}

// replayingEscrow answers a repeated key with the stored failure, as ReplaysFailures states.
type replayingEscrow struct{ *rig.Escrow }

func (replayingEscrow) ReplaysFailures() bool { return true }

// forkBesideACall is the dead letter of a fork, refused and reconciled as not executed, while a
// call of its parent is out. The escrow service replays stored failures.
type forkBesideACall struct {
	*rig.Rig
	letter postadjudication.Submitted
	keys   chan escrow.OperationKey // of each call
	answer chan struct{}            // closed: the parent's call pays
}

func newForkBesideACall(t *testing.T) *forkBesideACall {
	t.Helper()
	r := &forkBesideACall{keys: make(chan escrow.OperationKey, 10), answer: make(chan struct{})}
	r.Rig = rig.New(t, func(c *postadjudication.Config) {
		c.TimeLimit, c.Policy.MaxRetryAttempts, c.Executor = 100*time.Millisecond, 1, replayingEscrow{c.Executor.(*rig.Escrow)}
	})
	hangs := r.MustSubmit(rig.Release(1))
	r.Escrow.Script(func(_ context.Context, c escrow.Call) escrow.Answer {
		if r.keys <- c.OperationKey; c.Run != hangs.Run {
			return rig.Refused()
		}
		<-r.answer
		return r.Escrow.Pay(c, c.Amount.Minor)
	})
	r.StartWorkers()
	r.letter = r.fork(hangs)
	if _, err := r.Reconcile(context.Background(), "acme", r.letter.Run, deadletter.Finding{Reason: "the bank's statement", Class: escrow.NotExecuted, Reference: "stmt-7", CallOutstanding: true}); err != nil {
		t.Fatal(err)
	}
	return r
}

// fork forks a run once it is dead, and waits for the fork's letter.
func (r *forkBesideACall) fork(of postadjudication.Submitted) postadjudication.Submitted {
	r.T.Helper()
	r.WaitLetter(of.Run)
	f, err := r.As("acme", "user:ada").DeadLetters.Fork(context.Background(), of.Run, rig.ForkRequest)
	if err != nil {
		r.T.Fatal(err)
	}
	r.WaitLetter(f.Run)
	return rig.AsSubmitted(f)
}

// A fork gets a new key only when nothing can be executed under the old one: not while a call of
// its parent is out, whatever a finding says.
func TestAForkKeepsItsKeyWhileACallOfTheParentIsOut(t *testing.T) {
	t.Parallel()
	r := newForkBesideACall(t)
	r.fork(r.letter)
	if first, second, third := <-r.keys, <-r.keys, <-r.keys; second != first || third != first {
		t.Errorf("the keys are %s, %s, %s", first, second, third)
	}
	r.fork(r.MustSubmit(rig.Release(2)))
	if first, second := <-r.keys, <-r.keys; second == first {
		t.Error("a fork has the key under which a failure is stored")
	}
	close(r.answer)
	r.WaitSettled(1)
	r.MustAudit()
}

// While it can't be read whether a call is out under the old key, a letter is not forked: neither
// key is known to be right. Other letters of a plan are.
func TestALetterWhoseCallsCanNotBeReadIsNotForked(t *testing.T) {
	t.Parallel()
	r := newForkBesideACall(t)
	other := r.MustSubmit(rig.Release(2))
	r.WaitLetter(other.Run)
	started := `subtype = 'attempt-started' AND case_id = '` + r.letter.Case.String() + `'`
	testkit.Tamper(t, r.DB, `CREATE TABLE kept AS SELECT * FROM recourse.receipts`, `UPDATE recourse.receipts SET body = '{' WHERE `+started)
	if _, err := r.As("acme", "user:ada").DeadLetters.Fork(context.Background(), r.letter.Run, rig.ForkRequest); !errors.Is(err, refusal.ErrUnreadable) {
		t.Fatalf("the fork: %v", err)
	}
	plan := r.RunPlan(r.MustPlan(bulk.Request{Action: bulk.Fork, All: true, Reason: "once more"}))
	if failed := r.BulkItems(plan.ID, "failed"); len(failed) != 1 || failed[0].Run != r.letter.Run || plan.Progress.Done != 1 {
		t.Errorf("the plan: %+v, failed %+v", plan.Progress, failed)
	}
	if now := r.LetterStatus(r.letter); now != background.LetterOpen {
		t.Errorf("the letter is %q", now)
	}
	testkit.Tamper(t, r.DB, `UPDATE recourse.receipts r SET body = k.body FROM kept k WHERE r.case_id = k.case_id AND r.seq = k.seq`, `DROP TABLE kept`)
	r.fork(r.letter)
	close(r.answer)
	r.WaitSettled(1)
	r.MustAudit()
}

// A late answer under an older key neither ends nor clears the run of a newer one.
func TestALateAnswerOfAnOlderGenerationLeavesTheNewerRunAlone(t *testing.T) {
	t.Parallel()
	r := rig.New(t, func(c *postadjudication.Config) { c.TimeLimit = 100 * time.Millisecond })
	late, go2 := make(chan struct{}), make(chan struct{})
	r.Escrow.Script(func(ctx context.Context, c escrow.Call) escrow.Answer {
		switch {
		case c.Outcome == settlement.Refund:
			<-go2
			return r.Escrow.Pay(c, c.Amount.Minor)
		case c.Attempt == 1:
			<-late
			return r.Escrow.Pay(c, 400)
		}
		return r.Escrow.Pay(c, 400)
	})
	first := r.StartWorkers().MustSubmit(rig.Release(1))
	r.WaitCase("it is paid in part", rig.Release(1), func(c casestatus.Case) bool { return c.Progression == settlement.PartiallySettled })
	r.StopWorkers()
	next := rig.Refund(1)
	next.Generation, next.Amount = 2, rig.Euros(600)
	second := r.MustSubmit(next)
	if second.Reply != postadjudication.Created {
		t.Fatalf("the rest: %s", second.Reply)
	}
	close(late)
	r.WaitReceipt(first.Case, receipts.AnsweredLate)
	if st, err := r.Status(context.Background(), "acme", second.Run); err != nil || st.State != background.Pending || st.Class != "" {
		t.Errorf("the newer run: %+v, %v", st, err)
	}
	if st, err := r.Status(context.Background(), "acme", first.Run); err != nil || st.State != background.Succeeded {
		t.Errorf("the older run: %+v, %v", st, err)
	}
	close(go2)
	rig.Join(t, r.DatabaseURL, r.Redis, r.Escrow).StartWorkers()
	r.WaitNoneLive()
	if c := r.CaseOf(next); c.Released != 400 || c.Refunded != 600 || c.Progression != settlement.Refunded {
		t.Errorf("case %+v", c)
	}
	r.MustAudit()
}

// A claim whose commit took too long is not called: the operation key may have expired.
func TestAClaimThatIsAnsweredLateIsNotCalledOn(t *testing.T) {
	t.Parallel()
	r := rig.New(t, func(c *postadjudication.Config) {
		c.LostAfter, c.TimeLimit, c.Policy.BaseDelay = 3*time.Second, 100*time.Millisecond, 500*time.Millisecond
	})
	r.Escrow.SetKeyLife(7 * time.Second)
	r.Escrow.ScriptLookups(rig.GivesNoAnswer)
	r.Escrow.Script(func(_ context.Context, c escrow.Call) escrow.Answer {
		r.Escrow.Pay(c, c.Amount.Minor)
		return rig.NoAnswer()
	})
	s := r.StartWorkers().MustSubmit(rig.Release(1))
	r.WaitState(s.Run, background.Scheduled)
	tx, err := r.DB.Begin()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(`SELECT FROM recourse.cases WHERE id = $1 FOR UPDATE`, s.Case.String()); err != nil {
		t.Fatal(err)
	}
	<-time.After(r.Escrow.KeyLife) // past the key's lifetime, which the test is about
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	r.WaitNoneLive()
	if n := r.Escrow.TotalCalls(); n != 1 {
		t.Errorf("%d calls", n)
	}
	r.MustAudit()
}

// Contention for one escrow is not an outage: other runs go on.
func TestAHeldEscrowDoesNotStopTheProcess(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	r.Escrow.Script(func(_ context.Context, c escrow.Call) escrow.Answer {
		if c.Amount.Minor == 999 {
			return r.Escrow.Pay(c, 400) // in part: the rest is released from the escrow
		}
		return r.Escrow.Pay(c, c.Amount.Minor)
	})
	tx, err := r.DB.Begin()
	if err != nil {
		t.Fatal(err)
	}
	part := rig.Release(1)
	part.Amount = rig.Euros(999)
	r.MustSubmit(part)
	if _, err := tx.Exec(`SELECT FROM recourse.escrows FOR UPDATE`); err != nil {
		t.Fatal(err)
	}
	r.StartWorkers()
	var all sync.WaitGroup
	for n := 2; n < 12; n++ {
		all.Go(func() { r.MustSubmit(rig.Release(n)) })
	}
	all.Wait()
	r.WaitCases(10, rig.Cases{Progression: settlement.Settled})
	r.WaitCases(1, rig.Cases{Progression: settlement.PartiallySettled})
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	r.WaitNoneLive()
	r.MustAudit()
}

// An implausible amount from an executor is not recorded, and stops no worker.
func TestAnAbsurdAmountIsAnUnknownOutcome(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	r.Escrow.ScriptLookups(rig.GivesNoAnswer)
	r.Escrow.Script(func(_ context.Context, c escrow.Call) escrow.Answer {
		if c.Tenant == "acme" && c.Amount.Minor == 999 {
			return escrow.Answer{Class: escrow.Executed, Moved: settlement.MaxMinor}
		}
		return r.Escrow.Pay(c, c.Amount.Minor)
	})
	absurd := rig.Release(1)
	absurd.Amount = rig.Euros(999)
	r.StartWorkers()
	s := r.MustSubmit(absurd)
	r.MustSubmit(rig.Release(2))
	r.WaitNoneLive()
	if st, err := r.Status(context.Background(), "acme", s.Run); err != nil || st.State != background.DeadLettered || st.Class != escrow.Unknown {
		t.Errorf("%+v, %v", st, err)
	}
	r.MustAudit()
}

func TestAPayloadIsComparedAndKeptInCanonicalForm(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	a := rig.Release(1)
	a.Payload = []byte(`{"a": 1, "b": 2}`)
	first := r.MustSubmit(a)
	a.Payload = []byte(`{"b":2,"a":1.0}`)
	if s := r.MustSubmit(a); s.Reply != postadjudication.Deduplicated || s.Run != first.Run {
		t.Errorf("the same in another order: %+v", s)
	}
	for _, bad := range []string{`{"invoice":12345678901234567891}`, `{"deep":[{"n":9007199254740993}]}`, `{"x":1e999}`, `[]`, `{"a":1}{}`, `{`} {
		a := rig.Release(2)
		a.Payload = []byte(bad)
		if _, err := r.Submit(context.Background(), a); err == nil {
			t.Errorf("%s was accepted", bad)
		}
	}
}

// The late refusal of one attempt proves nothing about the call of another attempt of the run,
// however far apart they are: a lookup is not believed until both have returned, and what the
// other paid meanwhile is recorded.
func TestCallsOfAttemptsFarApartAreToldFromEachOther(t *testing.T) {
	t.Parallel()
	r := rig.New(t, func(c *postadjudication.Config) {
		c.TimeLimit = 60 * time.Millisecond
		c.Policy.MaxRetryAttempts, c.Policy.BaseDelay, c.Policy.MaxDelay = 64, time.Microsecond, time.Microsecond
	})
	one, last := make(chan struct{}), make(chan struct{})
	r.Escrow.Script(func(_ context.Context, c escrow.Call) escrow.Answer {
		switch c.Attempt {
		case 1:
			<-one
			return r.Escrow.Pay(c, c.Amount.Minor)
		case 64:
			<-last
			return rig.Refused()
		}
		return rig.RateLimited()
	})
	s := r.StartWorkers().MustSubmit(rig.Release(1))
	r.WaitLetter(s.Run)
	close(last)
	r.WaitReceipt(s.Case, receipts.AnsweredLate)
	ctx := context.Background()
	var refused *refusal.RefusedError
	if _, err := rig.Lookup(ctx, r, "acme", s.Run); !errors.As(err, &refused) || refused.Gate != refusal.GateReconcileFirst {
		t.Errorf("a lookup while the call of attempt 1 is out: %v", err)
	}
	opposite := rig.Refund(1)
	opposite.Generation = 2
	if got := r.MustSubmit(opposite); got.Reply != postadjudication.ReconcileFirst {
		t.Errorf("the opposite while the call of attempt 1 is out: %s", got.Reply)
	}
	r.MustAudit()
	close(one)
	r.WaitCase("the payment is recorded", rig.Release(1), func(c casestatus.Case) bool {
		return c.Progression == settlement.Settled && c.Released == 1000
	})
	r.WaitNoCallOut()
	r.MustAudit()
}

// A target whose calls all hang is not called for ever: the run waits, says why, and continues
// when a call returns.
func TestARunOfWhichTooManyCallsAreOutWaitsAndSaysSo(t *testing.T) {
	t.Parallel()
	r := rig.New(t, func(c *postadjudication.Config) {
		c.TimeLimit = 20 * time.Millisecond
		c.Policy.MaxRetryAttempts, c.Policy.BaseDelay, c.Policy.MaxDelay = 40, time.Microsecond, time.Microsecond
	})
	hang := make(chan struct{})
	r.Escrow.Script(func(_ context.Context, c escrow.Call) escrow.Answer {
		<-hang
		return rig.Refused()
	})
	s := r.StartWorkers().MustSubmit(rig.Release(1))
	r.WaitStatus("many calls are outstanding", s.Run, func(s casestatus.Status) bool {
		return s.State == background.Scheduled && len(s.OutstandingCalls) == 16
	})
	ctx := context.Background()
	st, err := r.Status(ctx, "acme", s.Run)
	if err != nil || st.WaitsFor != casestatus.WaitsForCalls || len(st.OutstandingCalls) != background.MaxOutstandingCalls {
		t.Errorf("%+v, %v", st, err)
	}
	seen, err := r.Journal().Cases.Snapshot(ctx, s.Run)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Claim(context.Background(), seen.Run); !errors.Is(err, background.ErrTooManyOutstandingCalls) {
		t.Errorf("a claim beside them: %v", err)
	}
	r.MustAudit()
	close(hang)
	r.WaitStatus("all calls came back", s.Run, func(s casestatus.Status) bool { return s.OutstandingCalls == nil })
	st, err = r.Status(ctx, "acme", s.Run) // on a busy machine the next attempt has begun by now
	if beforeNext := st.Attempts == background.MaxOutstandingCalls; err != nil || st.Attempts < background.MaxOutstandingCalls || beforeNext && st.WaitsFor != casestatus.WaitsForTurn {
		t.Errorf("%+v, %v", st, err)
	}
	r.MustAudit()
}

// The calls of lost workers never return. A run that could not be claimed again because of them is a dead letter, however many
// workers it may lose.
func TestARunThatLostAsManyWorkersAsCallsMayBeOutIsADeadLetter(t *testing.T) {
	t.Parallel()
	r := rig.New(t, func(c *postadjudication.Config) { c.LostAfter, c.MaxRecoveries = 3*time.Second, -1 })
	r.Escrow.ScriptLookups(rig.GivesNoAnswer)
	ctx := context.Background()
	s := r.MustSubmit(rig.Release(1))
	run := s.AsWritten()
	for lost := 1; ; lost++ {
		claimed, err := r.Claim(ctx, run)
		if err != nil {
			t.Fatal(err)
		}
		if lost == background.MaxOutstandingCalls {
			break // by the worker
		}
		if run, err = r.Family().Record(ctx, background.Transition{
			ID: casework.NewID(), Run: claimed, Subtype: receipts.AttemptInterrupted, At: r.Now(), NextRetryAt: r.Now(), Actor: background.ObserverActor + "w", Charge: background.ChargeRecovery, LeavesCallOutstanding: true,
			Result: background.Result{Class: escrow.Unknown, Failure: &background.Failure{Type: background.FailureInterrupted, Message: "the worker was lost"}},
		}); err != nil {
			t.Fatal(err)
		}
	}
	r.StartWorkers()
	r.WaitLetter(s.Run)
	if st := r.StatusOf(s.Run); st.ReasonCode != background.ReasonPoisonPill || len(st.OutstandingCalls) != background.MaxOutstandingCalls {
		t.Errorf("%+v", st)
	}
	r.MustAudit()
}
