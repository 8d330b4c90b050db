package bulk_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"testing"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/bulk"
	"github.com/recourse-dev/recourse/postadjudication/deadletter"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/internal/rig"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/retrypolicy"
	"github.com/recourse-dev/recourse/settlement"
)

// plansNothing checks that a request selects nothing and that no plan is stored.
func plansNothing(r *rig.Rig, q bulk.Request) *bulk.NothingSelectedError {
	r.T.Helper()
	const stored = `SELECT (SELECT count(*) FROM recourse.bulks) + (SELECT count(*) FROM recourse.bulk_items) + (SELECT count(*) FROM recourse.bulk_counts)`
	before := r.Count(stored)
	b, err := r.As("acme", "user:ada").Bulk.Plan(context.Background(), q)
	var nothing *bulk.NothingSelectedError
	if !errors.As(err, &nothing) {
		r.T.Fatalf("%+v, %v", b, err)
	}
	if after := r.Count(stored); after != before {
		r.T.Errorf("%d rows are stored, %d were before", after, before)
	}
	return nothing
}

func TestABulkForkIsPlannedAndThenDoneOnce(t *testing.T) {
	t.Parallel()
	r := rig.New(t).StartWorkers()
	const n = 30
	letters := r.DeadLetters(0, n, rig.Refuses)
	q := rig.AllLetters(bulk.Fork)
	q.Policy = &retrypolicy.Policy{MaxRetryAttempts: 5}
	plan := r.MustPlan(q)
	if plan.State != bulk.Planned || plan.Items != n || plan.Ready != n || !maps.Equal(plan.Money, settlement.Sums{"EUR": settlement.SumOf(n * 1000)}) || len(plan.Refused) != 0 || plan.Progress.Pending != n {
		t.Errorf("%+v", plan)
	}
	if forked := r.CountLetters(background.LetterForked); forked != 0 {
		t.Errorf("the plan forked %d letters", forked)
	}
	b := r.RunPlan(plan)
	if b.Progress.Done != n || b.StartedBy != "user:bob" || b.Actor != "user:ada" || !maps.Equal(b.Progress.Money, plan.Money) {
		t.Errorf("%+v", b)
	}
	r.WaitNoneLive()
	plansNothing(r, q)
	if _, err := r.As("acme", "user:cem").Bulk.Run(context.Background(), plan.ID, plan.Hash); err != nil {
		t.Errorf("to start it again: %v", err)
	}
	for _, i := range r.BulkItems(plan.ID, "done") {
		made, err := r.Status(context.Background(), "acme", i.NewRun)
		if err != nil || made.State != background.Succeeded || made.Policy.MaxRetryAttempts != 5 {
			t.Errorf("%+v, %v", made, err)
		}
	}
	for _, l := range letters {
		if c, err := r.CaseByID(context.Background(), "acme", l.Case); err != nil || c.Progression != settlement.Settled || len(c.Runs) != 2 {
			t.Errorf("%+v, %v", c, err)
		}
		checkReceiptNamesPlan(r, l, plan, receipts.ManualRetryRequested)
		checkReceiptNamesPlan(r, l, plan, receipts.Replayed)
	}
	checkPlanReceipts(r, plan, "user:ada none to planned", "user:bob planned to running", "system:bulk running to done")
	r.MustAudit()
}

// checkReceiptNamesPlan checks that exactly one receipt of a subtype, with the starter as its
// actor, names the plan.
func checkReceiptNamesPlan(r *rig.Rig, l postadjudication.Submitted, b bulk.Plan, s receipts.Subtype) {
	r.T.Helper()
	n := r.CountReceipts(rig.Receipts{Case: l.Case, Subtype: s, Actor: "user:bob", Payload: map[string]any{"bulk": b.ID}})
	if n != 1 {
		r.T.Errorf("%d receipts %s of %s name the plan", n, s, l.Run)
	}
}

// checkPlanReceipts checks the receipts of the plan's own changes.
func checkPlanReceipts(r *rig.Rig, b bulk.Plan, want ...string) {
	r.T.Helper()
	rows, err := r.DB.Query(`SELECT actor || ' ' || (body::json->'payload'->>'changes') FROM recourse.receipts WHERE subtype = 'bulk-changed' AND body::json->'payload'->>'bulk' = $1 ORDER BY seq`, b.ID)
	if err != nil {
		r.T.Fatal(err)
	}
	defer rows.Close()
	var got []string
	for rows.Next() {
		var s string
		if err := rows.Scan(&s); err != nil {
			r.T.Fatal(err)
		}
		got = append(got, s)
	}
	if err := rows.Err(); err != nil || !slices.Equal(got, want) {
		r.T.Errorf("receipts of the plan: %q, want %q; %v", got, want, err)
	}
}

// containsRun reports whether a run is among items ordered by death.
func containsRun(items []bulk.Item, run background.RunID) bool {
	return slices.ContainsFunc(items, func(i bulk.Item) bool { return i.Run == run })
}

// A letter that somebody else changed between plan and run is not touched, and gates refuse
// item by item; neither stops the other items.
func TestABulkLeavesAloneWhatMovedAndWhatAGateRefuses(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	r.Escrow.SetKeyLife(1) // its keys expire at once
	r.Escrow.ScriptLookups(rig.GivesNoAnswer)
	r.StartWorkers()
	ctx := context.Background()
	letters := r.DeadLetters(0, 6, rig.Refuses)
	r.DeadLetters(6, 8, rig.GivesNoAnswer)
	plan := r.MustPlan(rig.AllLetters(bulk.Fork))
	if plan.Items != 8 || plan.Ready != 6 || plan.Refused[refusal.GateReconcileFirst] != 2 || plan.Money["EUR"] != settlement.SumOf(6000) {
		t.Errorf("%+v", plan)
	}
	r.WaitState(r.MustFork(letters[0]).Run, background.Succeeded) // before all calls are refused again
	if _, err := r.As("acme", "user:cem").DeadLetters.Hold(ctx, letters[1].Run, "a court asks"); err != nil {
		t.Fatal(err)
	}
	r.DeadLetters(8, 9, rig.Refuses) // died after the plan
	b := r.RunPlan(plan)
	if p := b.Progress; p.Done != 4 || p.PlanStale != 2 || p.Refused != 2 || p.ByGate[refusal.GateReconcileFirst] != 2 || p.Money["EUR"] != settlement.SumOf(4000) {
		t.Errorf("%+v", p)
	}
	stale := r.BulkItems(plan.ID, "plan_stale")
	if len(stale) != 2 || !containsRun(stale, letters[0].Run) || !containsRun(stale, letters[1].Run) {
		t.Errorf("%+v", stale)
	}
	for _, i := range r.BulkItems(plan.ID, "refused:reconcile_first") {
		if i.Gate != refusal.GateReconcileFirst || i.Planned != refusal.GateReconcileFirst || !i.NewRun.IsZero() {
			t.Errorf("%+v", i)
		}
	}
	if left := r.CountLetters(background.LetterOpen); left != 4 {
		t.Errorf("%d letters are open", left)
	}
	r.WaitNoneLive()
	r.MustAudit()
}

func TestEveryBulkActionDoesWhatTheOneOfALetterDoes(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	r.Escrow.ScriptLookups(rig.GivesNoAnswer)
	r.StartWorkers()
	lost := r.DeadLetters(0, 3, func(c escrow.Call) escrow.Answer { r.Escrow.Pay(c, c.Amount.Minor); return rig.NoAnswer() })
	r.Escrow.ScriptLookups(nil)
	yes := true
	for _, step := range []struct {
		q       bulk.Request
		subtype receipts.Subtype
		holds   func() bool
	}{
		{rig.AllLetters(bulk.Hold), receipts.HoldPlaced, func() bool { return len(r.Letters(deadletter.Filter{Held: &yes})) == 3 }},
		{rig.AllLetters(bulk.Release), receipts.HoldReleased, func() bool { return len(r.Letters(deadletter.Filter{Held: &yes})) == 0 }},
		{func() bulk.Request {
			q := rig.AllLetters(bulk.Mark)
			q.Review = &yes
			return q
		}(), receipts.Marked, func() bool { return len(r.Letters(deadletter.Filter{Review: &yes})) == 3 }},
		{rig.AllLetters(bulk.Reconcile), receipts.Reconciled, func() bool { return r.CountCases(rig.Cases{Progression: settlement.Settled}) == 3 }},
	} {
		b := r.RunPlan(r.MustPlan(step.q))
		if b.Progress.Done != 3 {
			t.Errorf("%s: %+v", step.q.Action, b.Progress)
		}
		for _, l := range lost {
			checkReceiptNamesPlan(r, l, b, step.subtype)
		}
		if !step.holds() {
			t.Errorf("%s did not do it", step.q.Action)
		}
	}
	gone := r.DeadLetters(3, 6, rig.Refuses)
	if _, err := r.As("acme", "user:cem").DeadLetters.Hold(context.Background(), gone[0].Run, "a court asks"); err != nil {
		t.Fatal(err)
	}
	plan := r.MustPlan(rig.AllLetters(bulk.Purge))
	if plan.Refused[refusal.GateHeld] != 1 || plan.Ready != 2 {
		t.Errorf("%+v", plan)
	}
	if b := r.RunPlan(plan); b.Progress.Done != 2 || b.Progress.ByGate[refusal.GateHeld] != 1 {
		t.Errorf("%+v", b.Progress)
	}
	checkReceiptNamesPlan(r, gone[1], plan, receipts.Purged)
	r.MustAudit()
}

func TestABulkPlanIsRefusedForWhatItDoesNotSay(t *testing.T) {
	t.Parallel()
	r := rig.New(t).StartWorkers()
	ctx := context.Background()
	for field, change := range map[string]func(*acting, *bulk.Request){
		"tenant": func(who *acting, q *bulk.Request) { who.tenant = "" },
		"actor":  func(who *acting, q *bulk.Request) { who.actor = " " },
		"reason": func(who *acting, q *bulk.Request) { q.Reason = "" },
		"action": func(who *acting, q *bulk.Request) { q.Action = "forge" },
		"filter": func(who *acting, q *bulk.Request) { q.All = false },
		"all":    func(who *acting, q *bulk.Request) { q.Filter.Currency = "EUR" },
		"letter": func(who *acting, q *bulk.Request) {
			q.All, q.Filter.Status, q.Filter.Currency = false, background.LetterForked, "EUR"
		},
		"currency": func(who *acting, q *bulk.Request) { q.All, q.Filter.Currency = false, "euro" },
		"limit":    func(who *acting, q *bulk.Request) { q.Limit = -1 },
		"parallel": func(who *acting, q *bulk.Request) { q.Parallel = 65 },
		"throttle": func(who *acting, q *bulk.Request) { q.Throttle = -1 },
		"policy": func(who *acting, q *bulk.Request) {
			q.Action, q.Policy = bulk.Hold, &retrypolicy.Policy{}
		},
		"queue": func(who *acting, q *bulk.Request) {
			q.Action, q.Queue = bulk.Hold, "settlement:0"
		},
		"marks": func(who *acting, q *bulk.Request) { q.Action = bulk.Mark },
		"policy.max_retry_attempts": func(who *acting, q *bulk.Request) {
			q.Policy = &retrypolicy.Policy{MaxRetryAttempts: 1 << 30}
		},
	} {
		q := rig.AllLetters(bulk.Fork)
		who := acting{"acme", "user:ada"}
		change(&who, &q)
		var wrong *refusal.FieldError
		if _, err := r.As(who.tenant, who.actor).Bulk.Plan(ctx, q); !errors.As(err, &wrong) || wrong.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
	if n := r.CountRows("bulks"); n != 0 {
		t.Errorf("%d plans", n)
	}
	r.DeadLetter(1, rig.Refuses)
	plan := r.MustPlan(rig.AllLetters(bulk.Fork))
	for _, tenant := range []string{"", "other"} {
		_, found := r.As(tenant, "").Bulk.Get(ctx, plan.ID)
		_, ran := r.As(tenant, "user:bob").Bulk.Run(ctx, plan.ID, plan.Hash)
		_, cancelled := r.As(tenant, "user:bob").Bulk.Cancel(ctx, plan.ID, "no")
		_, items := r.As(tenant, "").Bulk.Items(ctx, plan.ID, "", "", 10)
		for _, err := range []error{found, ran, cancelled, items} {
			if !errors.Is(err, refusal.ErrNotFound) {
				t.Errorf("tenant %q: %v", tenant, err)
			}
		}
	}
	for _, hash := range []string{"", "x", plan.Hash[:62], plan.Hash[2:] + "00"} {
		var wrong *refusal.FieldError
		if _, err := r.As("acme", "user:bob").Bulk.Run(ctx, plan.ID, hash); !errors.As(err, &wrong) || wrong.Field != "hash" {
			t.Errorf("hash %q: %v", hash, err)
		}
	}
	if b, err := r.As("acme", "").Bulk.Get(ctx, plan.ID); err != nil || b.State != bulk.Planned {
		t.Errorf("%+v, %v", b, err)
	}
}

// A plan that is done shows what became of its forks, not only that they were made.
func TestAPlanTellsWhatBecameOfItsForks(t *testing.T) {
	t.Parallel()
	r := rig.New(t).StartWorkers()
	r.DeadLetters(0, 5, rig.Refuses)
	plan := r.MustPlan(rig.AllLetters(bulk.Fork))
	if len(plan.Forks) != 0 {
		t.Errorf("before it runs: %v", plan.Forks)
	}
	var mu sync.Mutex
	var refuse []escrow.OperationKey // keys of two letters whose forks die too
	r.Escrow.Script(func(_ context.Context, c escrow.Call) escrow.Answer {
		mu.Lock()
		if len(refuse) < 2 && !slices.Contains(refuse, c.OperationKey) {
			refuse = append(refuse, c.OperationKey)
		}
		dies := slices.Contains(refuse, c.OperationKey)
		mu.Unlock()
		if dies {
			return rig.Refused()
		}
		return r.Escrow.Pay(c, c.Amount.Minor)
	})
	r.RunPlan(plan)
	r.WaitNoneLive()
	b, err := r.As("acme", "").Bulk.Get(context.Background(), plan.ID)
	if want := map[string]int64{"dead_lettered": 2, "succeeded": 3}; err != nil || b.State != bulk.Done || b.Progress.Done != 5 || !maps.Equal(b.Forks, want) {
		t.Errorf("%v, %+v", err, b)
	}
	page, err := r.As("acme", "").Bulk.List(context.Background(), bulk.Filter{}, "")
	if err != nil || len(page.Bulks) != 1 || page.Bulks[0].Forks != nil {
		t.Errorf("%v, %+v", err, page)
	}
	r.MustAudit()
}
