package postadjudication

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/settlement"
)

// slowLookup is an escrow service whose lookups return late: the answer is from when they
// began.
type slowLookup struct {
	*scriptedEscrow
	duringLookup func()
}

func (e *slowLookup) Lookup(ctx context.Context, c escrow.Call) escrow.Answer {
	a := e.scriptedEscrow.Lookup(ctx, c)
	e.duringLookup()
	return a
}

// A lookup's answer does not cover a call that was made during the lookup: its outcome stays
// unknown, so that the case is not paid both ways.
func TestALookupSaysNothingOfACallThatWasMadeMeanwhile(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	e := &slowLookup{scriptedEscrow: newEscrow(), duringLookup: func() {}}
	r := newRig(t, func(c *Config) { c.Executor, c.Policy.MaxDelay = e, 24*time.Hour })
	r.escrow = e.scriptedEscrow
	r.escrow.script = func(_ context.Context, c escrow.Call) escrow.Answer {
		a := noAnswer()
		if c.Attempt == 1 {
			if _, err := r.As("acme", "user:ada").Breakers.Open(ctx, escrow.DefaultTarget, "looking into it"); err != nil {
				t.Error(err)
			}
			return a
		}
		r.escrow.pay(c, c.Amount.Minor)
		a.RetryAfter = 24 * time.Hour
		return a
	}
	s := r.startWorkers().mustSubmit(release(1))
	r.until("it is paused", `SELECT state = 'scheduled' AND due_at < now() FROM recourse.runs`)
	e.duringLookup = func() {
		if _, err := r.As("acme", "user:ada").Breakers.Release(ctx, escrow.DefaultTarget, "found out"); err != nil {
			t.Error(err)
		}
		r.until("it was called again, and was paid", `SELECT state = 'scheduled' AND attempt_count = 2 FROM recourse.runs`)
	}
	status, err := r.As("acme", "user:ada").DeadLetters.Lookup(ctx, s.Run)
	if err == nil {
		t.Errorf("the lookup cleared the outcome of a later call: %+v", status)
	}
	if now := r.caseOf(release(1)); now.UnknownOpen != 2 || now.Runs[0].Class != escrow.Unknown {
		t.Errorf("%d attempts are unknown, the run is %s", now.UnknownOpen, now.Runs[0].Class)
	}
	if st, err := r.cancel(s); !errors.Is(err, refusal.ErrReconcileFirst) {
		t.Errorf("a cancel of what was paid: %s, %v", st.State, err)
		r.escrow.script = nil
		higher := refund(1)
		higher.Generation = 2
		t.Logf("the opposite decision: %s", r.mustSubmit(higher).Reply)
		r.untilNoneLive()
		r.mustAudit()
		return
	}
	e.duringLookup = func() {}
	if status, err := r.As("acme", "user:ada").DeadLetters.Lookup(ctx, s.Run); err != nil || status.Progression != settlement.Settled || status.Runs[0].State != background.Succeeded {
		t.Errorf("looked up again: %+v, %v", status, err)
	}
	r.mustAudit()
}
