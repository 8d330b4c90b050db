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
	"github.com/recourse-dev/recourse/postadjudication/deadletter"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/internal/rig"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
)

// The answer to the only call is lost, and the service knows its key in lookups only. A replica that lags says "not
// executed", another one that the call is accepted, the first one once more "not executed": that is not twice in a row,
// and no other call is made.
func TestAnAcceptanceBetweenTwoDenialsCountsAfterALostAnswer(t *testing.T) {
	t.Parallel()
	r, l := asynchronous(t, []escrow.Answer{answerAbsent, rig.Accepted(), answerAbsent, answerExecuted(1000)}, func(c *postadjudication.Config) {
		c.Lookups.FirstPause = time.Second
		e := c.Executor.(*rig.Escrow)
		e.KeyLife, e.LookupLife = 0, time.Hour
	})
	r.Escrow.Script(func(_ context.Context, c escrow.Call) escrow.Answer {
		r.Escrow.Pay(c, c.Amount.Minor)
		return rig.NoAnswer()
	})
	s := r.StartWorkers().MustSubmit(rig.Release(1))
	r.Wait("the run has ended", func() bool { return !r.StatusOf(s.Run).State.Live() })
	if st := r.StatusOf(s.Run); st.State != background.Succeeded || r.Escrow.TotalCalls() != 1 || r.Escrow.Payments() != 1 {
		t.Errorf("%s: %d calls, %d payments after %d lookups", st.State, r.Escrow.TotalCalls(), r.Escrow.Payments(), l.count())
	}
	r.MustAudit()
}

// An answer that asks to be asked again holds no run for ever: neither that a call is accepted, once its span is over,
// nor that the service is unavailable.
func TestNoAnswerOfALookupHoldsARunForEver(t *testing.T) {
	t.Parallel()
	accepted := rig.Accepted()
	accepted.RetryAfter = 300 * time.Millisecond
	unavailable := escrow.Answer{Class: escrow.Unknown, Retry: true, RetryAfter: 300 * time.Millisecond, Type: "http.unavailable", Code: "503"}
	for name, answer := range map[string]escrow.Answer{"accepted": accepted, "unavailable": unavailable} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, _ := asynchronous(t, []escrow.Answer{answer}, func(c *postadjudication.Config) {
				e := c.Executor.(*rig.Escrow)
				e.KeyLife, e.LookupLife, e.Accepting = 0, time.Hour, time.Second
			})
			r.Escrow.Answer(rig.GivesNoAnswer)
			s := r.StartWorkers().MustSubmit(rig.Release(1))
			r.WaitLetter(s.Run)
			if st := r.StatusOf(s.Run); st.Class != escrow.Unknown {
				t.Errorf("%+v", st)
			}
		})
	}
}

// faultyOnce is an asynchronous escrow service that has a fault in one lookup, and executes the call later.
type faultyOnce struct {
	*rig.Escrow
	fault func(context.Context)
	n     *atomic.Int32
}

func (f faultyOnce) Lookup(ctx context.Context, c escrow.Call) escrow.Answer {
	switch n := f.n.Add(1); {
	case n == 2:
		f.fault(ctx)
		return rig.NoAnswer()
	case n < 4:
		return rig.Accepted()
	}
	return answerExecuted(c.Amount.Minor)
}

// A lookup of an accepted call that times out or panics says nothing: the run is asked about again.
func TestAFaultOfALookupEndsNoAcceptedCall(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]func(context.Context){
		"it times out": func(ctx context.Context) { <-ctx.Done() },
		"it panics":    func(context.Context) { panic("no map") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var n atomic.Int32
			r := rig.New(t, func(c *postadjudication.Config) {
				c.TimeLimit = 5 * time.Second // on a busy machine the other calls need some of it
				c.Executor = faultyOnce{c.Executor.(*rig.Escrow), fault, &n}
			})
			r.Escrow.Answer(rig.Accepts)
			s := r.StartWorkers().MustSubmit(rig.Release(1))
			r.WaitState(s.Run, background.Succeeded)
			if n.Load() < 4 {
				t.Errorf("%d lookups", n.Load())
			}
		})
	}
}

// withoutAcceptance is an asynchronous escrow service as a process without --asynchronous sees it.
type withoutAcceptance struct{ *rig.Escrow }

func (withoutAcceptance) AcceptedFor() time.Duration { return 0 }

func (w withoutAcceptance) Lookup(ctx context.Context, c escrow.Call) escrow.Answer {
	a := w.Escrow.Lookup(ctx, c)
	a.Accepted = false
	return a
}

// A process that was started before --asynchronous was given to all of them asks on about what another has accepted.
func TestAProcessWithoutAcceptanceEndsNoAcceptedCall(t *testing.T) {
	t.Parallel()
	r, l := asynchronous(t, []escrow.Answer{rig.Accepted()})
	s := r.StartWorkers().MustSubmit(rig.Release(1))
	r.Wait("the call is accepted", func() bool { return l.count() > 2 })
	r.StopWorkers()
	r.OtherProcess(func(c *postadjudication.Config) { c.Executor = withoutAcceptance{c.Executor.(*rig.Escrow)} }).StartWorkers()
	asked := l.count()
	r.Wait("the other process asks, or the run ends", func() bool { return l.count() > asked+1 || !r.StatusOf(s.Run).State.Live() })
	if st := r.StatusOf(s.Run); !st.State.Live() {
		t.Errorf("%+v", st)
	}
}

// The service says at each lookup that it has the call. That nothing was executed, neither a finding states that does not
// confirm the call on its way, nor a lookup of a replica that lags.
func TestNobodyClearsAnAcceptedCallWithoutConfirmation(t *testing.T) {
	t.Parallel()
	r, l := asynchronous(t, []escrow.Answer{rig.Accepted()}, func(c *postadjudication.Config) {
		c.TimeLimit, c.LostAfter = 200*time.Millisecond, 3*time.Second
		c.Executor.(*rig.Escrow).Flight = time.Millisecond
	})
	s := r.StartWorkers().MustSubmit(rig.Release(1))
	r.Wait("the service is asked", func() bool { return l.count() > 0 })
	letters, finding := r.As("acme", "user:ada").DeadLetters, deadletter.Finding{Reason: "nothing came", Class: escrow.NotExecuted, Reference: "mail 3"}
	reconcile := func() (why string) {
		_, err := letters.Reconcile(t.Context(), s.Run, finding)
		var refused *refusal.RefusedError
		if !errors.As(err, &refused) || refused.Gate != refusal.GateCallOutstanding {
			t.Fatalf("a finding: %v", err)
		}
		return refused.Error()
	}
	said := reconcile()
	r.Wait("nothing but the acceptance stands against the finding", func() bool { said = reconcile(); return !strings.Contains(said, "in flight for") })
	if !strings.Contains(said, "accepted the call") {
		t.Errorf("refused for: %s", said)
	}
	r.StopWorkers()
	r.Escrow.ScriptLookups((&lookupScript{answers: []escrow.Answer{answerAbsent}}).answer)
	if _, err := letters.Lookup(t.Context(), s.Run); err == nil || r.StatusOf(s.Run).Class != escrow.Unknown {
		t.Errorf("one lookup that says not executed: %v, %+v", err, r.StatusOf(s.Run))
	}
	finding.CallOutstanding = true
	if _, err := letters.Reconcile(t.Context(), s.Run, finding); err != nil {
		t.Errorf("a finding that confirms it: %v", err)
	}
}
