package postadjudication_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/casestatus"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/internal/rig"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/settlement"
)

// slowLookup is an escrow service whose lookups return late: the answer is from when they
// began.
type slowLookup struct {
	*rig.Escrow
	duringLookup func()
}

func (e *slowLookup) Lookup(ctx context.Context, c escrow.Call) escrow.Answer {
	a := e.Escrow.Lookup(ctx, c)
	e.duringLookup()
	return a
}

// A lookup's answer does not cover a call that was made during the lookup: its outcome stays
// unknown, so that the case is not paid both ways.
func TestALookupSaysNothingOfACallThatWasMadeMeanwhile(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	e := &slowLookup{Escrow: rig.NewEscrow(), duringLookup: func() {}}
	r := rig.New(t, func(c *postadjudication.Config) { c.Executor, c.Policy.MaxDelay = e, 24*time.Hour })
	r.Escrow = e.Escrow
	r.Escrow.Script(func(_ context.Context, c escrow.Call) escrow.Answer {
		a := rig.NoAnswer()
		if c.Attempt == 1 {
			if _, err := r.As("acme", "user:ada").Breakers.Open(ctx, escrow.DefaultTarget, "looking into it"); err != nil {
				t.Error(err)
			}
			return a
		}
		r.Escrow.Pay(c, c.Amount.Minor)
		a.RetryAfter = 24 * time.Hour
		return a
	})
	s := r.StartWorkers().MustSubmit(rig.Release(1))
	r.WaitPaused()
	e.duringLookup = func() {
		if _, err := r.As("acme", "user:ada").Breakers.Release(ctx, escrow.DefaultTarget, "found out"); err != nil {
			t.Error(err)
		}
		r.WaitStatus("it was called again, and was paid", s.Run, func(s casestatus.Status) bool { return s.State == background.Scheduled && s.Attempts == 2 })
	}
	status, err := r.As("acme", "user:ada").DeadLetters.Lookup(ctx, s.Run)
	if err == nil {
		t.Errorf("the lookup cleared the outcome of a later call: %+v", status)
	}
	if now := r.CaseOf(rig.Release(1)); now.UnknownOpen != 2 || now.Runs[0].Class != escrow.Unknown {
		t.Errorf("%d attempts are unknown, the run is %s", now.UnknownOpen, now.Runs[0].Class)
	}
	if st, err := rig.CancelRun(r, s); !errors.Is(err, refusal.ErrReconcileFirst) {
		t.Errorf("a cancel of what was paid: %s, %v", st.State, err)
		r.Escrow.Script(nil)
		higher := rig.Refund(1)
		higher.Generation = 2
		t.Logf("the opposite decision: %s", r.MustSubmit(higher).Reply)
		r.WaitNoneLive()
		r.MustAudit()
		return
	}
	e.duringLookup = func() {}
	if status, err := r.As("acme", "user:ada").DeadLetters.Lookup(ctx, s.Run); err != nil || status.Progression != settlement.Settled || status.Runs[0].State != background.Succeeded {
		t.Errorf("looked up again: %+v, %v", status, err)
	}
	r.MustAudit()
}
