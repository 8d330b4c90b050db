package postadjudication_test

import (
	"context"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/internal/rig"
)

// paysButAnswersNothing pays each call, and loses the answer to the first attempt.
func paysButAnswersNothing(r *rig.Rig, first func()) {
	r.Escrow.Script(func(_ context.Context, c escrow.Call) escrow.Answer {
		a := r.Escrow.Pay(c, c.Amount.Minor)
		if c.Attempt == 1 {
			first()
			return rig.NoAnswer()
		}
		return a
	})
}

// auditIsClean fails the test if the audit finds anything.
func auditIsClean(t *testing.T, r *rig.Rig) {
	t.Helper()
	rep, err := r.Audit(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range rep.Breaks {
		t.Errorf("audit: %s: %s", b.Invariant, b.What)
	}
}

// A replica that lags says once that nothing was executed, when a run whose key the service does not honour is asked
// about before its claim. The run is not called again, and the second answer settles it.
func TestALookupThatLiesOnceBeforeAClaimIsNotBelieved(t *testing.T) {
	t.Parallel()
	r := rig.New(t, withLookups, func(c *postadjudication.Config) {
		c.Policy.MaxRetryAttempts, c.Lookups.FirstPause, c.TimeLimit = 3, 2*time.Second, 5*time.Second
		e := c.Executor.(*rig.Escrow)
		e.KeyLife, e.LookupLife = 0, time.Hour
	})
	paysButAnswersNothing(r, func() {})
	l := &lookupScript{answers: []escrow.Answer{answerAbsent, answerExecuted(1000)}}
	r.Escrow.ScriptLookups(l.answer)
	s := r.StartWorkers().MustSubmit(rig.Release(1))
	r.Wait("a lookup", func() bool { return l.count() > 0 })
	if st := r.StatusOf(s.Run); st.Class != escrow.Unknown || st.State != background.Scheduled {
		t.Errorf("after one answer: class %s, %s", st.Class, st.State)
	}
	auditIsClean(t, r)
	r.WaitSettled(1)
	if n := r.Escrow.TotalCalls(); n != 1 || l.count() < 2 {
		t.Errorf("%d calls, %d lookups, want 1 and at least 2", n, l.count())
	}
	auditIsClean(t, r)
}

// The same at the end of the last attempt, of an executor that judges by itself whether a call can be in flight.
func TestALookupThatLiesOnceAtTheEndOfAnAttemptIsNotBelieved(t *testing.T) {
	t.Parallel()
	r := rig.New(t, withLookups, func(c *postadjudication.Config) { c.Lookups.FirstPause = 2 * time.Second })
	paysButAnswersNothing(r, func() {})
	l := &lookupScript{answers: []escrow.Answer{answerAbsent, answerExecuted(1000)}}
	r.Escrow.ScriptLookups(l.answer)
	s := r.StartWorkers().MustSubmit(rig.Release(1))
	r.WaitLetter(s.Run)
	if st := r.StatusOf(s.Run); st.Class != escrow.Unknown {
		t.Errorf("after one answer: class %s", st.Class)
	}
	r.WaitSettled(1)
	if n := r.Escrow.TotalCalls(); n != 1 || l.count() < 2 {
		t.Errorf("%d calls, %d lookups, want 1 and at least 2", n, l.count())
	}
	auditIsClean(t, r)
}

// A run that waits long, as a service asks for by Retry-After, is looked up meanwhile: what was paid ends it, and what
// was not, said twice, lets its outcome be known before its next attempt.
func TestAWaitingRunOfUnknownOutcomeIsLookedUp(t *testing.T) {
	t.Parallel()
	r := rig.New(t, withLookups, func(c *postadjudication.Config) { c.Policy.MaxRetryAttempts = 3 })
	r.Escrow.Script(func(_ context.Context, c escrow.Call) escrow.Answer {
		return escrow.Answer{Class: escrow.Unknown, Retry: true, RetryAfter: time.Hour, Type: "http.unavailable"}
	})
	l := &lookupScript{answers: []escrow.Answer{answerUnknown}}
	r.Escrow.ScriptLookups(l.answer)
	r.StartWorkers()
	paid := r.MustSubmit(rig.Release(1))
	r.WaitState(paid.Run, background.Scheduled)
	r.WaitAsked(1)
	auditIsClean(t, r)
	l.setAnswers(answerAbsent, answerExecuted(1000))
	r.WaitState(paid.Run, background.Succeeded)
	l.setAnswers(answerAbsent)
	absent := r.MustSubmit(rig.Release(2))
	r.Wait("the outcome is known", func() bool { st := r.StatusOf(absent.Run); return st.Class == escrow.NotExecuted })
	if st := r.StatusOf(absent.Run); st.State != background.Scheduled {
		t.Errorf("it is %s", st.State)
	}
	if n := r.Escrow.TotalCalls(); n != 2 {
		t.Errorf("%d calls, want 2", n)
	}
	auditIsClean(t, r)
}

// A service asks by Retry-After for a wait that is longer than it knows the key. The run is called again while the key is
// known, and the service answers with what it has paid.
func TestAWaitEndsWhileTheServiceKnowsTheKey(t *testing.T) {
	t.Parallel()
	r := rig.New(t, func(c *postadjudication.Config) {
		c.TimeLimit, c.LostAfter = 200*time.Millisecond, 3*time.Second
		e := c.Executor.(*rig.Escrow)
		e.KeyLife, e.Flight = 20*time.Second, 300*time.Millisecond
	})
	r.Escrow.Script(func(_ context.Context, c escrow.Call) escrow.Answer {
		if a := r.Escrow.Pay(c, c.Amount.Minor); c.Attempt > 1 {
			return a
		}
		return escrow.Answer{Class: escrow.Unknown, Retry: true, RetryAfter: 21 * time.Second, Type: "http.unavailable"}
	})
	s := r.StartWorkers().MustSubmit(rig.Release(1))
	r.WaitNoneLive()
	if st := r.StatusOf(s.Run); st.State != background.Succeeded || r.Escrow.Payments() != 1 || r.Escrow.TotalCalls() != 2 {
		t.Errorf("%s, %d payments, %d calls", st.State, r.Escrow.Payments(), r.Escrow.TotalCalls())
	}
	auditIsClean(t, r)
}

// What a waiting run has paid ends it before its next attempt.
func TestAWaitingRunThatWasPaidIsNotCalledAgain(t *testing.T) {
	t.Parallel()
	r := rig.New(t, withLookups, func(c *postadjudication.Config) { c.Policy.MaxRetryAttempts = 3 })
	r.Escrow.Script(func(_ context.Context, c escrow.Call) escrow.Answer {
		if a := r.Escrow.Pay(c, c.Amount.Minor); c.Attempt > 1 {
			return a
		}
		return escrow.Answer{Class: escrow.Unknown, Retry: true, RetryAfter: 15 * time.Second, Type: "http.unavailable"}
	})
	s := r.StartWorkers().MustSubmit(rig.Release(1))
	r.WaitState(s.Run, background.Succeeded)
	if n := r.Escrow.TotalCalls(); n != 1 {
		t.Errorf("%d calls, want 1", n)
	}
	auditIsClean(t, r)
}
