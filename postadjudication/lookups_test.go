package postadjudication_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/audit"
	"github.com/recourse-dev/recourse/postadjudication/bulk"
	"github.com/recourse-dev/recourse/postadjudication/deadletter"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/internal/rig"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/settlement"
)

// uncheckedLookup is an escrow service whose lookups do not wait for calls.
type uncheckedLookup struct {
	*rig.Escrow
	answer *atomic.Value // func(Call) Answer
}

func (u uncheckedLookup) Lookup(_ context.Context, c escrow.Call) escrow.Answer {
	return u.answer.Load().(func(escrow.Call) escrow.Answer)(c)
}

// A lookup by a person returns even if the executor's lookup panics, or hangs and ignores its
// context: the outcome stays unknown.
func TestALookupThatHangsOrPanicsHoldsUpNobodyWhoAsks(t *testing.T) {
	t.Parallel()
	const limit, panicked, timedOut = 200 * time.Millisecond, "panicked", "the lookup timed out"
	var answer atomic.Value
	answer.Store(func(escrow.Call) escrow.Answer { return answerUnknown })
	r := rig.New(t, func(c *postadjudication.Config) {
		c.TimeLimit, c.Policy.MaxRetryAttempts, c.Lookups.Off, c.Executor = limit, 1, true, uncheckedLookup{c.Executor.(*rig.Escrow), &answer}
	})
	r.Escrow.Answer(rig.GivesNoAnswer)
	s := r.StartWorkers().MustSubmit(rig.Release(1))
	r.WaitNoneLive()
	never := make(chan struct{})
	defer close(never)
	for words, lookup := range map[string]func(escrow.Call) escrow.Answer{
		panicked: func(escrow.Call) escrow.Answer { panic("a bug") },
		timedOut: func(escrow.Call) escrow.Answer { <-never; return escrow.Answer{Class: escrow.Unknown} },
	} {
		answer.Store(lookup)
		asked := make(chan error, 1)
		go func() {
			defer func() {
				if p := recover(); p != nil {
					asked <- fmt.Errorf("panic: %v", p)
				}
			}()
			for {
				_, err := r.As("acme", "user:ada").DeadLetters.Lookup(context.Background(), s.Run)
				if words == panicked && err != nil && strings.Contains(err.Error(), timedOut) {
					continue // a machine that is too slow to panic in time
				}
				asked <- err
				return
			}
		}()
		select {
		case err := <-asked:
			var refused *refusal.RefusedError
			if !errors.As(err, &refused) || refused.Gate != refusal.GateReconcileFirst || !strings.Contains(err.Error(), words) {
				t.Errorf("%s: %v", words, err)
			}
		case <-time.After(time.Minute):
			t.Errorf("%s: the lookup still blocks", words)
		}
	}
}

// A service that has forgotten a key finds nothing, whatever it has paid.
func TestAForgottenKeyIsNotTakenForNotExecuted(t *testing.T) {
	t.Parallel()
	const life = 2 * time.Second
	r := rig.New(t, func(c *postadjudication.Config) {
		c.TimeLimit = 100 * time.Millisecond
		c.Policy.MaxRetryAttempts, c.Policy.BaseDelay = 3, life
		c.Executor.(*rig.Escrow).KeyLife = life
	})
	r.Escrow.Script(func(_ context.Context, c escrow.Call) escrow.Answer {
		r.Escrow.Pay(c, c.Amount.Minor)
		if c.Attempt == 1 {
			return rig.NoAnswer() // it paid, and the answer was lost
		}
		return escrow.Answer{Class: escrow.Executed, Moved: c.Amount.Minor}
	})
	r.Escrow.ScriptLookups(func(escrow.Call) escrow.Answer { return escrow.Answer{Class: escrow.NotExecuted} }) // the key is forgotten
	s := r.StartWorkers().MustSubmit(rig.Release(1))
	r.WaitNoneLive()
	ctx := context.Background()
	st, err := r.Status(ctx, "acme", s.Run)
	if err != nil || r.Escrow.TotalCalls() != 1 || st.Letter != background.LetterOpen || st.Class != escrow.Unknown || st.ReasonCode != background.ReasonOutcomeUnknown {
		t.Errorf("%d calls; %+v, %v", r.Escrow.TotalCalls(), st, err)
	}
	var refused *refusal.RefusedError
	if _, err := rig.Lookup(ctx, r, "acme", s.Run); !errors.As(err, &refused) || refused.Gate != refusal.GateReconcileFirst || !strings.Contains(err.Error(), "only a finding counts") {
		t.Errorf("lookup by a person: %v", err)
	}
	b, err := r.As("acme", "user:ada").Bulk.Plan(ctx, bulk.Request{Reason: "ask", Action: bulk.Reconcile, Filter: deadletter.Filter{}, All: true})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.As("acme", "user:ada").Bulk.Run(ctx, b.ID, b.Hash); err != nil {
		t.Fatal(err)
	}
	if refused := r.WaitPlan(b.ID).Progress.ByGate; refused[refusal.GateReconcileFirst] != 1 {
		t.Errorf("lookup by a plan: refused by %v", refused)
	}
	if n := r.CaseOf(rig.Release(1)).UnknownOpen; n != 1 {
		t.Errorf("%d unknown", n)
	}
	// A service whose lookups know keys for longer than it accepts them is believed.
	r.Escrow.SetLookupLife(time.Hour)
	r.Escrow.ScriptLookups(nil)
	if c, err := rig.Lookup(ctx, r, "acme", s.Run); err != nil || c.Progression != settlement.Settled {
		t.Errorf("%+v, %v", c, err)
	}
	r.MustAudit()
}

// The same at the end of a run, where the lookup is made before the death. The answer of a service that knows the key
// is the first of two.
func TestAForgottenKeyLeavesItsLetterUnknown(t *testing.T) {
	t.Parallel()
	for life, said := range map[time.Duration]int{0: 0, time.Hour: 1} {
		t.Run(life.String(), func(t *testing.T) {
			t.Parallel()
			r := rig.New(t, func(c *postadjudication.Config) {
				c.Policy.MaxRetryAttempts = 1
				c.Executor.(*rig.Escrow).KeyLife = life
			})
			r.Escrow.Answer(rig.GivesNoAnswer)
			s := r.StartWorkers().MustSubmit(rig.Release(1))
			r.WaitNoneLive()
			if st, err := r.Status(context.Background(), "acme", s.Run); err != nil || st.Class != escrow.Unknown {
				t.Errorf("%+v, %v", st, err)
			}
			if n := r.SaidNotExecuted(); n != said {
				t.Errorf("%d answers, want %d", n, said)
			}
			r.MustAudit()
		})
	}
}

// The call of a lost process may be in flight for a bounded time.
func TestTheCallOfALostWorkerIsOnItsWayForAWhile(t *testing.T) {
	t.Parallel()
	r := rig.New(t, func(c *postadjudication.Config) {
		c.Worker, c.TimeLimit, c.Grace, c.Policy.MaxRetryAttempts = "first", 50*time.Millisecond, 10*time.Millisecond, 1
		c.Executor.(*rig.Escrow).Flight = time.Minute
	})
	hang := make(chan struct{})
	defer close(hang)
	r.Escrow.Script(func(context.Context, escrow.Call) escrow.Answer { <-hang; return rig.NoAnswer() }) // ignores its context
	s := r.StartWorkers().MustSubmit(rig.Release(1))
	r.WaitLetter(s.Run)
	later := func(d time.Duration) *rig.Rig {
		return rig.Join(t, r.DatabaseURL, r.Redis, rig.NewEscrow(), func(c *postadjudication.Config) {
			c.Worker, c.Simulated, c.Now = "second", true, func() time.Time { return time.Now().Add(d) }
			c.Executor.(*rig.Escrow).Flight = time.Minute
		})
	}
	var refused *refusal.RefusedError
	if _, err := rig.Lookup(context.Background(), later(24*time.Hour), "acme", s.Run); !errors.As(err, &refused) || !strings.Contains(err.Error(), "has not returned") {
		t.Errorf("while the process lives: %v", err)
	}
	r.StopWorkers()
	if _, err := rig.Lookup(context.Background(), later(0), "acme", s.Run); !errors.As(err, &refused) || !strings.Contains(err.Error(), "look up again in") {
		t.Errorf("just after the process ended: %v", err)
	}
	year := later(365 * 24 * time.Hour)
	if c, err := rig.Lookup(context.Background(), year, "acme", s.Run); err != nil || c.UnknownOpen != 0 {
		t.Errorf("a year after the process ended: %+v, %v", c, err)
	}
	if st, err := year.Status(context.Background(), "acme", s.Run); err != nil || len(st.OutstandingCalls) != 0 || st.Class != escrow.NotExecuted {
		t.Errorf("%+v, %v", st, err)
	}
	year.MustAudit()
}

// A worker was lost during its call, and its letter is looked up.
func TestALetterOfALostWorkerIsClearedByALookup(t *testing.T) {
	t.Parallel()
	r := rig.New(t, func(c *postadjudication.Config) {
		c.LostAfter, c.TimeLimit, c.Policy.MaxRetryAttempts = 3*time.Second, 50*time.Millisecond, 1
		c.Executor.(*rig.Escrow).KeyLife, c.Executor.(*rig.Escrow).Flight = 0, time.Minute
	})
	ctx := context.Background()
	s := r.MustSubmit(rig.Release(1))
	seen, err := r.Journal().Cases.Snapshot(ctx, s.Run)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Claim(context.Background(), seen.Run); err != nil {
		t.Fatal(err)
	}
	r.StartWorkers()
	r.WaitLetter(s.Run)
	r.Escrow.SetLookupLife(escrow.Forever)
	var refused *refusal.RefusedError
	if _, err := rig.Lookup(ctx, r, "acme", s.Run); !errors.As(err, &refused) || !strings.Contains(err.Error(), "look up again in") {
		t.Errorf("just after the loss: %v", err)
	}
	if _, err := r.Reconcile(ctx, "acme", s.Run, deadletter.Finding{Reason: "r", Reference: "x", Class: escrow.NotExecuted}); !errors.As(err, &refused) || refused.Gate != refusal.GateCallOutstanding {
		t.Errorf("found just after the loss: %v", err)
	}
	day := rig.Join(t, r.DatabaseURL, r.Redis, r.Escrow, func(c *postadjudication.Config) {
		c.LostAfter, c.Simulated, c.Now = 3*time.Second, true, func() time.Time { return time.Now().Add(24 * time.Hour) }
	})
	if c, err := rig.Lookup(ctx, day, "acme", s.Run); err != nil || c.UnknownOpen != 0 {
		t.Errorf("%+v, %v", c, err)
	}
	day.MustAudit()
}

// A person who finds that nothing was executed must confirm it while a call may be outstanding.
func TestAFindingWhileACallIsOutstandingSaysThatItKnows(t *testing.T) {
	t.Parallel()
	r := rig.New(t, func(c *postadjudication.Config) { c.TimeLimit = 50 * time.Millisecond; c.Policy.MaxRetryAttempts = 1 })
	answer := make(chan escrow.Answer)
	r.Escrow.Script(func(context.Context, escrow.Call) escrow.Answer { return <-answer })
	s := r.StartWorkers().MustSubmit(rig.Release(1))
	r.WaitLetter(s.Run)
	ctx := context.Background()
	f := deadletter.Finding{Reason: "bank statement", Reference: "stmt-7", Class: escrow.NotExecuted}
	var refused *refusal.RefusedError
	if _, err := r.Reconcile(ctx, "acme", s.Run, f); !errors.As(err, &refused) || refused.Gate != refusal.GateCallOutstanding || !strings.Contains(err.Error(), "has not returned") {
		t.Errorf("%v", err)
	}
	opposite := rig.Refund(1)
	opposite.Generation = 2
	if got := r.MustSubmit(opposite); got.Reply != postadjudication.ReconcileFirst {
		t.Errorf("before a finding: %s", got.Reply)
	}
	var field *refusal.FieldError
	if _, err := r.Reconcile(ctx, "acme", s.Run, deadletter.Finding{Reason: "r", Reference: "x", Class: escrow.Executed, Moved: 1000, CallOutstanding: true}); !errors.As(err, &field) || field.Field != "call_outstanding" {
		t.Errorf("%v", err)
	}
	f.CallOutstanding = true
	if c, err := r.Reconcile(ctx, "acme", s.Run, f); err != nil || c.UnknownOpen != 0 {
		t.Errorf("%+v, %v", c, err)
	}
	if n := r.CountReceipts(rig.Receipts{Subtype: receipts.Reconciled, Payload: map[string]any{"call_outstanding": true}}); n != 1 {
		t.Errorf("%d receipts confirm the outstanding call", n)
	}
	close(answer) // an empty answer: unknown, which the finding resolved
	if got := r.MustSubmit(opposite); got.Reply != postadjudication.Created {
		t.Errorf("after the finding: %s", got.Reply)
	}
}

// A letter of an older version may have an outstanding call without an unknown outcome: it blocks the
// next generation.
func TestAnOutstandingCallKeepsTheNextGenerationOut(t *testing.T) {
	t.Parallel()
	r := rig.New(t, func(c *postadjudication.Config) { c.Policy.MaxRetryAttempts = 1 })
	r.Escrow.Answer(rig.Refuses)
	s := r.StartWorkers().MustSubmit(rig.Release(1))
	r.WaitLetter(s.Run)
	r.StopWorkers()
	if _, err := r.DB.Exec(`UPDATE recourse.runs SET outstanding_calls = '{1}'`); err != nil {
		t.Fatal(err)
	}
	opposite := rig.Refund(1)
	opposite.Generation = 2
	if got := r.MustSubmit(opposite); got.Reply != postadjudication.ReconcileFirst {
		t.Errorf("%s", got.Reply)
	}
	if _, err := r.Reconcile(context.Background(), "acme", s.Run, deadletter.Finding{Reason: "r", Reference: "x", Class: escrow.NotExecuted, CallOutstanding: true}); err != nil {
		t.Fatal(err)
	}
	if got := r.MustSubmit(opposite); got.Reply != postadjudication.Created {
		t.Errorf("%s", got.Reply)
	}
}

// A fork of a refused run gets a new key once the lifetime of the old one has expired: the
// service may count the lifetime from the refusals.
func TestAForkLaterThanTheKeyLifetimeHasAllItsAttempts(t *testing.T) {
	t.Parallel()
	r := rig.New(t, func(c *postadjudication.Config) { c.Executor.(*rig.Escrow).KeyLife = 24 * time.Hour })
	letter := background.RunID{}
	keys := map[escrow.OperationKey]int{}
	r.Escrow.Script(func(_ context.Context, c escrow.Call) escrow.Answer {
		keys[c.OperationKey]++
		switch {
		case c.Run == letter || letter.IsZero():
			return rig.Refused()
		case c.Attempt == 1:
			r.Escrow.Pay(c, c.Amount.Minor)
			return rig.NoAnswer()
		}
		return r.Escrow.Pay(c, c.Amount.Minor)
	})
	r.Escrow.ScriptLookups(rig.GivesNoAnswer)
	s := r.StartWorkers().MustSubmit(rig.Release(1))
	r.WaitLetter(s.Run)
	back := func(by string) {
		if _, err := r.DB.Exec(`UPDATE recourse.cases SET first_sent_at = first_sent_at - $1::interval`, by); err != nil {
			t.Fatal(err)
		}
	}
	back("1 day")
	letter = s.Run
	f, err := r.As("acme", "user:ada").DeadLetters.Fork(context.Background(), s.Run, rig.ForkRequest)
	if err != nil {
		t.Fatal(err)
	}
	r.WaitNoneLive()
	if st, err := r.Status(context.Background(), "acme", f.Run); err != nil || st.State != background.Succeeded || st.Attempts != 2 || len(keys) != 2 {
		t.Errorf("%d keys; %+v, %v", len(keys), st, err)
	}
	r.MustAudit()
	back("1 s")
	if a, err := r.Audit(context.Background()); err != nil || !strings.Contains(a.Verdict(audit.InvariantFold), "first sent at") {
		t.Errorf("a changed time of the first call is not found: %+v, %v", a, err)
	}
}

// A run paused by a breaker is not looked up, and does not die of its key meanwhile.
func TestAPausedRunDoesNotDieOfItsKey(t *testing.T) {
	t.Parallel()
	r := rig.New(t, func(c *postadjudication.Config) {
		c.Policy.BaseDelay = 100 * time.Millisecond
		c.Executor.(*rig.Escrow).KeyLife = 0
	})
	ctx := context.Background()
	r.Escrow.Script(func(context.Context, escrow.Call) escrow.Answer {
		if _, err := r.As("acme", "user:ada").Breakers.Open(ctx, escrow.DefaultTarget, "maintenance"); err != nil {
			t.Error(err)
		}
		return rig.NoAnswer()
	})
	lookups := 0
	r.Escrow.ScriptLookups(func(c escrow.Call) escrow.Answer {
		lookups++
		return escrow.Answer{Class: escrow.Executed, Moved: c.Amount.Minor}
	})
	paused := r.Health().Stats().PausedDeliveries
	s := r.StartWorkers().MustSubmit(rig.Release(1))
	r.Wait("its delivery is postponed", func() bool { return r.Health().Stats().PausedDeliveries > paused })
	if st, err := r.Status(ctx, "acme", s.Run); err != nil || st.State != background.Scheduled || lookups != 0 {
		t.Errorf("%d lookups, %+v, %v", lookups, st, err)
	}
	if _, err := r.As("acme", "user:ada").Breakers.Release(ctx, escrow.DefaultTarget, "over"); err != nil {
		t.Fatal(err)
	}
	r.WaitNoneLive()
	if st, err := r.Status(ctx, "acme", s.Run); err != nil || st.State != background.Succeeded || lookups != 1 {
		t.Errorf("%d lookups, %+v, %v", lookups, st, err)
	}
}
