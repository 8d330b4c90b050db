package postadjudication

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/receipts"
)

// Of a run with many attempts, the late refusal of one says nothing of the call of
// another, however far apart they are: a lookup is not believed until both have come back,
// and what the other paid meanwhile is a fact.
func TestCallsOfAttemptsFarApartAreToldFromEachOther(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *Config) {
		c.TimeLimit = 60 * time.Millisecond
		c.Policy.MaxRetryAttempts, c.Policy.BaseDelay, c.Policy.MaxDelay = 64, time.Microsecond, time.Microsecond
	})
	one, last := make(chan struct{}), make(chan struct{})
	r.escrow.script = func(_ context.Context, c Call) Answer {
		switch c.Attempt {
		case 1:
			<-one
			return r.escrow.pay(c, c.Amount.Minor)
		case 64:
			<-last
			return refused()
		}
		return busy429()
	}
	s := r.startWorkers().mustSubmit(release(1))
	r.until("letter", `SELECT EXISTS (SELECT FROM recourse.runs WHERE letter = 'open')`)
	close(last)
	r.until("the last call came back", `SELECT EXISTS (SELECT FROM recourse.receipts WHERE subtype = 'answered-late')`)
	ctx := context.Background()
	var refusal *RefusedError
	if _, err := r.ReconcileByLookup(ctx, "acme", s.Run, "user:ada"); !errors.As(err, &refusal) || refusal.Gate != GateReconcileFirst {
		t.Errorf("a lookup while the call of attempt 1 is out: %v", err)
	}
	opposite := refund(1)
	opposite.Generation = 2
	if got := r.mustSubmit(opposite); got.Reply != ReconcileFirst {
		t.Errorf("the opposite while the call of attempt 1 is out: %s", got.Reply)
	}
	r.mustAudit()
	close(one)
	r.until("the payment is on record", `SELECT EXISTS (SELECT FROM recourse.cases WHERE progression = 'settled' AND released = 1000)`)
	r.until("nothing is out", `SELECT outstanding_calls IS NULL FROM recourse.runs`)
	r.mustAudit()
}

// A target that lets call after call hang is not called for ever: the run waits, says why,
// and goes on when a call comes back.
func TestARunOfWhichTooManyCallsAreOutWaitsAndSaysSo(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *Config) {
		c.TimeLimit = 20 * time.Millisecond
		c.Policy.MaxRetryAttempts, c.Policy.BaseDelay, c.Policy.MaxDelay = 40, time.Microsecond, time.Microsecond
	})
	hang := make(chan struct{})
	r.escrow.script = func(_ context.Context, c Call) Answer {
		<-hang
		return refused()
	}
	s := r.startWorkers().mustSubmit(release(1))
	r.until("many calls are out", `SELECT cardinality(outstanding_calls) = 16 AND state = 'scheduled' FROM recourse.runs`)
	ctx := context.Background()
	st, err := r.Status(ctx, "acme", s.Run)
	if err != nil || st.WaitsFor != WaitsForCalls || len(st.OutstandingCalls) != background.MaxOutstandingCalls {
		t.Errorf("%+v, %v", st, err)
	}
	seen, err := r.journal.Snapshot(ctx, s.Run)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.claimRun(seen.Run); !errors.Is(err, background.ErrTooManyOutstandingCalls) {
		t.Errorf("a claim beside them: %v", err)
	}
	r.mustAudit()
	close(hang)
	r.until("all came back", `SELECT outstanding_calls IS NULL FROM recourse.runs`)
	if st, err = r.Status(ctx, "acme", s.Run); err != nil || st.WaitsFor != WaitsForTurn || st.Attempts != background.MaxOutstandingCalls {
		t.Errorf("%+v, %v", st, err)
	}
	r.mustAudit()
}

// claimRun records a claim of a run, as a worker does.
func (r *rig) claimRun(run background.Run) (background.Run, error) {
	r.t.Helper()
	session := newID()
	if err := r.journal.Register(context.Background(), background.Session{ID: session, Worker: "lost"}); err != nil {
		r.t.Fatal(err)
	}
	m := background.Transition{ID: newID(), Run: run, Event: receipts.AttemptStarted, At: r.now(), Worker: "lost", Token: newID(), Session: session}
	return r.settlements.Record(context.Background(), m)
}
