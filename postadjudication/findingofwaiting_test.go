package postadjudication

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication/casestatus"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/internal/casework"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/settlement"
)

// waitingUnknownRun submits an adjudication whose first call is not answered and whose next one
// is a day away; paid says whether that call paid.
func (r *rig) waitingUnknownRun(n int, paid bool) Submitted {
	r.t.Helper()
	r.escrow.mu.Lock()
	r.escrow.script = func(_ context.Context, c escrow.Call) escrow.Answer {
		if paid {
			r.escrow.pay(c, c.Amount.Minor)
		}
		return noAnswer()
	}
	r.escrow.mu.Unlock()
	s := r.mustSubmit(release(n))
	r.until("it waits", `SELECT state = 'scheduled' AND class = 'unknown' FROM recourse.runs WHERE id = $1`, s.Run.String())
	return s
}

func withDailyRetries(c *Config) { c.Policy.BaseDelay, c.Policy.MaxDelay = 24*time.Hour, 24*time.Hour }

// A person who knows what became of a waiting run's money can record it before the run dies: by
// a finding, a lookup, or a cancel after a finding of not executed.
func TestARunThatWaitsWithUnknownMoneyTakesFindingsAndLookups(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	executed := casework.Finding{Reason: "the bank's statement", Class: escrow.Executed, Moved: 1000, Reference: "stmt-7"}
	nothing := casework.Finding{Reason: "the bank's statement", Class: escrow.NotExecuted, Reference: "stmt-7"}
	for name, c := range map[string]struct {
		paid  bool
		learn func(r *rig, s Submitted) (casestatus.Case, error)
		want  background.State
	}{
		"found executed": {true, func(r *rig, s Submitted) (casestatus.Case, error) { return r.Reconcile(ctx, "acme", s.Run, executed) }, background.Succeeded},
		"found of the case": {true, func(r *rig, s Submitted) (casestatus.Case, error) {
			return r.ReconcileCase(ctx, "acme", "txr_1", executed)
		}, background.Succeeded},
		"found not executed": {false, func(r *rig, s Submitted) (casestatus.Case, error) { return r.Reconcile(ctx, "acme", s.Run, nothing) }, background.Scheduled},
		"looked up executed": {true, func(r *rig, s Submitted) (casestatus.Case, error) {
			return r.As("acme", "user:ada").DeadLetters.Lookup(ctx, s.Run)
		}, background.Succeeded},
		"looked up not executed": {false, func(r *rig, s Submitted) (casestatus.Case, error) {
			return r.As("acme", "user:ada").DeadLetters.Lookup(ctx, s.Run)
		}, background.Scheduled},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, withDailyRetries).startWorkers()
			s := r.waitingUnknownRun(1, c.paid)
			if _, err := r.cancel(s); !errors.Is(err, refusal.ErrReconcileFirst) {
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
			} else if st, err := r.cancel(s); err != nil || st.State != background.Cancelled {
				t.Errorf("a cancel after: %+v, %v", st, err)
			}
			var refused *refusal.RefusedError
			if _, err := r.Reconcile(ctx, "acme", s.Run, nothing); !errors.As(err, &refused) || refused.Gate != refusal.GateNotALetter {
				t.Errorf("a finding once nothing is unknown: %v", err)
			}
			r.mustAudit()
		})
	}
}

// An open circuit breaker does not prevent a finding about the money.
func TestARunPausedByABreakerTakesAFinding(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *Config) { c.Policy.BaseDelay, c.Policy.MaxDelay = time.Second, time.Second })
	r.escrow.script = func(_ context.Context, c escrow.Call) escrow.Answer {
		if _, err := r.As("acme", "user:ada").Breakers.Open(context.Background(), escrow.DefaultTarget, "looking into it"); err != nil {
			t.Error(err)
		}
		r.escrow.pay(c, c.Amount.Minor)
		return noAnswer()
	}
	s := r.startWorkers().mustSubmit(release(1))
	r.until("it is paused", `SELECT state = 'scheduled' AND due_at < now() FROM recourse.runs`)
	found := casework.Finding{Reason: "the bank's statement", Class: escrow.Executed, Moved: 1000, Reference: "stmt-7"}
	if status, err := r.Reconcile(context.Background(), "acme", s.Run, found); err != nil || status.Progression != settlement.Settled {
		t.Errorf("%+v, %v", status, err)
	}
	r.mustAudit()
}

// A finding about a run with an attempt in progress is refused with that reason.
func TestARunningRunTakesNoFinding(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	answer := make(chan struct{})
	r.escrow.script = func(_ context.Context, c escrow.Call) escrow.Answer {
		<-answer
		return r.escrow.pay(c, c.Amount.Minor)
	}
	s := r.startWorkers().mustSubmit(release(1))
	r.until("it runs", `SELECT state = 'running' FROM recourse.runs`)
	var refused *refusal.RefusedError
	if _, err := r.Reconcile(context.Background(), "acme", s.Run, casework.Finding{Reason: "x", Class: escrow.NotExecuted, Reference: "y"}); !errors.As(err, &refused) || refused.Gate != refusal.GateRunning {
		t.Error(err)
	}
	close(answer)
	r.untilNoneLive()
	r.mustAudit()
}
