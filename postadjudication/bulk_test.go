package postadjudication

import (
	"context"
	"errors"
	"maps"
	"slices"
	"testing"

	"github.com/google/uuid"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/retrypolicy"
	"github.com/recourse-dev/recourse/settlement"
)

// deadLetters creates open letters by giving every call the same answer.
func (r *rig) deadLetters(from, to int, answer func(escrow.Call) escrow.Answer) (letters []Submitted) {
	r.t.Helper()
	r.escrow.mu.Lock()
	r.escrow.script = func(_ context.Context, c escrow.Call) escrow.Answer { return answer(c) }
	r.escrow.mu.Unlock()
	for n := from; n < to; n++ {
		letters = append(letters, r.mustSubmit(release(n)))
	}
	r.untilNoneLive()
	r.escrow.mu.Lock()
	r.escrow.script = nil
	r.escrow.mu.Unlock()
	return letters
}

func allLetters(a BulkAction) BulkRequest {
	return BulkRequest{All: true, Action: a, Reason: "the escrow service was mended"}
}

func (r *rig) mustPlan(q BulkRequest) Bulk {
	r.t.Helper()
	b, err := r.As("acme", "user:ada").Bulk.Plan(context.Background(), q)
	if err != nil {
		r.t.Fatal(err)
	}
	return b
}

// plansNothing checks that a request selects nothing and that no plan is stored.
func (r *rig) plansNothing(q BulkRequest) *NothingSelectedError {
	r.t.Helper()
	const stored = `SELECT (SELECT count(*) FROM recourse.bulks) + (SELECT count(*) FROM recourse.bulk_items) + (SELECT count(*) FROM recourse.bulk_counts)`
	before := r.count(stored)
	b, err := r.As("acme", "user:ada").Bulk.Plan(context.Background(), q)
	var nothing *NothingSelectedError
	if !errors.As(err, &nothing) {
		r.t.Fatalf("%+v, %v", b, err)
	}
	if after := r.count(stored); after != before {
		r.t.Errorf("%d rows are stored, %d were before", after, before)
	}
	return nothing
}

// runPlan starts a plan under another name and waits for its end.
func (r *rig) runPlan(b Bulk) Bulk {
	r.t.Helper()
	if _, err := r.As(b.Tenant, "user:bob").Bulk.Run(context.Background(), b.ID, b.Hash); err != nil {
		r.t.Fatal(err)
	}
	return r.untilPlanDone(b.ID)
}

func (r *rig) untilPlanDone(id uuid.UUID) Bulk {
	r.t.Helper()
	r.until("the plan is done", `SELECT state = 'done' FROM recourse.bulks WHERE id = $1`, id)
	b, err := r.As("acme", "").Bulk.Get(context.Background(), id)
	if err != nil {
		r.t.Fatal(err)
	}
	p := b.Progress
	if p.Pending+p.Done+p.Refused+p.PlanStale+p.Failed != b.Items {
		r.t.Errorf("the counts %+v do not add up to %d", p, b.Items)
	}
	for word, want := range map[string]int64{"pending": p.Pending, "done": p.Done, "refused": p.Refused, "plan_stale": p.PlanStale, "failed": p.Failed} {
		if got := len(r.bulkItems(id, word)); int64(got) != want {
			r.t.Errorf("%d items are %s, %d are counted", got, word, want)
		}
	}
	return b
}

// bulkItems reads the items in small pages.
func (r *rig) bulkItems(id uuid.UUID, outcome string) (all []BulkItem) {
	r.t.Helper()
	for cursor := ""; ; {
		page, err := r.As("acme", "").Bulk.Items(context.Background(), id, outcome, cursor, 7)
		if err != nil {
			r.t.Fatal(err)
		}
		all = append(all, page.Items...)
		if cursor = page.Next; !page.More {
			return all
		}
	}
}

func TestABulkForkIsPlannedAndThenDoneOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t).startWorkers()
	const n = 30
	letters := r.deadLetters(0, n, func(escrow.Call) escrow.Answer { return refused() })
	q := allLetters(BulkFork)
	q.Policy = &retrypolicy.Policy{MaxRetryAttempts: 5}
	plan := r.mustPlan(q)
	if plan.State != BulkPlanned || plan.Items != n || plan.Ready != n || !maps.Equal(plan.Money, map[string]int64{"EUR": n * 1000}) || len(plan.Refused) != 0 || plan.Progress.Pending != n {
		t.Errorf("%+v", plan)
	}
	if forked := r.count(`SELECT count(*) FROM recourse.runs WHERE letter = 'forked'`); forked != 0 {
		t.Errorf("the plan forked %d letters", forked)
	}
	b := r.runPlan(plan)
	if b.Progress.Done != n || b.StartedBy != "user:bob" || b.Actor != "user:ada" || !maps.Equal(b.Progress.Money, plan.Money) {
		t.Errorf("%+v", b)
	}
	r.untilNoneLive()
	r.plansNothing(q)
	if _, err := r.As("acme", "user:cem").Bulk.Run(context.Background(), plan.ID, plan.Hash); err != nil {
		t.Errorf("to start it again: %v", err)
	}
	for _, i := range r.bulkItems(plan.ID, "done") {
		made, err := r.Status(context.Background(), "acme", i.NewRun)
		if err != nil || made.State != background.Succeeded || made.Policy.MaxRetryAttempts != 5 {
			t.Errorf("%+v, %v", made, err)
		}
	}
	for _, l := range letters {
		if c, err := r.CaseByID(context.Background(), "acme", l.Case); err != nil || c.Progression != settlement.Settled || len(c.Runs) != 2 {
			t.Errorf("%+v, %v", c, err)
		}
		r.checkReceiptNamesPlan(l, plan, receipts.ManualRetryRequested)
		r.checkReceiptNamesPlan(l, plan, receipts.Replayed)
	}
	r.checkPlanReceipts(plan, "user:ada none to planned", "user:bob planned to running", "system:bulk running to done")
	r.mustAudit()
}

// checkReceiptNamesPlan checks that exactly one receipt of a subtype, with the starter as its
// actor, names the plan.
func (r *rig) checkReceiptNamesPlan(l Submitted, b Bulk, s receipts.Subtype) {
	r.t.Helper()
	n := r.count(`SELECT count(*) FROM recourse.receipts WHERE case_id = $1 AND subtype = $2 AND actor = 'user:bob' AND body::json->'payload'->>'bulk' = $3`,
		l.Case.String(), string(s), b.ID)
	if n != 1 {
		r.t.Errorf("%d receipts %s of %s name the plan", n, s, l.Run)
	}
}

// checkPlanReceipts checks the receipts of the plan's own changes.
func (r *rig) checkPlanReceipts(b Bulk, want ...string) {
	r.t.Helper()
	rows, err := r.db.Query(`SELECT actor || ' ' || (body::json->'payload'->>'changes') FROM recourse.receipts WHERE subtype = 'bulk-changed' AND body::json->'payload'->>'bulk' = $1 ORDER BY seq`, b.ID)
	if err != nil {
		r.t.Fatal(err)
	}
	defer rows.Close()
	var got []string
	for rows.Next() {
		var s string
		if err := rows.Scan(&s); err != nil {
			r.t.Fatal(err)
		}
		got = append(got, s)
	}
	if err := rows.Err(); err != nil || !slices.Equal(got, want) {
		r.t.Errorf("receipts of the plan: %q, want %q; %v", got, want, err)
	}
}

// containsRun reports whether a run is among items ordered by death.
func containsRun(items []BulkItem, run background.RunID) bool {
	return slices.ContainsFunc(items, func(i BulkItem) bool { return i.Run == run })
}

// A letter that somebody else changed between plan and run is not touched, and gates refuse
// item by item; neither stops the other items.
func TestABulkLeavesAloneWhatMovedAndWhatAGateRefuses(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.escrow.keyLifetime = 1 // its keys expire at once
	r.escrow.lookup = func(escrow.Call) escrow.Answer { return noAnswer() }
	r.startWorkers()
	ctx := context.Background()
	letters := r.deadLetters(0, 6, func(escrow.Call) escrow.Answer { return refused() })
	r.deadLetters(6, 8, func(escrow.Call) escrow.Answer { return noAnswer() })
	plan := r.mustPlan(allLetters(BulkFork))
	if plan.Items != 8 || plan.Ready != 6 || plan.Refused[refusal.GateReconcileFirst] != 2 || plan.Money["EUR"] != 6000 {
		t.Errorf("%+v", plan)
	}
	if _, err := r.As("acme", "user:ada").DeadLetters.Fork(ctx, letters[0].Run, forkRequest); err != nil {
		t.Fatal(err)
	}
	if _, err := r.As("acme", "user:cem").DeadLetters.Hold(ctx, letters[1].Run, "a court asks"); err != nil {
		t.Fatal(err)
	}
	r.deadLetters(8, 9, func(escrow.Call) escrow.Answer { return refused() }) // died after the plan
	b := r.runPlan(plan)
	if p := b.Progress; p.Done != 4 || p.PlanStale != 2 || p.Refused != 2 || p.ByGate[refusal.GateReconcileFirst] != 2 || p.Money["EUR"] != 4000 {
		t.Errorf("%+v", p)
	}
	stale := r.bulkItems(plan.ID, "plan_stale")
	if len(stale) != 2 || !containsRun(stale, letters[0].Run) || !containsRun(stale, letters[1].Run) {
		t.Errorf("%+v", stale)
	}
	for _, i := range r.bulkItems(plan.ID, "refused:reconcile_first") {
		if i.Gate != refusal.GateReconcileFirst || i.Planned != refusal.GateReconcileFirst || !i.NewRun.IsZero() {
			t.Errorf("%+v", i)
		}
	}
	if left := r.count(`SELECT count(*) FROM recourse.runs WHERE letter = 'open'`); left != 4 {
		t.Errorf("%d letters are open", left)
	}
	r.untilNoneLive()
	r.mustAudit()
}

func TestEveryBulkActionDoesWhatTheOneOfALetterDoes(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.escrow.lookup = func(escrow.Call) escrow.Answer { return noAnswer() }
	r.startWorkers()
	lost := r.deadLetters(0, 3, func(c escrow.Call) escrow.Answer { r.escrow.pay(c, c.Amount.Minor); return noAnswer() })
	r.escrow.mu.Lock()
	r.escrow.lookup = nil
	r.escrow.mu.Unlock()
	yes := true
	for _, step := range []struct {
		q       BulkRequest
		subtype receipts.Subtype
		holds   string
	}{
		{allLetters(BulkHold), receipts.HoldPlaced, `SELECT count(*) = 3 FROM recourse.annotations WHERE held`},
		{allLetters(BulkRelease), receipts.HoldReleased, `SELECT count(*) = 0 FROM recourse.annotations WHERE held`},
		{func() BulkRequest { q := allLetters(BulkMark); q.Review = &yes; return q }(), receipts.Marked, `SELECT count(*) = 3 FROM recourse.annotations WHERE manual_review_required`},
		{allLetters(BulkReconcile), receipts.Reconciled, `SELECT count(*) = 3 FROM recourse.cases WHERE progression = 'settled'`},
	} {
		b := r.runPlan(r.mustPlan(step.q))
		if b.Progress.Done != 3 {
			t.Errorf("%s: %+v", step.q.Action, b.Progress)
		}
		for _, l := range lost {
			r.checkReceiptNamesPlan(l, b, step.subtype)
		}
		if !r.queryBool(step.holds) {
			t.Errorf("%s: not %s", step.q.Action, step.holds)
		}
	}
	gone := r.deadLetters(3, 6, func(escrow.Call) escrow.Answer { return refused() })
	if _, err := r.As("acme", "user:cem").DeadLetters.Hold(context.Background(), gone[0].Run, "a court asks"); err != nil {
		t.Fatal(err)
	}
	plan := r.mustPlan(allLetters(BulkPurge))
	if plan.Refused[refusal.GateHeld] != 1 || plan.Ready != 2 {
		t.Errorf("%+v", plan)
	}
	if b := r.runPlan(plan); b.Progress.Done != 2 || b.Progress.ByGate[refusal.GateHeld] != 1 {
		t.Errorf("%+v", b.Progress)
	}
	r.checkReceiptNamesPlan(gone[1], plan, receipts.Purged)
	r.mustAudit()
}

func (r *rig) queryBool(query string) (so bool) {
	r.t.Helper()
	if err := r.db.QueryRow(query).Scan(&so); err != nil {
		r.t.Fatal(err)
	}
	return so
}

func TestABulkPlanIsRefusedForWhatItDoesNotSay(t *testing.T) {
	t.Parallel()
	r := newRig(t).startWorkers()
	ctx := context.Background()
	for field, change := range map[string]func(*acting, *BulkRequest){
		"tenant": func(who *acting, q *BulkRequest) { who.tenant = "" },
		"actor":  func(who *acting, q *BulkRequest) { who.actor = " " },
		"reason": func(who *acting, q *BulkRequest) { q.Reason = "" },
		"action": func(who *acting, q *BulkRequest) { q.Action = "forge" },
		"filter": func(who *acting, q *BulkRequest) { q.All = false },
		"all":    func(who *acting, q *BulkRequest) { q.Filter.Currency = "EUR" },
		"letter": func(who *acting, q *BulkRequest) {
			q.All, q.Filter.Status, q.Filter.Currency = false, background.LetterForked, "EUR"
		},
		"currency":                  func(who *acting, q *BulkRequest) { q.All, q.Filter.Currency = false, "euro" },
		"limit":                     func(who *acting, q *BulkRequest) { q.Limit = -1 },
		"parallel":                  func(who *acting, q *BulkRequest) { q.Parallel = 65 },
		"throttle":                  func(who *acting, q *BulkRequest) { q.Throttle = -1 },
		"policy":                    func(who *acting, q *BulkRequest) { q.Action, q.Policy = BulkHold, &retrypolicy.Policy{} },
		"queue":                     func(who *acting, q *BulkRequest) { q.Action, q.Queue = BulkHold, "settlement:0" },
		"marks":                     func(who *acting, q *BulkRequest) { q.Action = BulkMark },
		"policy.max_retry_attempts": func(who *acting, q *BulkRequest) { q.Policy = &retrypolicy.Policy{MaxRetryAttempts: 1 << 30} },
	} {
		q := allLetters(BulkFork)
		who := acting{"acme", "user:ada"}
		change(&who, &q)
		var wrong *refusal.FieldError
		if _, err := r.As(who.tenant, who.actor).Bulk.Plan(ctx, q); !errors.As(err, &wrong) || wrong.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
	if n := r.count(`SELECT count(*) FROM recourse.bulks`); n != 0 {
		t.Errorf("%d plans", n)
	}
	r.deadLetter(1, func(escrow.Call) escrow.Answer { return refused() })
	plan := r.mustPlan(allLetters(BulkFork))
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
	if b, err := r.As("acme", "").Bulk.Get(ctx, plan.ID); err != nil || b.State != BulkPlanned {
		t.Errorf("%+v, %v", b, err)
	}
}

// A plan that is done shows what became of its forks, not only that they were made.
func TestAPlanTellsWhatBecameOfItsForks(t *testing.T) {
	t.Parallel()
	r := newRig(t).startWorkers()
	r.deadLetters(0, 5, func(escrow.Call) escrow.Answer { return refused() })
	plan := r.mustPlan(allLetters(BulkFork))
	if len(plan.Forks) != 0 {
		t.Errorf("before it runs: %v", plan.Forks)
	}
	var refuse []escrow.OperationKey // keys of two letters whose forks die too
	r.escrow.mu.Lock()
	r.escrow.script = func(_ context.Context, c escrow.Call) escrow.Answer {
		r.escrow.mu.Lock()
		if len(refuse) < 2 && !slices.Contains(refuse, c.OperationKey) {
			refuse = append(refuse, c.OperationKey)
		}
		dies := slices.Contains(refuse, c.OperationKey)
		r.escrow.mu.Unlock()
		if dies {
			return refused()
		}
		return r.escrow.pay(c, c.Amount.Minor)
	}
	r.escrow.mu.Unlock()
	r.runPlan(plan)
	r.untilNoneLive()
	b, err := r.As("acme", "").Bulk.Get(context.Background(), plan.ID)
	if want := map[string]int64{"dead_lettered": 2, "succeeded": 3}; err != nil || b.State != BulkDone || b.Progress.Done != 5 || !maps.Equal(b.Forks, want) {
		t.Errorf("%v, %+v", err, b)
	}
	page, err := r.As("acme", "").Bulk.List(context.Background(), "")
	if err != nil || len(page.Bulks) != 1 || page.Bulks[0].Forks != nil {
		t.Errorf("%v, %+v", err, page)
	}
	r.mustAudit()
}
