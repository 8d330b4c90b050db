package postadjudication_test

import (
	"context"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/internal/rig"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/settlement"
)

func TestReleaseSettlesAndRefundRefunds(t *testing.T) {
	t.Parallel()
	r := rig.New(t).StartWorkers()
	r.MustSubmit(rig.Release(1))
	r.MustSubmit(rig.Refund(2))
	r.WaitNoneLive()
	for n, want := range map[int]settlement.Status{1: settlement.Settled, 2: settlement.Refunded} {
		if c := r.CaseOf(rig.Release(n)); c.Progression != want || c.Moved != 1000 || c.Reserved != 0 || c.Lifecycle != "" {
			t.Errorf("case %d: %+v", n, c)
		}
	}
	r.MustAudit()
}

// An exhausted run leaves exactly the trail and the state that its policy determines.
func TestThreeFailuresEndAsADeadLetter(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	r.Escrow.Answer(rig.RateLimits)
	s := r.StartWorkers().MustSubmit(rig.Release(1))
	r.WaitNoneLive()
	trail, err := r.Receipts(context.Background(), "acme", s.Case, 0, 100)
	if err != nil {
		t.Fatal(err)
	}
	var got []receipts.Subtype
	var last receipts.Payload
	for _, rc := range trail {
		got = append(got, rc.Subtype)
		if last, err = rc.Payload(); err != nil {
			t.Fatal(err)
		}
	}
	want := []receipts.Subtype{receipts.Submitted, receipts.AttemptStarted, receipts.RetryScheduled, receipts.AttemptStarted,
		receipts.RetryScheduled, receipts.AttemptStarted, receipts.DeadLettered}
	if len(got) != len(want) {
		t.Fatalf("receipts: %v", got)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Fatalf("receipts: %v", got)
		}
	}
	if last.Attempts != 3 || last.Outcome != "release" || last.DeadLetteredAt.IsZero() || last.ReasonCode != background.ReasonRetryExhausted ||
		last.OutcomeClass != string(escrow.NotExecuted) || last.Error.Code != "429" || trail[6].Source != receipts.SourceRetry {
		t.Errorf("dead-lettered: %+v", last)
	}
	c := r.CaseOf(rig.Release(1))
	want2 := settlement.State{Outcome: settlement.Release, Progression: settlement.DisputeReady, ReasonCode: "escalate",
		Reason: "post-adjudication execution dead-lettered", Lifecycle: "re-escalated", Generation: 1, Asked: 1000, Reserved: 1000}
	if c.State != want2 || c.Runs[0].Letter != background.LetterOpen {
		t.Errorf("case: %+v", c)
	}
	r.MustAudit()
}

func TestRetriesWaitTheirTimeAndThenSettle(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	r.Escrow.Script(func(_ context.Context, c escrow.Call) escrow.Answer {
		if c.Attempt < 3 {
			return rig.RateLimited()
		}
		return r.Escrow.Pay(c, c.Amount.Minor)
	})
	s := r.StartWorkers().MustSubmit(rig.Release(1))
	r.WaitNoneLive()
	st, err := r.Status(context.Background(), "acme", s.Run)
	if err != nil || st.State != background.Succeeded || st.Attempts != 3 || st.BudgetSpent != 2 {
		t.Errorf("status %+v, %v", st, err)
	}
	r.MustAudit()
}

// A lost answer may hide a payment, and a refusal after it does not change that.
func TestPaidButLostAnswerFollowedByARefusalStaysUnknown(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	r.Escrow.ScriptLookups(rig.GivesNoAnswer)
	r.Escrow.Script(func(_ context.Context, c escrow.Call) escrow.Answer {
		if c.Attempt == 1 {
			r.Escrow.Pay(c, c.Amount.Minor)
			return rig.NoAnswer()
		}
		return rig.Refused()
	})
	s := r.StartWorkers().MustSubmit(rig.Release(1))
	r.WaitNoneLive()
	st, err := r.Status(context.Background(), "acme", s.Run)
	if err != nil || st.State != background.DeadLettered || st.Class != escrow.Unknown {
		t.Errorf("status %+v, %v", st, err)
	}
	higher := rig.Refund(1)
	higher.Generation = 2
	if got := r.MustSubmit(higher); got.Reply != postadjudication.ReconcileFirst {
		t.Errorf("re-adjudication while money is unknown: %s", got.Reply)
	}
	r.MustAudit()
}

// Before a run with an unknown outcome dies, the escrow service is looked up.
func TestLookupSettlesWhatTheAnswersLost(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	r.Escrow.Script(func(_ context.Context, c escrow.Call) escrow.Answer {
		r.Escrow.Pay(c, c.Amount.Minor)
		return rig.NoAnswer()
	})
	r.StartWorkers().MustSubmit(rig.Release(1))
	r.WaitNoneLive()
	if c := r.CaseOf(rig.Release(1)); c.Progression != settlement.Settled || c.UnknownOpen != 0 {
		t.Errorf("case %+v", c)
	}
	r.MustAudit()
}

// After the lifetime of its operation key a call could pay twice, so it is not made.
func TestUnknownIsNotRepeatedPastTheKeyLifetime(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	r.Escrow.SetKeyLife(0)
	r.Escrow.ScriptLookups(rig.GivesNoAnswer)
	r.Escrow.Answer(rig.GivesNoAnswer)
	s := r.StartWorkers().MustSubmit(rig.Release(1))
	r.WaitNoneLive()
	st, err := r.Status(context.Background(), "acme", s.Run)
	if err != nil || st.State != background.DeadLettered || st.ReasonCode != background.ReasonOutcomeUnknown || st.Attempts != 1 {
		t.Errorf("status %+v, %v", st, err)
	}
	if n := r.Escrow.TotalCalls(); n != 1 {
		t.Errorf("%d calls", n)
	}
	r.MustAudit()
}

func TestPanicIsAnAttemptOfUnknownOutcome(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	r.Escrow.Script(func(_ context.Context, c escrow.Call) escrow.Answer {
		if c.Attempt == 1 {
			r.Escrow.Pay(c, c.Amount.Minor)
			panic("after the money moved")
		}
		return r.Escrow.Pay(c, c.Amount.Minor)
	})
	s := r.StartWorkers().MustSubmit(rig.Release(1))
	r.WaitNoneLive()
	trail, err := r.Receipts(context.Background(), "acme", s.Case, 0, 100)
	if err != nil {
		t.Fatal(err)
	}
	p, err := trail[2].Payload()
	if err != nil || p.AttemptClass != string(escrow.Unknown) || p.Error.Type != background.FailurePanic || p.Error.Stack == "" {
		t.Errorf("receipt of the panic: %+v, %v", p, err)
	}
	if c := r.CaseOf(rig.Release(1)); c.Progression != settlement.Settled || c.UnknownOpen != 0 {
		t.Errorf("case %+v", c)
	}
	r.MustAudit()
}

// An answer of a payment that arrives after the time limit settles the case and ends the
// waiting run.
func TestLateAnswerThatPaidIsAFact(t *testing.T) {
	t.Parallel()
	r := rig.New(t, func(c *postadjudication.Config) {
		c.TimeLimit = 100 * time.Millisecond
		c.Policy.BaseDelay = time.Hour
		c.Policy.MaxDelay = time.Hour
	})
	answer := make(chan struct{})
	r.Escrow.Script(func(_ context.Context, c escrow.Call) escrow.Answer {
		<-answer
		return r.Escrow.Pay(c, c.Amount.Minor)
	})
	s := r.StartWorkers().MustSubmit(rig.Release(1))
	r.WaitState(s.Run, background.Scheduled)
	close(answer)
	r.WaitNoneLive()
	st, err := r.Status(context.Background(), "acme", s.Run)
	if err != nil || st.State != background.Succeeded || st.Class != escrow.Executed {
		t.Errorf("status %+v, %v", st, err)
	}
	if c := r.CaseOf(rig.Release(1)); c.Progression != settlement.Settled || c.Moved != 1000 || c.UnknownOpen != 0 {
		t.Errorf("case %+v", c)
	}
	r.MustAudit()
}

func TestPartialPaymentFreesTheRestAndCanBeAdjudicatedAgain(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	r.Escrow.Script(func(_ context.Context, c escrow.Call) escrow.Answer { return r.Escrow.Pay(c, min(400, c.Amount.Minor)) })
	r.StartWorkers().MustSubmit(rig.Release(1))
	r.WaitNoneLive()
	if c := r.CaseOf(rig.Release(1)); c.Progression != settlement.PartiallySettled || c.Released != 400 || c.Reserved != 0 {
		t.Errorf("case %+v", c)
	}
	rest := rig.Refund(1)
	rest.Generation, rest.Amount = 2, rig.Euros(400)
	if s := r.MustSubmit(rest); s.Reply != postadjudication.Created {
		t.Fatalf("reply %s", s.Reply)
	}
	r.WaitNoneLive()
	if c := r.CaseOf(rig.Release(1)); c.Progression != settlement.Refunded || c.Released != 400 || c.Refunded != 400 {
		t.Errorf("case %+v", c)
	}
	r.MustAudit()
}

// A payment beyond the reservation is recorded, with a breach.
func TestOverpaymentIsRecordedAsABreach(t *testing.T) {
	t.Parallel()
	logged, logs := observer.New(zap.ErrorLevel)
	r := rig.New(t, func(c *postadjudication.Config) { c.Logger = zap.New(logged) })
	r.AllowOverpaid = true
	r.Escrow.Script(func(_ context.Context, c escrow.Call) escrow.Answer { return r.Escrow.Pay(c, 1500) })
	r.StartWorkers().MustSubmit(rig.Release(1))
	r.WaitNoneLive()
	if n := r.CountReceipts(rig.Receipts{Subtype: receipts.ConservationBreach}); n != 1 {
		t.Errorf("%d breach receipts", n)
	}
	if sums := r.EscrowSums("acme", rig.Release(1).EscrowReference); sums.Committed != 1500 || sums.Held != 1000 {
		t.Error("the escrow does not show what was paid")
	}
	if c := r.CaseOf(rig.Release(1)); c.Excess != 500 || c.Committed != 1500 || c.Breached != 500 {
		t.Errorf("status: excess %d, committed %d, breached %d", c.Excess, c.Committed, c.Breached)
	}
	if logs.FilterMessage("more was paid than was adjudicated").Len() != 1 {
		t.Errorf("the log: %v", logs.All())
	}
	r.WaitBreached(500)
	r.Wait("the alarm is raised", func() bool {
		return r.Health().Breaches() == postadjudication.Breaches{Excesses: 1, Escrows: 1, Overdrawn: settlement.SumOf(500)} && logs.FilterMessage("an escrow has committed more than it holds").Len() == 1
	})
	if l, err := r.Health().Levels(context.Background()); err != nil || l.Breaches != r.Health().Breaches() || !l.OldestUnfolded.IsZero() {
		t.Errorf("levels: %+v, %v, %v", l.Breaches, l.OldestUnfolded, err)
	}
	r.MustAudit()
}
