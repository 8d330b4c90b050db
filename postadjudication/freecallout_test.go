package postadjudication

import (
	"context"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/settlement"
)

// What is reserved stays so while a call of any run of the case is out, whatever somebody found
// out of its last run: that call may pay yet.
func TestNothingIsFreedWhileACallOfTheParentIsOut(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	r := newRig(t, func(c *Config) { c.TimeLimit, c.Policy.MaxRetryAttempts = 100*time.Millisecond, 1 })
	answer, hangs := make(chan struct{}), r.mustSubmit(release(1))
	r.escrow.script = func(_ context.Context, c Call) Answer {
		if c.Run != hangs.Run {
			return refused()
		}
		<-answer
		return r.escrow.pay(c, c.Amount.Minor)
	}
	r.startWorkers()
	letter := func(s Submitted) {
		t.Helper()
		r.until("it is a letter", `SELECT EXISTS (SELECT FROM recourse.runs WHERE id = $1 AND letter = 'open')`, s.Run.String())
	}
	letter(hangs)
	fork, err := r.Fork(ctx, "acme", hangs.Run, forkRequest)
	if err != nil {
		t.Fatal(err)
	}
	letter(fork)
	found := Finding{Actor: "user:ada", Reason: "the bank's statement", Class: NotExecuted, Reference: "stmt-7", CallOutstanding: true}
	if _, err := r.Reconcile(ctx, "acme", fork.Run, found); err != nil {
		t.Fatal(err)
	}
	plan := r.mustPlanFree(freeRequest("txr_1"))
	if plan.Ready != 0 || plan.Refused[GateCallOutstanding] != 1 {
		t.Errorf("planned: %+v", plan)
	}
	if b := r.runPlan(plan); b.Progress.Refused != 1 || b.Progress.ByGate[GateCallOutstanding] != 1 {
		t.Errorf("run: %+v", b.Progress)
	}
	close(answer)
	r.until("the late payment is told", `SELECT EXISTS (SELECT FROM recourse.receipts WHERE subtype = 'answered-late')`)
	if c := r.caseOf(release(1)); c.Progression != settlement.Settled || c.Released != 1000 || c.Excess != 0 {
		t.Errorf("%+v", c)
	}
	r.mustAudit()
}
