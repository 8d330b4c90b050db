package postadjudication

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication/deadletter"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/internal/casework"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/settlement"
)

// A refusal leaves a receipt, and makes no plan stale: of one item, of many that share a commit,
// or of cases.
func TestARefusalMakesNoPlanStale(t *testing.T) {
	t.Parallel()
	r := newRig(t).startWorkers()
	ctx := context.Background()
	lies := func(c escrow.Call) escrow.Answer { r.escrow.pay(c, c.Amount.Minor); return refused() }
	found, freed := r.deadLetter(1, lies), r.deadLetter(2, func(escrow.Call) escrow.Answer { return refused() })
	forked := r.deadLetters(3, 5, func(escrow.Call) escrow.Answer { return refused() })
	finding, err := r.As("acme", "user:ada").Bulk.PlanFinding(ctx, found.Run, paidFinding)
	if err != nil {
		t.Fatal(err)
	}
	free := r.mustPlanFree(freeRequest("txr_2"))
	fork := r.mustPlan(BulkRequest{Filter: deadletter.Filter{Family: casework.Family}, Action: BulkFork, Reason: "mended"})
	refusals := func(s Submitted) {
		t.Helper()
		if err := r.RecordRefusal(ctx, AccessRefusal{Tenant: "acme", Actor: "user:eve", Action: "fork", Rule: "role_missing", Run: s.Run}); err != nil {
			t.Fatal(err)
		}
		if _, err := r.cancel(s); !errors.Is(err, refusal.ErrEnded) {
			t.Fatal(err)
		}
	}
	for _, s := range append(forked, found, freed) {
		refusals(s)
		if payloads := r.payloadsOf(s, receipts.Refused); len(payloads) != 2 {
			t.Fatalf("%+v", payloads)
		}
	}
	for _, plan := range []Bulk{finding, free} {
		if b := r.runPlan(plan); b.Progress.Done != 1 {
			t.Errorf("%s: %+v", plan.Action, b.Progress)
		}
	}
	if b := r.runPlan(fork); b.Progress.Done != 2 || b.Progress.PlanStale != 2 { // the other two were settled and freed since
		t.Errorf("%+v", b.Progress)
	}
	r.untilNoneLive()
	if c := r.caseOf(release(1)); c.Progression != settlement.Settled || c.Released != 1000 {
		t.Errorf("%+v", c.State)
	}
	r.mustAudit()
}

// A finding since the plan was made makes it stale, as does a change of the money.
func TestAFindingMakesAPlanStale(t *testing.T) {
	t.Parallel()
	r := newRig(t).startWorkers()
	ctx := context.Background()
	letter := r.deadLetter(1, func(escrow.Call) escrow.Answer { return refused() })
	finding, err := r.As("acme", "user:ada").Bulk.PlanFinding(ctx, letter.Run, paidFinding)
	if err != nil {
		t.Fatal(err)
	}
	free := r.mustPlanFree(freeRequest("txr_1"))
	none := casework.Finding{Reason: "the bank says no", Class: escrow.NotExecuted, Reference: "stmt-1", CallOutstanding: true}
	if _, err := r.As("acme", "user:ben").DeadLetters.Reconcile(asOnePerson(ctx), letter.Run, none); err != nil {
		t.Fatal(err)
	}
	for _, plan := range []Bulk{finding, free} {
		if b := r.runPlan(plan); b.Progress.PlanStale != 1 {
			t.Errorf("%s: %+v", plan.Action, b.Progress)
		}
	}
	r.mustAudit()
}

// An attempt of a waiting run with unknown money leaves its plan valid.
func TestAnAttemptOfAWaitingRunMakesNoFindingStale(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *Config) { c.Policy.BaseDelay = 4 * time.Second }).startWorkers()
	ctx := context.Background()
	r.escrow.script = func(_ context.Context, c escrow.Call) escrow.Answer {
		r.escrow.pay(c, c.Amount.Minor)
		return noAnswer()
	}
	s := r.mustSubmit(release(1))
	r.until("it waits", `SELECT EXISTS (SELECT FROM recourse.runs WHERE state = 'scheduled')`)
	plan, err := r.As("acme", "user:ada").Bulk.PlanFinding(ctx, s.Run, paidFinding)
	if err != nil {
		t.Fatal(err)
	}
	r.until("it was tried again", `SELECT EXISTS (SELECT FROM recourse.runs WHERE state = 'scheduled' AND attempt_count = 2)`)
	if b := r.runPlan(plan); b.Progress.Done != 1 {
		t.Errorf("%+v", b.Progress)
	}
	if c, st := r.caseOf(release(1)), r.status(s.Run); c.Progression != settlement.Settled || c.Released != 1000 || st.State != background.Succeeded {
		t.Errorf("%+v, %+v", c.State, st)
	}
	r.mustAudit()
}

// untilAttempts waits until a run has made a number of attempts and waits for the next one.
func (r *rig) untilAttempts(s Submitted, attempts int) {
	r.t.Helper()
	r.until("it is tried again", `SELECT state = 'scheduled' AND attempt_count >= $2 FROM recourse.runs WHERE id = $1`, s.Run.String(), attempts)
}

// olderRuns returns two cases whose newest run is retried every second, and in each the closed run
// before it: one superseded by a higher generation, one a cancelled fork.
func (r *rig) olderRuns() (older, newer []Submitted) {
	r.t.Helper()
	lies := func(c escrow.Call) escrow.Answer { r.escrow.pay(c, c.Amount.Minor); return refused() }
	superseded := r.deadLetter(1, lies)
	letter := r.deadLetter(2, lies)
	if _, err := r.As("acme", "user:ada").Breakers.Open(context.Background(), escrow.DefaultTarget, "stop"); err != nil {
		r.t.Fatal(err)
	}
	fork := r.mustFork(letter)
	if _, err := r.cancel(fork); err != nil {
		r.t.Fatal(err)
	}
	if _, err := r.As("acme", "user:ada").Breakers.Release(context.Background(), escrow.DefaultTarget, "go"); err != nil {
		r.t.Fatal(err)
	}
	r.escrow.mu.Lock()
	r.escrow.script = func(context.Context, escrow.Call) escrow.Answer { return busy429() }
	r.escrow.mu.Unlock()
	for n := 1; n <= 2; n++ {
		higher := release(n)
		higher.Generation = 2
		newer = append(newer, r.mustSubmit(higher))
	}
	for _, s := range newer {
		r.untilAttempts(s, 1)
	}
	return []Submitted{superseded, fork}, newer
}

// A plan about an older key stays valid when a newer run of the case gets an answer and
// waits.
func TestAttemptsOfANewerRunMakeNoFindingOfAnOlderOneStale(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *Config) {
		c.Policy.MaxRetryAttempts, c.Policy.BaseDelay, c.Policy.MaxDelay = 100, time.Second, time.Second
	}).startWorkers()
	ctx := context.Background()
	older, newer := r.olderRuns()
	for n := range older {
		plan, err := r.As("acme", "user:ada").Bulk.PlanFinding(ctx, older[n].Run, paidFinding)
		if err != nil {
			t.Fatal(err)
		}
		r.untilAttempts(newer[n], r.status(newer[n].Run).Attempts+1)
		if b := r.runPlan(plan); b.Progress.Done != 1 {
			t.Errorf("%+v", b.Progress)
		}
	}
	r.untilNoneLive()
	for n := range older {
		if c, st := r.caseOf(release(n+1)), r.status(newer[n].Run); c.Progression != settlement.DisputeReady || c.Released != 1000 || c.Reserved != 0 || st.ReasonCode != casework.ReasonPaidUnderOlderKey {
			t.Errorf("%+v, %+v", c.State, st)
		}
	}
	r.checkNoBreach()
	r.mustAudit()
}

// Nor does that run's death change it, since it keeps the reservation.
func TestTheDeathOfANewerRunMakesNoFindingOfAnOlderOneStale(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *Config) { c.Policy.MaxRetryAttempts, c.Policy.BaseDelay = 2, 2*time.Second }).startWorkers()
	older, newer := r.olderRuns()
	var plans []Bulk
	for _, s := range older {
		plan, err := r.As("acme", "user:ada").Bulk.PlanFinding(context.Background(), s.Run, paidFinding)
		if err != nil {
			t.Fatal(err)
		}
		plans = append(plans, plan)
	}
	r.untilNoneLive()
	for n, plan := range plans {
		if b := r.runPlan(plan); b.Progress.Done != 1 {
			t.Errorf("%+v", b.Progress)
		}
		if c := r.caseOf(release(n + 1)); c.Released != 1000 || c.Reserved != 0 || r.letterStatus(newer[n]) != background.LetterOpen {
			t.Errorf("%+v", c.State)
		}
	}
	r.checkNoBreach()
	r.mustAudit()
}

// A payment or an unknown outcome of the newer run makes the plan stale, as does a person's action on it.
func TestMoneyOfANewerRunMakesAFindingOfAnOlderOneStale(t *testing.T) {
	t.Parallel()
	for name, between := range map[string]func(*rig, Submitted){
		"a finding": func(r *rig, newer Submitted) {
			found := paidFinding
			found.Reference = "stmt-8"
			if _, err := r.Reconcile(context.Background(), "acme", newer.Run, found); err != nil {
				r.t.Error(err)
			}
		},
		"a cancel": func(r *rig, newer Submitted) {
			if _, err := r.cancel(newer); err != nil {
				r.t.Error(err)
			}
		},
		"a success": func(r *rig, _ Submitted) {
			r.escrow.mu.Lock()
			r.escrow.script = nil
			r.escrow.mu.Unlock()
			r.untilNoneLive()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			delay := time.Minute // so that the run waits during the action
			if name == "a success" {
				delay = time.Second
			}
			r := newRig(t, func(c *Config) { c.Policy.MaxRetryAttempts, c.Policy.BaseDelay, c.Policy.MaxDelay = 100, delay, delay }).startWorkers()
			r.escrow.lookup = func(escrow.Call) escrow.Answer { return noAnswer() }
			superseded := r.deadLetter(1, func(escrow.Call) escrow.Answer { return refused() })
			answer := busy429()
			if name == "a finding" {
				answer = noAnswer() // a waiting run accepts a finding only while its money is unknown
			}
			r.escrow.mu.Lock()
			r.escrow.script = func(_ context.Context, c escrow.Call) escrow.Answer {
				if answer.Class == escrow.Unknown {
					r.escrow.pay(c, c.Amount.Minor)
				}
				return answer
			}
			r.escrow.mu.Unlock()
			higher := release(1)
			higher.Generation = 2
			newer := r.mustSubmit(higher)
			r.untilAttempts(newer, 1)
			plan, err := r.As("acme", "user:ada").Bulk.PlanFinding(context.Background(), superseded.Run, paidFinding)
			if err != nil {
				t.Fatal(err)
			}
			between(r, newer)
			if b := r.runPlan(plan); b.Progress.PlanStale != 1 {
				t.Errorf("%+v", b.Progress)
			}
			if payloads := r.payloadsOf(superseded, receipts.Reconciled); name != "a finding" && len(payloads) != 0 || name == "a finding" && len(payloads) != 1 {
				t.Errorf("%+v", payloads)
			}
			r.mustAudit()
		})
	}
}

// A finding for a running run waits for the end of the call, and says so. It does not block other
// plans.
func TestAFindingWaitsForTheEndOfACall(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *Config) { c.Policy.BaseDelay, c.TimeLimit = 4*time.Second, time.Minute }).startWorkers()
	ctx := context.Background()
	other := r.deadLetter(9, func(escrow.Call) escrow.Answer { return refused() })
	answer := make(chan struct{})
	r.escrow.mu.Lock()
	r.escrow.script = func(_ context.Context, c escrow.Call) escrow.Answer {
		if c.Attempt > 1 {
			<-answer
		}
		r.escrow.pay(c, c.Amount.Minor)
		return noAnswer()
	}
	r.escrow.mu.Unlock()
	var plans []Bulk
	for n := range maxRunningBulks {
		s := r.mustSubmit(release(n))
		r.until("it waits", `SELECT EXISTS (SELECT FROM recourse.runs WHERE id = $1 AND state = 'scheduled')`, s.Run.String())
		plan, err := r.As("acme", "user:ada").Bulk.PlanFinding(ctx, s.Run, paidFinding)
		if err != nil {
			t.Fatal(err)
		}
		plans = append(plans, plan)
	}
	r.until("all are called", `SELECT count(*) = $1 FROM recourse.runs WHERE state = 'running'`, len(plans))
	for _, plan := range plans {
		if _, err := r.As("acme", "user:bob").Bulk.Run(ctx, plan.ID, plan.Hash); err != nil {
			t.Fatal(err)
		}
	}
	hold := allLetters(BulkHold)
	hold.All, hold.Filter.Transaction = false, release(9).TransactionReceiptID
	if b := r.runPlan(r.mustPlan(hold)); b.Progress.Done != 1 || b.Items != 1 {
		t.Errorf("another plan, of %s: %+v", other.Run, b.Progress)
	}
	for _, plan := range plans {
		if items := r.bulkItems(plan.ID, ""); len(items) != 1 || items[0].Outcome != OutcomePending || items[0].WaitsFor != refusal.GateRunning {
			t.Errorf("%+v", items)
		}
	}
	close(answer)
	for _, plan := range plans {
		if b := r.untilPlanDone(plan.ID); b.Progress.Done != 1 {
			t.Errorf("%+v", b.Progress)
		}
	}
	r.untilNoneLive()
	r.mustAudit()
}
