package postadjudication

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication/casestatus"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/internal/casework"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/settlement"
)

// A lookup that finds nothing is not conclusive while the call is still in flight.
func TestALookupIsNotBelievedWhileACallIsOut(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *Config) { c.TimeLimit = 100 * time.Millisecond; c.Policy.MaxRetryAttempts = 1 })
	answer := make(chan struct{})
	r.escrow.script = func(_ context.Context, c escrow.Call) escrow.Answer {
		<-answer
		return r.escrow.pay(c, c.Amount.Minor)
	}
	s := r.startWorkers().mustSubmit(release(1))
	r.until("the run is a letter", `SELECT EXISTS (SELECT FROM recourse.runs WHERE letter = 'open')`)
	opposite := refund(1)
	opposite.Generation = 2
	if got := r.mustSubmit(opposite); got.Reply != ReconcileFirst {
		t.Errorf("the opposite outcome while a call is out: %s", got.Reply)
	}
	close(answer)
	r.until("the late payment is recorded", `SELECT EXISTS (SELECT FROM recourse.cases WHERE progression = 'settled')`)
	if st, err := r.Status(context.Background(), "acme", s.Run); err != nil || st.Letter != background.LetterReconciled || st.Class != escrow.Executed {
		t.Errorf("%+v, %v", st, err)
	}
	r.mustAudit()
}

// An abandoned call waits in the network, and pays after a lookup found nothing. The Lookuper is
// given the time since the last call.
func TestALookupIsToldWhetherACallMayBeOnItsWay(t *testing.T) {
	t.Parallel()
	const inFlight = time.Minute
	r := newRig(t, func(c *Config) { c.TimeLimit = time.Second; c.Policy.MaxRetryAttempts = 1 })
	arrive, arrived := make(chan struct{}), make(chan escrow.Answer, 1)
	r.escrow.script = func(_ context.Context, c escrow.Call) escrow.Answer {
		go func() {
			<-arrive
			arrived <- r.escrow.pay(c, c.Amount.Minor)
		}()
		return escrow.Answer{Class: escrow.Unknown, Retry: true, Type: "no.answer"}
	}
	r.escrow.lookup = func(c escrow.Call) escrow.Answer {
		switch paid := r.escrow.known[c.OperationKey]; {
		case paid.minor > 0:
			return escrow.Answer{Class: escrow.Executed, Moved: paid.minor}
		case c.SentAgo < inFlight:
			return escrow.Answer{Class: escrow.Unknown, Type: "premature", Message: "ask again"}
		}
		return escrow.Answer{Class: escrow.NotExecuted}
	}
	s := r.startWorkers().mustSubmit(release(1))
	r.until("the run is a letter", `SELECT EXISTS (SELECT FROM recourse.runs WHERE letter = 'open')`)
	ctx := context.Background()
	opposite := refund(1)
	opposite.Generation = 2
	if got := r.mustSubmit(opposite); got.Reply != ReconcileFirst {
		t.Errorf("the opposite outcome while a call is on its way: %s", got.Reply)
	}
	var refused *refusal.RefusedError
	if _, err := r.As("acme", "user:ada").DeadLetters.Lookup(ctx, s.Run); !errors.As(err, &refused) || refused.Gate != refusal.GateReconcileFirst || !strings.Contains(err.Error(), "ask again") {
		t.Errorf("%v", err)
	}
	letter, err := r.journal.Cases.Snapshot(ctx, s.Run)
	if err != nil {
		t.Fatal(err)
	}
	for ahead, believed := range map[time.Duration]bool{-time.Hour: false, inFlight - time.Second: false, inFlight + time.Hour: true} {
		f := *r.settlements
		f.Now = func() time.Time { return r.now().Add(ahead) }
		if got := f.Lookup(ctx, letter.Run); (got.Class == escrow.NotExecuted) != believed {
			t.Errorf("asked %v later: %+v", ahead, got)
		}
	}
	close(arrive)
	if a := <-arrived; a.Class != escrow.Executed {
		t.Fatalf("%+v", a)
	}
	if c, err := r.As("acme", "user:ada").DeadLetters.Lookup(ctx, s.Run); err != nil || c.Progression != settlement.Settled {
		t.Errorf("%+v, %v", c, err)
	}
	r.mustAudit()
}

// The same for a fork, which has the same operation key.
func TestALookupIsNotBelievedWhileACallOfTheParentIsOut(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *Config) { c.TimeLimit = 100 * time.Millisecond; c.Policy.MaxRetryAttempts = 1 })
	answer := make(chan struct{})
	letter := Submitted{}
	r.escrow.script = func(_ context.Context, c escrow.Call) escrow.Answer {
		if c.Run != letter.Run {
			return refused()
		}
		<-answer
		return r.escrow.pay(c, c.Amount.Minor)
	}
	letter = r.mustSubmit(release(1))
	r.startWorkers()
	r.until("the run is a letter", `SELECT EXISTS (SELECT FROM recourse.runs WHERE letter = 'open')`)
	ctx := context.Background()
	fork, err := r.As("acme", "user:ada").DeadLetters.Fork(ctx, letter.Run, forkRequest)
	if err != nil {
		t.Fatal(err)
	}
	r.until("the fork is a letter", `SELECT EXISTS (SELECT FROM recourse.runs WHERE id = $1 AND letter = 'open')`, fork.Run.String())
	var refused *refusal.RefusedError
	if _, err := r.As("acme", "user:ada").DeadLetters.Lookup(ctx, fork.Run); !errors.As(err, &refused) || refused.Gate != refusal.GateReconcileFirst {
		t.Errorf("reconciled by lookup: %v", err)
	}
	opposite := refund(1)
	opposite.Generation = 2
	if got := r.mustSubmit(opposite); got.Reply != ReconcileFirst {
		t.Errorf("the opposite outcome while a call is out: %s", got.Reply)
	}
	close(answer)
	r.until("the late payment is recorded", `SELECT EXISTS (SELECT FROM recourse.receipts WHERE subtype = 'answered-late')`)
	r.untilNoneLive()
	if c := r.caseOf(release(1)); c.Progression != settlement.Settled || c.UnknownOpen != 0 {
		t.Errorf("case %+v", c)
	}
	r.mustAudit()
}

// replayingEscrow answers a repeated key with the stored failure, as ReplaysFailures states.
type replayingEscrow struct{ *scriptedEscrow }

func (replayingEscrow) ReplaysFailures() bool { return true }

// A fork gets a new key only when nothing can be executed under the old one: not while a call of
// its parent is out, whatever a finding says.
func TestAForkKeepsItsKeyWhileACallOfTheParentIsOut(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *Config) {
		c.TimeLimit, c.Policy.MaxRetryAttempts, c.Executor = 100*time.Millisecond, 1, replayingEscrow{c.Executor.(*scriptedEscrow)}
	})
	answer, hangs := make(chan struct{}), r.mustSubmit(release(1))
	keys := make(chan escrow.OperationKey, 10)
	r.escrow.script = func(_ context.Context, c escrow.Call) escrow.Answer {
		if keys <- c.OperationKey; c.Run != hangs.Run {
			return refused()
		}
		<-answer
		return r.escrow.pay(c, c.Amount.Minor)
	}
	r.startWorkers()
	ctx := context.Background()
	again := func(of Submitted) Submitted {
		t.Helper()
		r.until("it is a letter", `SELECT EXISTS (SELECT FROM recourse.runs WHERE id = $1 AND letter = 'open')`, of.Run.String())
		f, err := r.As("acme", "user:ada").DeadLetters.Fork(ctx, of.Run, forkRequest)
		if err != nil {
			t.Fatal(err)
		}
		r.until("its fork is a letter", `SELECT EXISTS (SELECT FROM recourse.runs WHERE id = $1 AND letter = 'open')`, f.Run.String())
		return asSubmitted(f)
	}
	fork := again(hangs)
	if _, err := r.Reconcile(ctx, "acme", fork.Run, casework.Finding{Reason: "the bank's statement", Class: escrow.NotExecuted, Reference: "stmt-7", CallOutstanding: true}); err != nil {
		t.Fatal(err)
	}
	again(fork)
	if first, second, third := <-keys, <-keys, <-keys; second != first || third != first {
		t.Errorf("the keys are %s, %s, %s", first, second, third)
	}
	again(r.mustSubmit(release(2)))
	if first, second := <-keys, <-keys; second == first {
		t.Error("a fork has the key under which a failure is stored")
	}
	close(answer)
	r.until("the late payment is recorded", `SELECT EXISTS (SELECT FROM recourse.cases WHERE progression = 'settled')`)
	r.mustAudit()
}

// A late answer under an older key neither ends nor clears the run of a newer one.
func TestALateAnswerOfAnOlderGenerationLeavesTheNewerRunAlone(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *Config) { c.TimeLimit = 100 * time.Millisecond })
	late, go2 := make(chan struct{}), make(chan struct{})
	r.escrow.script = func(ctx context.Context, c escrow.Call) escrow.Answer {
		switch {
		case c.Outcome == settlement.Refund:
			<-go2
			return r.escrow.pay(c, c.Amount.Minor)
		case c.Attempt == 1:
			<-late
			return r.escrow.pay(c, 400)
		}
		return r.escrow.pay(c, 400)
	}
	first := r.startWorkers().mustSubmit(release(1))
	r.until("paid in part", `SELECT EXISTS (SELECT FROM recourse.cases WHERE progression = 'partially-settled')`)
	r.stopWork()
	next := refund(1)
	next.Generation, next.Amount = 2, euros(600)
	second := r.mustSubmit(next)
	if second.Reply != Created {
		t.Fatalf("the rest: %s", second.Reply)
	}
	close(late)
	r.until("the late answer is recorded", `SELECT EXISTS (SELECT FROM recourse.receipts WHERE subtype = 'answered-late')`)
	if st, err := r.Status(context.Background(), "acme", second.Run); err != nil || st.State != background.Pending || st.Class != "" {
		t.Errorf("the newer run: %+v, %v", st, err)
	}
	if st, err := r.Status(context.Background(), "acme", first.Run); err != nil || st.State != background.Succeeded {
		t.Errorf("the older run: %+v, %v", st, err)
	}
	close(go2)
	joinRig(t, r.url, r.redis, r.escrow).startWorkers()
	r.untilNoneLive()
	if c := r.caseOf(next); c.Released != 400 || c.Refunded != 600 || c.Progression != settlement.Refunded {
		t.Errorf("case %+v", c)
	}
	r.mustAudit()
}

// A claim whose commit took too long is not called: the operation key may have expired.
func TestAClaimThatIsAnsweredLateIsNotCalledOn(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *Config) {
		c.LostAfter, c.TimeLimit, c.Policy.BaseDelay = 3*time.Second, 100*time.Millisecond, 500*time.Millisecond
	})
	r.escrow.keyLifetime = 7 * time.Second
	r.escrow.lookup = func(escrow.Call) escrow.Answer { return noAnswer() }
	r.escrow.script = func(_ context.Context, c escrow.Call) escrow.Answer {
		r.escrow.pay(c, c.Amount.Minor)
		return noAnswer()
	}
	s := r.startWorkers().mustSubmit(release(1))
	r.until("the first attempt ended", `SELECT EXISTS (SELECT FROM recourse.runs WHERE state = 'scheduled')`)
	tx, err := r.db.Begin()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(`SELECT FROM recourse.cases WHERE id = $1 FOR UPDATE`, s.Case.String()); err != nil {
		t.Fatal(err)
	}
	<-time.After(r.escrow.keyLifetime) // past the key's lifetime, which the test is about
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	r.untilNoneLive()
	if n := r.escrow.totalCalls(); n != 1 {
		t.Errorf("%d calls", n)
	}
	r.mustAudit()
}

// Contention for one escrow is not an outage: other runs go on.
func TestAHeldEscrowDoesNotStopTheProcess(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.escrow.script = func(_ context.Context, c escrow.Call) escrow.Answer {
		if c.Amount.Minor == 999 {
			return r.escrow.pay(c, 400) // in part: the rest is released from the escrow
		}
		return r.escrow.pay(c, c.Amount.Minor)
	}
	tx, err := r.db.Begin()
	if err != nil {
		t.Fatal(err)
	}
	part := release(1)
	part.Amount = euros(999)
	r.mustSubmit(part)
	if _, err := tx.Exec(`SELECT FROM recourse.escrows FOR UPDATE`); err != nil {
		t.Fatal(err)
	}
	r.startWorkers()
	var all sync.WaitGroup
	for n := 2; n < 12; n++ {
		all.Go(func() { r.mustSubmit(release(n)) })
	}
	all.Wait()
	r.until("the others settled, and the part ended", `SELECT count(*) FILTER (WHERE progression = 'settled') = 10 AND count(*) FILTER (WHERE progression = 'partially-settled') = 1 FROM recourse.cases`)
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	r.untilNoneLive()
	r.mustAudit()
}

// An implausible amount from an executor is not recorded, and stops no worker.
func TestAnAbsurdAmountIsAnUnknownOutcome(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.escrow.lookup = func(escrow.Call) escrow.Answer { return noAnswer() }
	r.escrow.script = func(_ context.Context, c escrow.Call) escrow.Answer {
		if c.Tenant == "acme" && c.Amount.Minor == 999 {
			return escrow.Answer{Class: escrow.Executed, Moved: settlement.MaxMinor}
		}
		return r.escrow.pay(c, c.Amount.Minor)
	}
	absurd := release(1)
	absurd.Amount = euros(999)
	r.startWorkers()
	s := r.mustSubmit(absurd)
	r.mustSubmit(release(2))
	r.untilNoneLive()
	if st, err := r.Status(context.Background(), "acme", s.Run); err != nil || st.State != background.DeadLettered || st.Class != escrow.Unknown {
		t.Errorf("%+v, %v", st, err)
	}
	r.mustAudit()
}

func TestAPayloadIsComparedAndKeptInCanonicalForm(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	a := release(1)
	a.Payload = []byte(`{"a": 1, "b": 2}`)
	first := r.mustSubmit(a)
	a.Payload = []byte(`{"b":2,"a":1.0}`)
	if s := r.mustSubmit(a); s.Reply != Deduplicated || s.Run != first.Run {
		t.Errorf("the same in another order: %+v", s)
	}
	for _, bad := range []string{`{"invoice":12345678901234567891}`, `{"deep":[{"n":9007199254740993}]}`, `{"x":1e999}`, `[]`, `{"a":1}{}`, `{`} {
		a := release(2)
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
	r := newRig(t, func(c *Config) {
		c.TimeLimit = 60 * time.Millisecond
		c.Policy.MaxRetryAttempts, c.Policy.BaseDelay, c.Policy.MaxDelay = 64, time.Microsecond, time.Microsecond
	})
	one, last := make(chan struct{}), make(chan struct{})
	r.escrow.script = func(_ context.Context, c escrow.Call) escrow.Answer {
		switch c.Attempt {
		case 1:
			<-one
			return r.escrow.pay(c, c.Amount.Minor)
		case 64:
			<-last
			return refused()
		}
		return busy429()
	}
	s := r.startWorkers().mustSubmit(release(1))
	r.until("letter", `SELECT EXISTS (SELECT FROM recourse.runs WHERE letter = 'open')`)
	close(last)
	r.until("the last call came back", `SELECT EXISTS (SELECT FROM recourse.receipts WHERE subtype = 'answered-late')`)
	ctx := context.Background()
	var refused *refusal.RefusedError
	if _, err := r.As("acme", "user:ada").DeadLetters.Lookup(ctx, s.Run); !errors.As(err, &refused) || refused.Gate != refusal.GateReconcileFirst {
		t.Errorf("a lookup while the call of attempt 1 is out: %v", err)
	}
	opposite := refund(1)
	opposite.Generation = 2
	if got := r.mustSubmit(opposite); got.Reply != ReconcileFirst {
		t.Errorf("the opposite while the call of attempt 1 is out: %s", got.Reply)
	}
	r.mustAudit()
	close(one)
	r.until("the payment is on record", `SELECT EXISTS (SELECT FROM recourse.cases WHERE progression = 'settled' AND released = 1000)`)
	r.until("nothing is out", `SELECT outstanding_calls IS NULL FROM recourse.runs`)
	r.mustAudit()
}

// A target whose calls all hang is not called for ever: the run waits, says why, and continues
// when a call returns.
func TestARunOfWhichTooManyCallsAreOutWaitsAndSaysSo(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *Config) {
		c.TimeLimit = 20 * time.Millisecond
		c.Policy.MaxRetryAttempts, c.Policy.BaseDelay, c.Policy.MaxDelay = 40, time.Microsecond, time.Microsecond
	})
	hang := make(chan struct{})
	r.escrow.script = func(_ context.Context, c escrow.Call) escrow.Answer {
		<-hang
		return refused()
	}
	s := r.startWorkers().mustSubmit(release(1))
	r.until("many calls are out", `SELECT cardinality(outstanding_calls) = 16 AND state = 'scheduled' FROM recourse.runs`)
	ctx := context.Background()
	st, err := r.Status(ctx, "acme", s.Run)
	if err != nil || st.WaitsFor != casestatus.WaitsForCalls || len(st.OutstandingCalls) != background.MaxOutstandingCalls {
		t.Errorf("%+v, %v", st, err)
	}
	seen, err := r.journal.Cases.Snapshot(ctx, s.Run)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.claimRun(seen.Run); !errors.Is(err, background.ErrTooManyOutstandingCalls) {
		t.Errorf("a claim beside them: %v", err)
	}
	r.mustAudit()
	close(hang)
	r.until("all came back", `SELECT outstanding_calls IS NULL FROM recourse.runs`)
	if st, err = r.Status(ctx, "acme", s.Run); err != nil || st.WaitsFor != casestatus.WaitsForTurn || st.Attempts != background.MaxOutstandingCalls {
		t.Errorf("%+v, %v", st, err)
	}
	r.mustAudit()
}

// claimRun records a claim of a run, as a worker does.
func (r *rig) claimRun(run background.Run) (background.Run, error) {
	r.t.Helper()
	session := casework.NewID()
	if err := r.journal.Sessions.Register(context.Background(), background.Session{ID: session, Worker: "lost"}); err != nil {
		r.t.Fatal(err)
	}
	m := background.Transition{ID: casework.NewID(), Run: run, Event: receipts.AttemptStarted, At: r.now(), Worker: "lost", Token: casework.NewID(), Session: session}
	return r.settlements.Record(context.Background(), m)
}
