package postadjudication_test

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/background/circuit"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/casestatus"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/internal/rig"
	"github.com/recourse-dev/recourse/receipts"
)

// asynchronous returns a rig whose escrow service accepts the first call of a run, and answers lookups as listed; the
// last answer repeats.
func asynchronous(t *testing.T, lookups []escrow.Answer, change ...func(*postadjudication.Config)) (*rig.Rig, *lookupScript) {
	t.Helper()
	r := rig.New(t, append([]func(*postadjudication.Config){func(c *postadjudication.Config) { c.Lookups.FirstPause = 300 * time.Millisecond }}, change...)...)
	r.Escrow.Answer(rig.Accepts)
	l := &lookupScript{answers: lookups}
	r.Escrow.ScriptLookups(l.answer)
	return r, l
}

// acceptedRetries returns the receipts of attempts of a run whose call was accepted.
func acceptedRetries(r *rig.Rig, s postadjudication.Submitted) (out []receipts.Payload) {
	for _, p := range r.Payloads(s, receipts.RetryScheduled) {
		if p.ReasonCode == receipts.ReasonAccepted {
			out = append(out, p)
		}
	}
	return out
}

// A call that the escrow service accepts and executes later settles: by lookups, with the one attempt that was called,
// which spent nothing.
func TestAnAcceptedCallThatIsExecutedLaterSettles(t *testing.T) {
	t.Parallel()
	r, l := asynchronous(t, []escrow.Answer{rig.Accepted(), rig.NoAnswer(), rig.Accepted(), answerExecuted(1000)})
	s := r.StartWorkers().MustSubmit(rig.Release(1))
	r.Wait("the service is asked, or called again", func() bool { return l.count() > 0 || r.Escrow.TotalCalls() > 1 })
	auditIsClean(t, r)
	r.WaitSettled(1)
	st := r.StatusOf(s.Run)
	if st.State != background.Succeeded || st.Attempts != 1 || st.BudgetSpent != 0 || st.ReasonCode != "" || r.Escrow.TotalCalls() != 1 || l.count() != 4 {
		t.Errorf("%+v after %d calls and %d lookups", st, r.Escrow.TotalCalls(), l.count())
	}
	accepted := acceptedRetries(r, s)
	if len(accepted) != 1 || accepted[0].BudgetSpent != 0 || accepted[0].AttemptClass != "unknown" || accepted[0].UnknownOpen != 1 {
		t.Errorf("receipts of accepted calls: %+v", accepted)
	}
	auditIsClean(t, r)
}

// What the escrow service has accepted blocks all that unknown money blocks, and its run says what it waits for.
func TestAnAcceptedCallMayHavePaid(t *testing.T) {
	t.Parallel()
	r, _ := asynchronous(t, []escrow.Answer{rig.Accepted()})
	s := r.StartWorkers().MustSubmit(rig.Release(1))
	r.Wait("the run waits for the service", func() bool {
		st := r.StatusOf(s.Run)
		return st.State == background.Scheduled && st.WaitsFor == casestatus.WaitsForService
	})
	if _, err := rig.CancelRun(r, s); err == nil {
		t.Error("a run whose call is accepted was cancelled")
	}
	other := rig.Refund(1)
	other.Generation, other.AdjudicationID = 2, "adj_1b"
	if reply, err := r.Submit(context.Background(), other); err != nil || reply.Reply.Accepted() {
		t.Errorf("a higher generation beside an accepted call: %+v, %v", reply, err)
	}
	if c := r.CaseOf(rig.Release(1)); c.UnknownOpen != 1 || c.State.Reserved != 1000 {
		t.Errorf("%+v", c)
	}
	r.StopWorkers()
	auditIsClean(t, r)
	rig.CheckAuditDetects(r, "an accepted call that would be made again", `UPDATE recourse.runs SET reason = ''`, `UPDATE recourse.runs SET reason = 'accepted'`, "mark of being accepted")
}

// A call that is accepted and refused later is made once more under its key, after two lookups in a row have said so: what
// the service says between them that is not "not executed" counts.
func TestAnAcceptedCallThatIsRefusedLaterIsALetter(t *testing.T) {
	t.Parallel()
	r, l := asynchronous(t, []escrow.Answer{answerAbsent, rig.Accepted(), answerAbsent, answerAbsent})
	asked := 0
	r.Escrow.Answer(func(c escrow.Call) escrow.Answer {
		if c.Attempt == 1 {
			return rig.Accepted()
		}
		asked = l.count()
		return rig.Refused()
	})
	s := r.StartWorkers().MustSubmit(rig.Release(1))
	r.WaitLetter(s.Run)
	st := r.StatusOf(s.Run)
	if st.Class != escrow.NotExecuted || st.Attempts != 2 || st.BudgetSpent != 1 || asked != 4 {
		t.Errorf("%+v; %d lookups before the second call, want 4", st, asked)
	}
	auditIsClean(t, r)
}

// An accepted call that does not end within its span is a dead letter of unknown outcome, and no other call was made.
func TestAnAcceptedCallThatDoesNotEndIsALetterOfUnknownOutcome(t *testing.T) {
	t.Parallel()
	r, l := asynchronous(t, []escrow.Answer{rig.Accepted()}, func(c *postadjudication.Config) { c.Executor.(*rig.Escrow).Accepting = time.Second })
	s := r.StartWorkers().MustSubmit(rig.Release(1))
	r.Wait("the run has ended, or is asked about for long", func() bool { return !r.StatusOf(s.Run).State.Live() || l.count() > 10 })
	st := r.StatusOf(s.Run)
	if st.Letter != background.LetterOpen || st.Class != escrow.Unknown || st.ReasonCode != background.ReasonOutcomeUnknown || st.BudgetSpent != 0 || st.Attempts != 1 || l.count() < 2 {
		t.Errorf("%+v after %d lookups", st, l.count())
	}
	auditIsClean(t, r)
}

// Without a lookup the call itself is repeated, under its key and without spending an attempt.
func TestAnAcceptedCallWithoutALookupIsRepeated(t *testing.T) {
	t.Parallel()
	var e *rig.Escrow
	r := rig.New(t, func(c *postadjudication.Config) {
		e = c.Executor.(*rig.Escrow)
		c.Executor = struct{ escrow.Executor }{e}
	})
	e.Answer(func(c escrow.Call) escrow.Answer {
		if c.Attempt <= 4 {
			return rig.Accepted()
		}
		return e.Pay(c, c.Amount.Minor)
	})
	s := r.StartWorkers().MustSubmit(rig.Release(1))
	r.WaitSettled(1)
	if st := r.StatusOf(s.Run); st.Attempts != 5 || st.BudgetSpent != 0 || len(acceptedRetries(r, s)) != 4 || e.Payments() != 1 {
		t.Errorf("%+v, %d payments", st, e.Payments())
	}
	auditIsClean(t, r)
}

// The lookup at the last attempt of a run whose calls got no answer says that one is accepted: the run does not die.
func TestALookupBeforeADeathFindsAnAcceptedCall(t *testing.T) {
	t.Parallel()
	r, l := asynchronous(t, []escrow.Answer{rig.Accepted(), rig.Accepted(), answerExecuted(1000)})
	r.Escrow.Answer(rig.GivesNoAnswer)
	s := r.StartWorkers().MustSubmit(rig.Release(1))
	r.WaitSettled(1)
	if st := r.StatusOf(s.Run); st.Attempts != 3 || st.BudgetSpent != 2 || l.count() != 3 || len(acceptedRetries(r, s)) != 1 {
		t.Errorf("%+v after %d lookups", st, l.count())
	}
	auditIsClean(t, r)
}

// A process that ends while calls are accepted leaves them to others, which ask and do not call.
func TestAcceptedCallsOfAProcessThatEndedAreAskedAbout(t *testing.T) {
	t.Parallel()
	r, l := asynchronous(t, []escrow.Answer{rig.Accepted()})
	var all []postadjudication.Submitted
	r.StartWorkers()
	for n := range 5 {
		all = append(all, r.MustSubmit(rig.Release(n+1)))
	}
	r.Wait("all are accepted", func() bool {
		return !slices.ContainsFunc(all, func(s postadjudication.Submitted) bool { return len(acceptedRetries(r, s)) == 0 })
	})
	r.StopWorkers()
	l.setAnswers(answerExecuted(1000))
	r.OtherProcess().StartWorkers()
	r.WaitSettled(len(all))
	if n := r.Escrow.TotalCalls(); n != len(all) {
		t.Errorf("%d calls for %d runs", n, len(all))
	}
	auditIsClean(t, r)
}

// An accepted call says nothing for or against the target of a circuit breaker that is closed: it opens none, and ends no
// row of failures. The calls that an open one lets through close it, for a service that accepts them works.
func TestAcceptedCallsNeitherOpenABreakerNorKeepItOpen(t *testing.T) {
	t.Parallel()
	const consecutive = 5
	var blocks, down atomic.Bool
	r, _ := asynchronous(t, []escrow.Answer{rig.Accepted()}, func(c *postadjudication.Config) {
		c.Slots = 1
		c.Breaker = postadjudication.BreakerRule{Consecutive: consecutive, ConsecutiveAtLast: 1 << 20, MinAttempts: 1 << 20, ProbeInterval: 5 * time.Millisecond}
		c.OnBreaker = func(b circuit.Breaker) { blocks.Store(b.Blocks()) }
	})
	r.Escrow.Answer(func(c escrow.Call) escrow.Answer {
		if down.Load() && c.Amount.Minor == 500 {
			return rig.NoAnswer()
		}
		return rig.Accepted()
	})
	r.StartWorkers()
	for n := range 3 * consecutive {
		s := r.MustSubmit(rig.Release(n))
		r.Wait("it is accepted", func() bool { return len(acceptedRetries(r, s)) > 0 })
	}
	if blocks.Load() {
		t.Error("accepted calls opened a breaker")
	}
	down.Store(true)
	for n := 3 * consecutive; !blocks.Load() && n < 8*consecutive; n++ {
		a := rig.Release(n)
		if n%2 == 0 {
			a.Amount.Minor = 500
		}
		s := r.MustSubmit(a)
		r.Wait("it is called", func() bool { return r.StatusOf(s.Run).Attempts > 0 || blocks.Load() })
	}
	if !blocks.Load() {
		t.Fatal("failures between accepted calls open no breaker")
	}
	r.WaitBreakerOpens()
	down.Store(false)
	r.WaitBreakersClosed()
	auditIsClean(t, r)
}

// Lookups that hang hold up nothing else: many accepted calls are asked about, and a run beside them settles.
func TestLookupsOfAcceptedCallsThatHangHoldUpNobody(t *testing.T) {
	t.Parallel()
	const accepted = 450 // more than a process has deliveries
	r, _ := asynchronous(t, nil, func(c *postadjudication.Config) { c.TimeLimit, c.Grace = 2*time.Minute, time.Second })
	var hangs atomic.Int64
	release := make(chan struct{})
	t.Cleanup(func() { close(release) })
	lookups := blockingLookups{r.Escrow, &hangs, release}
	other := r.OtherProcess(func(c *postadjudication.Config) {
		c.Executor, c.TimeLimit, c.Grace, c.Slots = lookups, 2*time.Minute, time.Second, 8
	})
	as := make([]postadjudication.Adjudication, accepted)
	for i := range as {
		as[i] = rig.Release(i)
	}
	if _, errs := r.SubmitBatch(context.Background(), as); len(errs) != accepted || errs[0] != nil {
		t.Fatal(errs)
	}
	other.StartWorkers()
	other.Wait("as many lookups hang as there are slots, and all are accepted", func() bool {
		return hangs.Load() >= 8 && r.Escrow.TotalCalls() == accepted
	})
	r.Escrow.Answer(func(c escrow.Call) escrow.Answer { return r.Escrow.Pay(c, c.Amount.Minor) })
	r.MustSubmit(rig.Release(accepted))
	r.WaitSettled(1)
}

// blockingLookups is an escrow service whose lookups hang until it is released.
type blockingLookups struct {
	*rig.Escrow
	hangs   *atomic.Int64
	release chan struct{}
}

func (b blockingLookups) Lookup(ctx context.Context, c escrow.Call) escrow.Answer {
	b.hangs.Add(1)
	select {
	case <-b.release:
	case <-ctx.Done():
	}
	return rig.NoAnswer()
}
