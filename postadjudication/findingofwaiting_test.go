package postadjudication_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/casestatus"
	"github.com/recourse-dev/recourse/postadjudication/deadletter"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/internal/rig"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/settlement"
)

// waitingUnknownRun submits an adjudication whose first call is not answered and whose next one
// is a day away; paid says whether that call paid.
func waitingUnknownRun(r *rig.Rig, n int, paid bool) postadjudication.Submitted {
	r.T.Helper()
	r.Escrow.Script(func(_ context.Context, c escrow.Call) escrow.Answer {
		if paid {
			r.Escrow.Pay(c, c.Amount.Minor)
		}
		return rig.NoAnswer()
	})
	s := r.MustSubmit(rig.Release(n))
	r.WaitStatus("it waits, its outcome unknown", s.Run, func(s casestatus.Status) bool {
		return s.State == background.Scheduled && s.Class == escrow.Unknown
	})
	return s
}

func withDailyRetries(c *postadjudication.Config) {
	c.Policy.BaseDelay, c.Policy.MaxDelay = 24*time.Hour, 24*time.Hour
}

// A person who knows what became of a waiting run's money can record it before the run dies: by
// a finding, a lookup, or a cancel after a finding of not executed.
func TestARunThatWaitsWithUnknownMoneyTakesFindingsAndLookups(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	executed := deadletter.Finding{Reason: "the bank's statement", Class: escrow.Executed, Moved: 1000, Reference: "stmt-7"}
	nothing := deadletter.Finding{Reason: "the bank's statement", Class: escrow.NotExecuted, Reference: "stmt-7"}
	for name, c := range map[string]struct {
		paid  bool
		learn func(r *rig.Rig, s postadjudication.Submitted) (casestatus.Case, error)
		want  background.State
	}{
		"found executed": {true, func(r *rig.Rig, s postadjudication.Submitted) (casestatus.Case, error) {
			return r.Reconcile(ctx, "acme", s.Run, executed)
		}, background.Succeeded},
		"found of the case": {true, func(r *rig.Rig, s postadjudication.Submitted) (casestatus.Case, error) {
			return r.ReconcileCase(ctx, "acme", "txr_1", executed)
		}, background.Succeeded},
		"found not executed": {false, func(r *rig.Rig, s postadjudication.Submitted) (casestatus.Case, error) {
			return r.Reconcile(ctx, "acme", s.Run, nothing)
		}, background.Scheduled},
		"looked up executed": {true, func(r *rig.Rig, s postadjudication.Submitted) (casestatus.Case, error) {
			return r.As("acme", "user:ada").DeadLetters.Lookup(ctx, s.Run)
		}, background.Succeeded},
		"looked up not executed": {false, func(r *rig.Rig, s postadjudication.Submitted) (casestatus.Case, error) {
			return r.As("acme", "user:ada").DeadLetters.Lookup(ctx, s.Run)
		}, background.Scheduled},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := rig.New(t, withDailyRetries).StartWorkers()
			s := waitingUnknownRun(r, 1, c.paid)
			if _, err := rig.CancelRun(r, s); !errors.Is(err, refusal.ErrReconcileFirst) {
				t.Errorf("a cancel before: %v", err)
			}
			status, err := c.learn(r, s)
			if err != nil || status.UnknownOpen != 0 || status.Runs[0].State != c.want {
				t.Fatalf("%+v, %v", status, err)
			}
			if c.paid {
				if status.Progression != settlement.Settled || status.Released != 1000 {
					t.Errorf("%+v", status)
				}
			} else if st, err := rig.CancelRun(r, s); err != nil || st.State != background.Cancelled {
				t.Errorf("a cancel after: %+v, %v", st, err)
			}
			var refused *refusal.RefusedError
			if _, err := r.Reconcile(ctx, "acme", s.Run, nothing); !errors.As(err, &refused) || refused.Gate != refusal.GateNotALetter {
				t.Errorf("a finding once nothing is unknown: %v", err)
			}
			r.MustAudit()
		})
	}
}

// An open circuit breaker does not prevent a finding about the money.
func TestARunPausedByABreakerTakesAFinding(t *testing.T) {
	t.Parallel()
	r := rig.New(t, func(c *postadjudication.Config) { c.Policy.BaseDelay, c.Policy.MaxDelay = time.Second, time.Second })
	r.Escrow.Script(func(_ context.Context, c escrow.Call) escrow.Answer {
		if _, err := r.As("acme", "user:ada").Breakers.Open(context.Background(), escrow.DefaultTarget, "looking into it"); err != nil {
			t.Error(err)
		}
		r.Escrow.Pay(c, c.Amount.Minor)
		return rig.NoAnswer()
	})
	s := r.StartWorkers().MustSubmit(rig.Release(1))
	r.WaitPaused()
	found := deadletter.Finding{Reason: "the bank's statement", Class: escrow.Executed, Moved: 1000, Reference: "stmt-7"}
	if status, err := r.Reconcile(context.Background(), "acme", s.Run, found); err != nil || status.Progression != settlement.Settled {
		t.Errorf("%+v, %v", status, err)
	}
	r.MustAudit()
}

// A finding about a run with an attempt in progress is refused with that reason.
func TestARunningRunTakesNoFinding(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	answer := make(chan struct{})
	r.Escrow.Script(func(_ context.Context, c escrow.Call) escrow.Answer {
		<-answer
		return r.Escrow.Pay(c, c.Amount.Minor)
	})
	s := r.StartWorkers().MustSubmit(rig.Release(1))
	r.WaitState(s.Run, background.Running)
	var refused *refusal.RefusedError
	if _, err := r.Reconcile(context.Background(), "acme", s.Run, deadletter.Finding{Reason: "x", Class: escrow.NotExecuted, Reference: "y"}); !errors.As(err, &refused) || refused.Gate != refusal.GateRunning {
		t.Error(err)
	}
	close(answer)
	r.WaitNoneLive()
	r.MustAudit()
}

// A cancel that was asked for during a call of unknown outcome is made once nothing was found to be paid: no further
// call is made.
func TestACancelThatWasAskedForIsMadeOnceNothingIsFoundPaid(t *testing.T) {
	t.Parallel()
	r := rig.New(t, withDailyRetries).StartWorkers()
	r.Escrow.Answer(func(c escrow.Call) escrow.Answer {
		if _, err := r.As("acme", "user:ada").Cases.Cancel(context.Background(), c.Run, "the parties agreed"); err != nil {
			t.Error(err)
		}
		return rig.NoAnswer()
	})
	s := r.MustSubmit(rig.Release(1))
	r.WaitStatus("it waits, its outcome unknown", s.Run, func(s casestatus.Status) bool {
		return s.State == background.Scheduled && s.Class == escrow.Unknown && s.CancelRequested
	})
	if _, err := r.As("acme", "user:bob").DeadLetters.Lookup(context.Background(), s.Run); err != nil {
		t.Error(err)
	}
	if st := r.StatusOf(s.Run); st.State != background.Cancelled {
		t.Errorf("%+v", st)
	}
	if c := r.CaseOf(rig.Release(1)); c.Progression != settlement.ReviewNeeded || c.Reserved != 0 {
		t.Errorf("%+v", c)
	}
	if again := r.MustSubmit(rig.Release(1)); again.Reply != postadjudication.Cancelled || again.Actor != "user:ada" || again.Reason != "the parties agreed" {
		t.Errorf("%+v", again)
	}
	r.MustAudit()
}
