package postadjudication_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/casestatus"
	"github.com/recourse-dev/recourse/postadjudication/deadletter"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/internal/rig"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/settlement"
)

// untilOthersSettle submits ten others and waits until the same worker has settled them.
func untilOthersSettle(r *rig.Rig) {
	r.T.Helper()
	for n := 100; n < 110; n++ {
		r.MustSubmit(rig.Release(n))
	}
	r.WaitCases(10, rig.Cases{SubjectPrefix: "txr_10", Progression: settlement.Settled})
	if err := r.Engine().Healthy(); err != nil || r.Health().Stats().Unrecordable == 0 {
		r.T.Errorf("healthy %v, %d unrecordable", err, r.Health().Stats().Unrecordable)
	}
}

// untilUnrecordable waits until a run becomes a dead letter because its outcome can't be
// recorded, and returns that receipt.
func untilUnrecordable(r *rig.Rig, run background.RunID) receipts.Payload {
	r.T.Helper()
	r.WaitStatus("it is a letter that says why", run, func(s casestatus.Status) bool {
		return s.Letter == background.LetterOpen && s.ReasonCode == background.ReasonUnrecordable
	})
	s, err := r.Status(context.Background(), "acme", run)
	if err != nil {
		r.T.Fatal(err)
	}
	trail, err := r.Receipts(context.Background(), "acme", s.Case, 0, 1000)
	if err != nil {
		r.T.Fatal(err)
	}
	p, err := trail[len(trail)-1].Payload()
	if err != nil || p.ReasonCode != background.ReasonUnrecordable || p.Error.Type != background.FailureUnrecordable {
		r.T.Fatalf("%+v, %v", p, err)
	}
	return p
}

// A payment that makes the sum of a case overflow is stated in words, and the run becomes a dead
// letter with its money unknown; the worker continues.
func TestAPaymentThatCanNotBeSummedIsLeftToAPerson(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	r.AllowOverpaid = true
	big := rig.Release(1)
	big.Held, big.Amount = rig.Euros(settlement.MaxMinor), rig.Euros(settlement.MaxMinor)
	r.Escrow.Script(func(_ context.Context, c escrow.Call) escrow.Answer {
		switch c.Amount.Minor {
		case settlement.MaxMinor:
			return r.Escrow.Pay(c, settlement.MaxMinor-10)
		case 10:
			return r.Escrow.Pay(c, 100)
		}
		return r.Escrow.Pay(c, c.Amount.Minor)
	})
	r.MustSubmit(big)
	r.StartWorkers()
	r.WaitCase("it is paid in part", big, func(c casestatus.Case) bool { return c.Progression == settlement.PartiallySettled })
	rest := big
	rest.Generation, rest.Amount = 2, rig.Euros(10)
	s := r.MustSubmit(rest)
	p := untilUnrecordable(r, s.Run)
	if p.OutcomeClass != string(escrow.Unknown) || p.Error.Code != string(escrow.Executed) || !strings.Contains(p.Error.Message, "100 minor units were moved") {
		t.Errorf("%+v", p)
	}
	untilOthersSettle(r)
	ctx := context.Background()
	higher := rest
	higher.Generation = 3
	if got := r.MustSubmit(higher); got.Reply != postadjudication.ReconcileFirst {
		t.Errorf("a higher generation: %s", got.Reply)
	}
	r.MustAudit()
	_, err := r.Reconcile(ctx, "acme", s.Run, bankPaidNot)
	wantContradicted(t, err, "ended as executed")
	found := deadletter.Finding{Reason: "paid 90 too much, claimed back", Class: escrow.Executed, Moved: 10, Reference: "stmt-7"}
	if c, err := r.Reconcile(ctx, "acme", s.Run, found); err != nil || c.Progression != settlement.Settled || c.UnknownOpen != 0 {
		t.Errorf("%+v, %v", c, err)
	}
}

// A value that Postgres refuses is no outage: the outcome is written in its narrowest form, and
// the worker continues.
func TestAnOutcomeThatPostgresRefusesIsLeftToAPerson(t *testing.T) {
	t.Parallel()
	for name, law := range map[string]string{
		"its code": `ALTER TABLE recourse.runs ADD CONSTRAINT refused CHECK (error_code <> '777')`,
		"its text": `ALTER TABLE recourse.runs ADD CONSTRAINT refused CHECK (error_code <> '777' AND (reason <> 'unrecordable' OR error_text = ''))`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := rig.New(t)
			if _, err := r.DB.Exec(law); err != nil {
				t.Fatal(err)
			}
			r.Escrow.Script(func(_ context.Context, c escrow.Call) escrow.Answer {
				if c.Amount.Minor == 7 {
					return escrow.Answer{Class: escrow.NotExecuted, Retry: true, Type: "http.odd", Code: "777", Message: "odd"}
				}
				return r.Escrow.Pay(c, c.Amount.Minor)
			})
			odd := rig.Release(1)
			odd.Amount = rig.Euros(7)
			s := r.StartWorkers().MustSubmit(odd)
			p := untilUnrecordable(r, s.Run)
			if p.OutcomeClass != string(escrow.NotExecuted) || p.Error.Code != string(escrow.NotExecuted) || strings.Contains(p.Error.Message, "http.odd: 777 odd") != (name == "its code") {
				t.Errorf("%+v", p)
			}
			untilOthersSettle(r)
			r.MustAudit()
		})
	}
}

// The same for a claim that can't be written: the run is not tried for ever.
func TestAClaimThatPostgresRefusesIsLeftToAPerson(t *testing.T) {
	t.Parallel()
	r := rig.New(t, withTargets("odd"))
	if _, err := r.DB.Exec(`ALTER TABLE recourse.runs ADD CONSTRAINT refused CHECK (state <> 'running' OR target <> 'odd')`); err != nil {
		t.Fatal(err)
	}
	odd := rig.Release(1)
	odd.Target = "odd"
	s := r.StartWorkers().MustSubmit(odd)
	untilUnrecordable(r, s.Run)
	if r.Escrow.TotalCalls() != 0 {
		t.Error("it was called")
	}
	for n := 100; n < 110; n++ {
		r.MustSubmit(rig.Release(n))
	}
	r.WaitSettled(10)
	r.MustAudit()
}

// A task that reports a moved amount beyond the maximum sum stops no worker.
func TestAnAbsurdAmountOfATaskIsLeftToAPerson(t *testing.T) {
	t.Parallel()
	r := rig.New(t, func(c *postadjudication.Config) {
		c.Families = []postadjudication.PlainFamily{{Name: "chores", Handle: func(context.Context, background.Attempt) background.Result {
			return background.Result{Class: escrow.Executed, Moved: 1 << 60}
		}}}
	}).StartWorkers()
	s, err := r.SubmitTask(context.Background(), postadjudication.Task{Tenant: "acme", Family: "chores", RetryKey: "k"})
	if err != nil {
		t.Fatal(err)
	}
	if p := untilUnrecordable(r, s.Run); !strings.Contains(p.Error.Message, "1'152'921'504'606'846'976") {
		t.Errorf("%+v", p)
	}
	untilOthersSettle(r)
	r.MustAudit()
}

// A late answer that makes a sum overflow makes the money unknown, for a person.
func TestALateAnswerThatCanNotBeRecordedMakesTheMoneyUnknown(t *testing.T) {
	t.Parallel()
	r := rig.New(t, func(c *postadjudication.Config) { c.TimeLimit = 50e6; c.Policy.MaxRetryAttempts = 1 })
	r.Escrow.ScriptLookups(func(escrow.Call) escrow.Answer { return escrow.Answer{Class: escrow.Unknown, Type: "x", Message: "x"} })
	if _, err := r.DB.Exec(`ALTER TABLE recourse.cases ADD CONSTRAINT refused CHECK (released <> 7)`); err != nil {
		t.Fatal(err)
	}
	answer := make(chan struct{})
	r.Escrow.Script(func(_ context.Context, c escrow.Call) escrow.Answer {
		if c.Amount.Minor == 7 {
			<-answer
		}
		return r.Escrow.Pay(c, c.Amount.Minor)
	})
	odd := rig.Release(1)
	odd.Amount = rig.Euros(7)
	s := r.StartWorkers().MustSubmit(odd)
	r.WaitLetter(s.Run)
	close(answer)
	r.WaitReceipt(s.Case, receipts.AnsweredLate)
	r.WaitStatus("no call is outstanding", s.Run, func(s casestatus.Status) bool { return s.OutstandingCalls == nil })
	if st, err := r.Status(context.Background(), "acme", s.Run); err != nil || st.Class != escrow.Unknown || st.Letter != background.LetterOpen {
		t.Errorf("%+v, %v", st, err)
	}
	untilOthersSettle(r)
	r.MustAudit()
}

// A payment under the key of an older generation whose sum can't be recorded ends the run that waits: a person finds out what it was.
func TestAPaymentUnderAnOlderKeyThatCanNotBeRecordedEndsTheRunThatWaits(t *testing.T) {
	t.Parallel()
	o := newOlderKeyCase(t, neverCalled)
	ctx := context.Background()
	if _, err := o.DB.Exec(`ALTER TABLE recourse.cases ADD CONSTRAINT refused CHECK (released <> 400)`); err != nil {
		t.Fatal(err)
	}
	if _, err := o.As("acme", "user:ada").Breakers.Open(ctx, escrow.DefaultTarget, "stop"); err != nil {
		t.Fatal(err)
	}
	waits := o.MustSubmit(o.higher(2))
	close(o.payLate)
	o.WaitReceipt(o.letter.Case, receipts.AnsweredLate)
	if st := o.StatusOf(waits.Run); st.Letter != background.LetterOpen || st.ReasonCode != postadjudication.ReasonPaidUnderOlderKey || st.Class != escrow.Unknown || st.Attempts != 0 {
		t.Errorf("%+v", st)
	}
	if _, err := o.As("acme", "user:ada").Breakers.Release(ctx, escrow.DefaultTarget, "go"); err != nil {
		t.Fatal(err)
	}
	o.WaitNoneLive()
	for range 2 { // a lookup under its own key tells nothing of the other one
		var refused *refusal.RefusedError
		if _, err := o.As("acme", "user:ada").DeadLetters.Fork(ctx, waits.Run, rig.ForkRequest); !errors.As(err, &refused) || refused.Gate != refusal.GatePaidUnderOlderKey {
			t.Errorf("a fork: %v", err)
		}
		_, err := o.As("acme", "user:ada").DeadLetters.Lookup(ctx, waits.Run)
		for err != nil && strings.Contains(err.Error(), "the lookup timed out") { // a busy machine: it is made again, as the answer says
			_, err = o.As("acme", "user:ada").DeadLetters.Lookup(ctx, waits.Run)
		}
		if err != nil {
			t.Error(err)
		}
		if next, err := o.Submit(ctx, o.higher(3)); err != nil || next.Reply != postadjudication.ReconcileFirst {
			t.Errorf("a higher generation: %s, %v", next.Reply, err)
		}
	}
	if _, err := o.DB.Exec(`ALTER TABLE recourse.cases DROP CONSTRAINT refused`); err != nil {
		t.Fatal(err)
	}
	found := rig.PaidFinding
	found.Moved = lateMinor
	findPaid(o.Rig, o.letter, found)
	o.checkUndercut(waits, 600)
	if c := o.CaseOf(rig.Release(1)); c.UnknownOpen != 0 {
		t.Errorf("%d attempts are unknown", c.UnknownOpen)
	}
}

// It also ends a run that runs as a fork, or after an attempt of its own of unknown outcome: no further call is made.
func TestAPaymentUnderAnOlderKeyThatCanNotBeRecordedEndsRetriesAndForks(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		first    escrow.Answer // of the higher generation
		forks    bool
		attempts int
	}{
		"after an unknown attempt": {rig.NoAnswer(), false, 2},
		"a fork":                   {rig.Refused(), true, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			called, answer := make(chan struct{}), make(chan struct{})
			var calls atomic.Int32
			o := newOlderKeyCase(t, func(context.Context, *rig.Rig, escrow.Call) escrow.Answer {
				if calls.Add(1) == 1 {
					return c.first
				}
				close(called) // a third call panics
				<-answer
				return rig.RateLimited()
			}, func(c *postadjudication.Config) { c.Policy.MaxRetryAttempts = 3 })
			o.StopWorkers() // it still records what its call answers
			o.OtherProcess(func(c *postadjudication.Config) { c.TimeLimit, c.Policy.MaxRetryAttempts = time.Minute, 3 }).StartWorkers()
			if _, err := o.DB.Exec(`ALTER TABLE recourse.cases ADD CONSTRAINT refused CHECK (released <> 400)`); err != nil {
				t.Fatal(err)
			}
			last := o.MustSubmit(o.higher(2)).Run
			if c.forks {
				o.WaitLetter(last)
				fork, err := o.As("acme", "user:ada").DeadLetters.Fork(t.Context(), last, rig.ForkRequest)
				if err != nil {
					t.Fatal(err)
				}
				last = fork.Run
			}
			<-called
			close(o.payLate)
			o.WaitReceipt(o.letter.Case, receipts.AnsweredLate)
			close(answer)
			o.WaitNoneLive()
			if st := o.StatusOf(last); st.Letter != background.LetterOpen || st.ReasonCode != postadjudication.ReasonPaidUnderOlderKey || st.Attempts != c.attempts || calls.Load() != 2 {
				t.Errorf("%d calls, %+v", calls.Load(), st)
			}
			o.MustAudit()
		})
	}
}

// It ends a running run with its attempt, also if that was to be cancelled: then nobody could tell any more what became of
// the money.
func TestAPaymentUnderAnOlderKeyThatCanNotBeRecordedEndsTheRunThatRuns(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answer    escrow.Answer
		cancelled bool
	}{
		"retried":   {answer: rig.RateLimited()},
		"cancelled": {answer: rig.RateLimited(), cancelled: true},
		"refused":   {answer: rig.Refused()},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			called, answer := make(chan struct{}), make(chan struct{})
			o := newOlderKeyCase(t, func(context.Context, *rig.Rig, escrow.Call) escrow.Answer {
				close(called) // a second call panics
				<-answer
				return c.answer
			}, func(c *postadjudication.Config) { c.Policy.MaxRetryAttempts = 2 })
			o.StopWorkers() // it still records what its call answers
			o.OtherProcess(func(c *postadjudication.Config) { c.TimeLimit = time.Minute }).StartWorkers()
			if _, err := o.DB.Exec(`ALTER TABLE recourse.cases ADD CONSTRAINT refused CHECK (released <> 400)`); err != nil {
				t.Fatal(err)
			}
			runs := o.MustSubmit(o.higher(2))
			<-called
			if c.cancelled {
				if _, err := rig.CancelRun(o.Rig, runs); err != nil {
					t.Error(err)
				}
			}
			close(o.payLate)
			o.WaitReceipt(o.letter.Case, receipts.AnsweredLate)
			close(answer)
			o.WaitNoneLive()
			if st := o.StatusOf(runs.Run); st.Letter != background.LetterOpen || st.ReasonCode != postadjudication.ReasonPaidUnderOlderKey || st.Class != escrow.Unknown || st.Attempts != 1 {
				t.Errorf("%+v", st)
			}
			if c := o.CaseOf(rig.Release(1)); c.UnknownOpen == 0 {
				t.Errorf("the case says that it knows: %+v", c)
			}
			o.MustAudit()
		})
	}
}

// A worker leaves a run whose case has a receipt beyond its head, which a person wrote: it reports the run, and executes all others.
func TestARunOfACaseWithAReceiptBeyondItsHeadIsReported(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	blocked := r.MustNotify(r.MustSubmit(rig.Release(1)))
	rig.AppendByHand(r, blocked.Case)
	r.StartWorkers()
	r.Wait("the run was met", func() bool { return r.Health().Stats().Unreadable == 1 })
	for n := 2; n < 12; n++ {
		r.MustSubmit(rig.Release(n))
	}
	r.WaitSettled(10)
	if s, err := r.Status(t.Context(), "acme", blocked.Run); err != nil || s.WaitsFor != casestatus.WaitsForOwner {
		t.Errorf("it waits for %q, %v", s.WaitsFor, err)
	}
	if n, err := r.Health().Blocked(t.Context()); n != 1 || err != nil || r.Engine().Healthy() != nil {
		t.Errorf("%d blocked, %v; healthy: %v", n, err, r.Engine().Healthy())
	}
}
