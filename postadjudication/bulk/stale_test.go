package bulk_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/bulk"
	"github.com/recourse-dev/recourse/postadjudication/casestatus"
	"github.com/recourse-dev/recourse/postadjudication/deadletter"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/internal/casework"
	"github.com/recourse-dev/recourse/postadjudication/internal/rig"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/settlement"
)

// A refusal leaves a receipt, and makes no plan stale: of one item, of many that share a commit,
// or of cases.
func TestARefusalMakesNoPlanStale(t *testing.T) {
	t.Parallel()
	r := rig.New(t).StartWorkers()
	ctx := context.Background()
	lies := func(c escrow.Call) escrow.Answer { r.Escrow.Pay(c, c.Amount.Minor); return rig.Refused() }
	found, freed := r.DeadLetter(1, lies), r.DeadLetter(2, rig.Refuses)
	forked := r.DeadLetters(3, 5, rig.Refuses)
	finding, err := r.As("acme", "user:ada").Bulk.PlanFinding(ctx, found.Run, rig.PaidFinding)
	if err != nil {
		t.Fatal(err)
	}
	free := rig.MustPlanFree(r, rig.FreeRequest("txr_2"))
	fork := r.MustPlan(bulk.Request{Filter: deadletter.Filter{Family: postadjudication.Family}, Action: bulk.Fork, Reason: "mended"})
	refusals := func(s postadjudication.Submitted) {
		t.Helper()
		if err := r.RecordRefusal(ctx, postadjudication.AccessRefusal{Tenant: "acme", Actor: "user:eve", Action: "fork", Code: "role_missing", Run: s.Run}); err != nil {
			t.Fatal(err)
		}
		if _, err := rig.CancelRun(r, s); !errors.Is(err, refusal.ErrEnded) {
			t.Fatal(err)
		}
	}
	for _, s := range append(forked, found, freed) {
		refusals(s)
		if payloads := r.Payloads(s, receipts.Refused); len(payloads) != 2 {
			t.Fatalf("%+v", payloads)
		}
	}
	for _, plan := range []bulk.Plan{finding, free} {
		if b := r.RunPlan(plan); b.Progress.Done != 1 {
			t.Errorf("%s: %+v", plan.Action, b.Progress)
		}
	}
	if b := r.RunPlan(fork); b.Progress.Done != 2 || b.Progress.PlanStale != 2 { // the other two were settled and freed since
		t.Errorf("%+v", b.Progress)
	}
	r.WaitNoneLive()
	if c := r.CaseOf(rig.Release(1)); c.Progression != settlement.Settled || c.Released != 1000 {
		t.Errorf("%+v", c.State)
	}
	r.MustAudit()
}

// A finding since the plan was made makes it stale, as does a change of the money.
func TestAFindingMakesAPlanStale(t *testing.T) {
	t.Parallel()
	r := rig.New(t).StartWorkers()
	ctx := context.Background()
	letter := r.DeadLetter(1, rig.Refuses)
	finding, err := r.As("acme", "user:ada").Bulk.PlanFinding(ctx, letter.Run, rig.PaidFinding)
	if err != nil {
		t.Fatal(err)
	}
	free := rig.MustPlanFree(r, rig.FreeRequest("txr_1"))
	none := deadletter.Finding{Reason: "the bank says no", Class: escrow.NotExecuted, Reference: "stmt-1", CallOutstanding: true}
	if _, err := r.As("acme", "user:ben").DeadLetters.Reconcile(rig.AsOnePerson(ctx), letter.Run, none); err != nil {
		t.Fatal(err)
	}
	for _, plan := range []bulk.Plan{finding, free} {
		if b := r.RunPlan(plan); b.Progress.PlanStale != 1 {
			t.Errorf("%s: %+v", plan.Action, b.Progress)
		}
	}
	r.MustAudit()
}

// An attempt of a waiting run with unknown money leaves its plan valid.
func TestAnAttemptOfAWaitingRunMakesNoFindingStale(t *testing.T) {
	t.Parallel()
	r := rig.New(t, func(c *postadjudication.Config) { c.Policy.BaseDelay = 4 * time.Second }).StartWorkers()
	ctx := context.Background()
	r.Escrow.Script(func(_ context.Context, c escrow.Call) escrow.Answer {
		r.Escrow.Pay(c, c.Amount.Minor)
		return rig.NoAnswer()
	})
	s := r.MustSubmit(rig.Release(1))
	r.WaitState(s.Run, background.Scheduled)
	plan, err := r.As("acme", "user:ada").Bulk.PlanFinding(ctx, s.Run, rig.PaidFinding)
	if err != nil {
		t.Fatal(err)
	}
	r.WaitStatus("it was tried again", s.Run, func(s casestatus.Status) bool { return s.State == background.Scheduled && s.Attempts == 2 })
	if b := r.RunPlan(plan); b.Progress.Done != 1 {
		t.Errorf("%+v", b.Progress)
	}
	if c, st := r.CaseOf(rig.Release(1)), r.StatusOf(s.Run); c.Progression != settlement.Settled || c.Released != 1000 || st.State != background.Succeeded {
		t.Errorf("%+v, %+v", c.State, st)
	}
	r.MustAudit()
}

// untilAttempts waits until a run has made a number of attempts and waits for the next one.
func untilAttempts(r *rig.Rig, s postadjudication.Submitted, attempts int) {
	r.T.Helper()
	r.WaitStatus("it is tried again", s.Run, func(s casestatus.Status) bool { return s.State == background.Scheduled && s.Attempts >= attempts })
}

// olderRuns returns two cases whose newest run is retried every second, and in each the closed run
// before it: one superseded by a higher generation, one a cancelled fork.
func olderRuns(r *rig.Rig) (older, newer []postadjudication.Submitted) {
	r.T.Helper()
	lies := func(c escrow.Call) escrow.Answer { r.Escrow.Pay(c, c.Amount.Minor); return rig.Refused() }
	superseded := r.DeadLetter(1, lies)
	letter := r.DeadLetter(2, lies)
	if _, err := r.As("acme", "user:ada").Breakers.Open(context.Background(), escrow.DefaultTarget, "stop"); err != nil {
		r.T.Fatal(err)
	}
	fork := r.MustFork(letter)
	if _, err := rig.CancelRun(r, fork); err != nil {
		r.T.Fatal(err)
	}
	if _, err := r.As("acme", "user:ada").Breakers.Release(context.Background(), escrow.DefaultTarget, "go"); err != nil {
		r.T.Fatal(err)
	}
	r.Escrow.Answer(rig.RateLimits)
	for n := 1; n <= 2; n++ {
		higher := rig.Release(n)
		higher.Generation = 2
		newer = append(newer, r.MustSubmit(higher))
	}
	for _, s := range newer {
		untilAttempts(r, s, 1)
	}
	return []postadjudication.Submitted{superseded, fork}, newer
}

// A plan about an older key stays valid when a newer run of the case gets an answer and
// waits.
func TestAttemptsOfANewerRunMakeNoFindingOfAnOlderOneStale(t *testing.T) {
	t.Parallel()
	r := rig.New(t, func(c *postadjudication.Config) {
		c.Policy.MaxRetryAttempts, c.Policy.BaseDelay, c.Policy.MaxDelay = 100, time.Second, time.Second
	}).StartWorkers()
	ctx := context.Background()
	older, newer := olderRuns(r)
	for n := range older {
		plan, err := r.As("acme", "user:ada").Bulk.PlanFinding(ctx, older[n].Run, rig.PaidFinding)
		if err != nil {
			t.Fatal(err)
		}
		untilAttempts(r, newer[n], r.StatusOf(newer[n].Run).Attempts+1)
		if b := r.RunPlan(plan); b.Progress.Done != 1 {
			t.Errorf("%+v", b.Progress)
		}
	}
	r.WaitNoneLive()
	for n := range older {
		if c, st := r.CaseOf(rig.Release(n+1)), r.StatusOf(newer[n].Run); c.Progression != settlement.DisputeReady || c.Released != 1000 || c.Reserved != 0 || st.ReasonCode != casework.ReasonPaidUnderOlderKey {
			t.Errorf("%+v, %+v", c.State, st)
		}
	}
	rig.CheckNoBreach(r)
	r.MustAudit()
}

// Nor does that run's death change it, since it keeps the reservation.
func TestTheDeathOfANewerRunMakesNoFindingOfAnOlderOneStale(t *testing.T) {
	t.Parallel()
	r := rig.New(t, func(c *postadjudication.Config) { c.Policy.MaxRetryAttempts, c.Policy.BaseDelay = 2, 2*time.Second }).StartWorkers()
	older, newer := olderRuns(r)
	var plans []bulk.Plan
	for _, s := range older {
		plan, err := r.As("acme", "user:ada").Bulk.PlanFinding(context.Background(), s.Run, rig.PaidFinding)
		if err != nil {
			t.Fatal(err)
		}
		plans = append(plans, plan)
	}
	r.WaitNoneLive()
	for n, plan := range plans {
		if b := r.RunPlan(plan); b.Progress.Done != 1 {
			t.Errorf("%+v", b.Progress)
		}
		if c := r.CaseOf(rig.Release(n + 1)); c.Released != 1000 || c.Reserved != 0 || r.LetterStatus(newer[n]) != background.LetterOpen {
			t.Errorf("%+v", c.State)
		}
	}
	rig.CheckNoBreach(r)
	r.MustAudit()
}

// A payment or an unknown outcome of the newer run makes the plan stale, as does a person's action on it.
func TestMoneyOfANewerRunMakesAFindingOfAnOlderOneStale(t *testing.T) {
	t.Parallel()
	for name, between := range map[string]func(*rig.Rig, postadjudication.Submitted){
		"a finding": func(r *rig.Rig, newer postadjudication.Submitted) {
			found := rig.PaidFinding
			found.Reference = "stmt-8"
			if _, err := r.Reconcile(context.Background(), "acme", newer.Run, found); err != nil {
				r.T.Error(err)
			}
		},
		"a cancel": func(r *rig.Rig, newer postadjudication.Submitted) {
			if _, err := rig.CancelRun(r, newer); err != nil {
				r.T.Error(err)
			}
		},
		"a success": func(r *rig.Rig, _ postadjudication.Submitted) {
			r.Escrow.Script(nil)
			r.WaitNoneLive()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			delay := time.Minute // so that the run waits during the action
			if name == "a success" {
				delay = time.Second
			}
			r := rig.New(t, func(c *postadjudication.Config) {
				c.Policy.MaxRetryAttempts, c.Policy.BaseDelay, c.Policy.MaxDelay = 100, delay, delay
			}).StartWorkers()
			r.Escrow.ScriptLookups(rig.GivesNoAnswer)
			superseded := r.DeadLetter(1, rig.Refuses)
			answer := rig.RateLimited()
			if name == "a finding" {
				answer = rig.NoAnswer() // a waiting run accepts a finding only while its money is unknown
			}
			r.Escrow.Script(func(_ context.Context, c escrow.Call) escrow.Answer {
				if answer.Class == escrow.Unknown {
					r.Escrow.Pay(c, c.Amount.Minor)
				}
				return answer
			})
			higher := rig.Release(1)
			higher.Generation = 2
			newer := r.MustSubmit(higher)
			untilAttempts(r, newer, 1)
			plan, err := r.As("acme", "user:ada").Bulk.PlanFinding(context.Background(), superseded.Run, rig.PaidFinding)
			if err != nil {
				t.Fatal(err)
			}
			between(r, newer)
			if b := r.RunPlan(plan); b.Progress.PlanStale != 1 {
				t.Errorf("%+v", b.Progress)
			}
			if payloads := r.Payloads(superseded, receipts.Reconciled); name != "a finding" && len(payloads) != 0 || name == "a finding" && len(payloads) != 1 {
				t.Errorf("%+v", payloads)
			}
			r.MustAudit()
		})
	}
}

// A finding for a running run waits for the end of the call, and says so. It does not block other
// plans.
func TestAFindingWaitsForTheEndOfACall(t *testing.T) {
	t.Parallel()
	r := rig.New(t, func(c *postadjudication.Config) { c.Policy.BaseDelay, c.TimeLimit = 4*time.Second, time.Minute }).StartWorkers()
	ctx := context.Background()
	other := r.DeadLetter(9, rig.Refuses)
	answer := make(chan struct{})
	r.Escrow.Script(func(_ context.Context, c escrow.Call) escrow.Answer {
		if c.Attempt > 1 {
			<-answer
		}
		r.Escrow.Pay(c, c.Amount.Minor)
		return rig.NoAnswer()
	})
	var plans []bulk.Plan
	for n := range bulk.MaxRunning {
		s := r.MustSubmit(rig.Release(n))
		r.WaitState(s.Run, background.Scheduled)
		plan, err := r.As("acme", "user:ada").Bulk.PlanFinding(ctx, s.Run, rig.PaidFinding)
		if err != nil {
			t.Fatal(err)
		}
		plans = append(plans, plan)
	}
	r.WaitRuns(len(plans), rig.Runs{State: background.Running})
	for _, plan := range plans {
		if _, err := r.As("acme", "user:bob").Bulk.Run(ctx, plan.ID, plan.Hash); err != nil {
			t.Fatal(err)
		}
	}
	hold := rig.AllLetters(bulk.Hold)
	hold.All, hold.Filter.Transaction = false, rig.Release(9).TransactionReceiptID
	if b := r.RunPlan(r.MustPlan(hold)); b.Progress.Done != 1 || b.Items != 1 {
		t.Errorf("another plan, of %s: %+v", other.Run, b.Progress)
	}
	for _, plan := range plans {
		if items := r.BulkItems(plan.ID, ""); len(items) != 1 || items[0].Outcome != bulk.OutcomePending || items[0].WaitsFor != refusal.GateRunning {
			t.Errorf("%+v", items)
		}
	}
	close(answer)
	for _, plan := range plans {
		if b := r.WaitPlan(plan.ID); b.Progress.Done != 1 {
			t.Errorf("%+v", b.Progress)
		}
	}
	r.WaitNoneLive()
	r.MustAudit()
}
