package bulk_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/bulk"
	"github.com/recourse-dev/recourse/postadjudication/deadletter"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/internal/casework"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/plans"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/search"
	"github.com/recourse-dev/recourse/postadjudication/internal/rig"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/settlement"
)

// A plan with a condition holds the letters that a search with it finds, in order of death, and
// counts those for which the condition could not be evaluated.
func TestAPlanWithAConditionHasTheLettersThatMeetIt(t *testing.T) {
	t.Parallel()
	r := rig.New(t).StartWorkers()
	ctx := context.Background()
	refusals := r.DeadLetters(0, 9, rig.Refuses)
	r.DeadLetters(9, 15, rig.RateLimits)
	if _, err := r.As("acme", "user:ada").DeadLetters.Fork(ctx, refusals[0].Run, deadletter.Fork{Reason: "mended"}); err != nil {
		t.Fatal(err)
	}
	r.WaitNoneLive()
	for _, l := range refusals[1:3] { // held letters have no expiry
		if _, err := r.As("acme", "user:ada").DeadLetters.Hold(ctx, l.Run, "in court"); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		where                     string
		filter                    deadletter.Filter
		items, scanned, undecided int64
	}{
		{`error.type == "http.refused"`, deadletter.Filter{}, 8, 14, 0},
		{`transaction_receipt_id in ["txr_0", "txr_3", "txr_9"]`, deadletter.Filter{}, 2, 14, 0},
		{`attempts > 1`, deadletter.Filter{ReasonCode: background.ReasonFinal}, 0, 8, 0},
		{`error.type.endsWith("refused") && held`, deadletter.Filter{Class: escrow.NotExecuted}, 2, 14, 0},
		{`expires_at > dead_lettered_at && age < duration("1h")`, deadletter.Filter{}, 12, 14, 2},
		{`true`, deadletter.Filter{Currency: "JPY"}, 0, 0, 0},
	} {
		q := rig.LettersWhere(bulk.Reconcile, c.where)
		q.Filter = c.filter
		if c.items == 0 {
			if nothing := plansNothing(r, q); nothing.Scanned != c.scanned || nothing.Undecided != c.undecided {
				t.Errorf("%s: %+v", c.where, nothing)
			}
			continue
		}
		plan := r.MustPlan(q)
		f := c.filter
		f.Status = background.LetterOpen
		found, err := r.As("acme", "").DeadLetters.Search(ctx, deadletter.Search{Filter: f, Where: c.where, Sort: deadletter.OldestFirst, Limit: 100})
		items := r.BulkItems(plan.ID, "")
		if err != nil || len(items) != len(found.Letters) {
			t.Fatalf("%s: %d items of %d that are found, %v", c.where, len(items), len(found.Letters), err)
		}
		for n, l := range found.Letters {
			if items[n].Run != l.Run || items[n].Position != int64(n+1) {
				t.Errorf("%s: item %+v is not letter %s", c.where, items[n], l.Run)
			}
		}
		if plan.Spec.Where != c.where || plan.Items != c.items || plan.Ready != c.items || plan.Money["EUR"] != settlement.SumOf(1000*c.items) || len(plan.Refused) != 0 {
			t.Errorf("%s: %+v", c.where, plan)
		}
		if plan.Scanned != c.scanned || plan.Undecided != c.undecided || found.Scanned != int(c.scanned) || found.Undecided != int(c.undecided) {
			t.Errorf("%s: of %d letters %d are undecided; a search says %d, %d", c.where, plan.Scanned, plan.Undecided, found.Scanned, found.Undecided)
		}
	}
}

// A plan with a condition runs like any other: once, and only with the hash of the whole
// request.
func TestAPlanWithAConditionIsDoneOnce(t *testing.T) {
	t.Parallel()
	r := rig.New(t).StartWorkers()
	ctx := context.Background()
	r.DeadLetters(0, 6, rig.Refuses)
	plan := r.MustPlan(rig.LettersWhere(bulk.Fork, `transaction_receipt_id != "txr_4"`))
	other := r.MustPlan(rig.LettersWhere(bulk.Fork, `!(transaction_receipt_id == "txr_4")`))
	if plan.Items != 5 || plan.Hash == other.Hash {
		t.Errorf("%+v\n%+v", plan, other)
	}
	if _, err := r.DB.Exec(`UPDATE recourse.bulks SET asked = replace(asked, 'txr_4', 'txr_5') WHERE id = $1`, other.ID); err != nil {
		t.Fatal(err)
	}
	var wrong *refusal.FieldError
	if _, err := r.As("acme", "user:bob").Bulk.Run(ctx, other.ID, other.Hash); !errors.As(err, &wrong) || wrong.Field != "hash" {
		t.Errorf("a plan whose condition was changed: %v", err)
	}
	if _, err := r.DB.Exec(`UPDATE recourse.bulks SET asked = replace(asked, 'txr_5', 'txr_4') WHERE id = $1`, other.ID); err != nil {
		t.Fatal(err)
	}
	if b := r.RunPlan(plan); b.Progress.Done != 5 || b.Scanned != 6 {
		t.Errorf("%+v", b)
	}
	r.WaitNoneLive()
	if left := r.Letters(deadletter.Filter{Status: background.LetterOpen}); len(left) != 1 || left[0].Transaction != "txr_4" {
		t.Errorf("%+v", left)
	}
	r.MustAudit()
}

// If not all letters can be scanned there is no plan, since it would cover only a part. With a
// limit there is one if enough oldest letters that meet the condition are found within the scan
// limit.
func TestAPlanThatCouldNotScanAllLettersIsRefused(t *testing.T) {
	t.Parallel()
	r := rig.New(t).StartWorkers()
	ctx := context.Background()
	r.DeadLetters(0, 8, rig.Refuses)
	plans := r.As("acme", "user:ada").Bulk
	for _, most := range []struct {
		letters int64
		time    time.Duration
	}{{7, time.Hour}, {8, -time.Second}} {
		var wrong *refusal.FieldError
		if _, err := plans.PlanWithin(ctx, rig.LettersWhere(bulk.Fork, "held || can_fork"), most.letters, most.time); !errors.As(err, &wrong) || wrong.Field != "where" || !strings.Contains(wrong.Problem, "Narrow the filter") {
			t.Errorf("%+v: %v", most, err)
		}
	}
	if n := r.CountRows("bulks", "bulk_items", "bulk_counts"); n != 0 {
		t.Errorf("%d rows are left of plans that were refused", n)
	}
	if plan, err := plans.PlanWithin(ctx, rig.LettersWhere(bulk.Fork, "held || can_fork"), 8, time.Hour); err != nil || plan.Items != 8 {
		t.Errorf("%+v, %v", plan, err)
	}
	oldest := r.Letters(deadletter.Filter{Status: background.LetterOpen})
	q := rig.LettersWhere(bulk.Fork, "can_fork")
	q.Limit = 3
	plan, err := plans.PlanWithin(ctx, q, 3, time.Hour)
	if err != nil || plan.Items != 3 || plan.Scanned != 3 {
		t.Fatalf("%+v, %v", plan, err)
	}
	for n, i := range r.BulkItems(plan.ID, "") {
		if want := oldest[len(oldest)-1-n].Run; i.Run != want {
			t.Errorf("item %d is %s, not %s", n, i.Run, want)
		}
	}
}

func TestConditionsOfPlansThatMakeNoSenseAreRefused(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	for condition, field := range map[string]string{"held &&": "where", `error.typ == "x"`: "where", " ": "where", "amount.minor": "where"} {
		var wrong *refusal.FieldError
		if _, err := r.As("acme", "user:ada").Bulk.Plan(context.Background(), rig.LettersWhere(bulk.Fork, condition)); !errors.As(err, &wrong) || wrong.Field != field {
			t.Errorf("%q: %v", condition, err)
		}
	}
	q := rig.AllLetters(bulk.Fork)
	q.Where = "held"
	var wrong *refusal.FieldError
	if _, err := r.As("acme", "user:ada").Bulk.Plan(context.Background(), q); !errors.As(err, &wrong) || wrong.Field != "all" {
		t.Errorf("all together with a condition: %v", err)
	}
}

// A letter is planned as it was when it met the condition: if anybody changes it afterwards,
// the plan does not touch it.
func TestALetterThatChangesAfterTheScanIsLeftAlone(t *testing.T) {
	t.Parallel()
	r := rig.New(t).StartWorkers()
	r.DeadLetters(0, 3, rig.Refuses)
	like := r.MustPlan(rig.AllLetters(bulk.Fork))
	var moved background.RunID
	plan, items := planInChunks(r, like, deadletter.Filter{}, 2, 0, func(ctx context.Context, l search.Letter) (bool, error) {
		if !moved.IsZero() {
			return !l.Review, nil
		}
		moved = l.Run.ID
		yes := true
		_, err := r.As("acme", "user:eve").DeadLetters.Mark(ctx, moved, deadletter.Mark{Reason: "wait", ManualReviewRequired: &yes})
		return !l.Review, err
	})
	if len(items) != 3 || items[0].Run != moved {
		t.Fatalf("%+v", items)
	}
	if b := r.RunPlan(plan); b.Progress.Done != 2 || b.Progress.PlanStale != 1 {
		t.Errorf("%+v", b.Progress)
	}
	if stale := r.BulkItems(plan.ID, "plan_stale"); len(stale) != 1 || stale[0].Run != moved {
		t.Errorf("%+v", stale)
	}
	r.WaitNoneLive()
	r.MustAudit()
}

// The number of statements that a plan takes affects neither its letters and their order nor
// its hash.
func TestAPlanIsTheSameInPiecesOfAnySize(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	r.Escrow.SetKeyLife(1)
	r.Escrow.ScriptLookups(rig.GivesNoAnswer)
	r.StartWorkers()
	ctx := context.Background()
	r.DeadLetters(0, 12, rig.Refuses)
	r.DeadLetters(12, 17, rig.GivesNoAnswer)
	r.DeadLetters(17, 23, rig.RateLimits)
	for name, f := range map[string]deadletter.Filter{
		"all": {}, "class": {Class: escrow.NotExecuted}, "reason": {ReasonCode: background.ReasonFinal}, "text": {ErrorText: "closed"}, "transaction": {Transaction: "txr_3"},
		"age": {From: r.As("", "").Bulk.Now().Add(-time.Hour)}, "none": {Currency: "JPY"},
	} {
		q := rig.AllLetters(bulk.Fork)
		q.Filter, q.All = f, f == (deadletter.Filter{})
		if name == "none" {
			plansNothing(r, q)
			continue
		}
		whole := r.MustPlan(q)
		want := r.BulkItems(whole.ID, "")
		f.Status = background.LetterOpen
		page, err := r.As("acme", "").DeadLetters.List(ctx, deadletter.Query{Filter: f, Sort: deadletter.OldestFirst, Limit: 100})
		if err != nil || len(page.Letters) != len(want) || whole.Items != int64(len(want)) {
			t.Fatalf("%s: %d letters, %d items, %v", name, len(page.Letters), len(want), err)
		}
		refused := int64(0)
		for n, l := range page.Letters {
			if i := want[n]; i.Run != l.Run || i.Position != int64(n+1) || i.Amount != 1000 || i.Currency != "EUR" || i.Planned != l.RefusedBy {
				t.Errorf("%s: item %+v of letter %s refused by %q", name, i, l.Run, l.RefusedBy)
			}
			if !l.CanFork {
				refused++
			}
		}
		if whole.Refused[refusal.GateReconcileFirst] != refused || whole.Ready+refused != whole.Items {
			t.Errorf("%s: %+v, %d are refused", name, whole, refused)
		}
		for _, chunk := range []int64{1, 2, 5, int64(max(1, len(want))), int64(len(want) + 1)} {
			got, items := planInChunks(r, whole, f, chunk, 0, nil)
			met, each := planInChunks(r, whole, f, chunk, 0, func(context.Context, search.Letter) (bool, error) { return true, nil })
			if met.Hash != whole.Hash || !sameItems(each, want) {
				t.Errorf("%s in pieces of %d, each asked: %+v", name, chunk, met)
			}
			if got.Hash != whole.Hash || got.Items != whole.Items || got.Ready != whole.Ready || !sameItems(items, want) {
				t.Errorf("%s in pieces of %d: %+v", name, chunk, got)
			}
			if got, items := planInChunks(r, whole, f, chunk, 3, nil); !sameItems(items, want[:min(3, len(want))]) || got.Items != int64(len(items)) {
				t.Errorf("%s in pieces of %d, at most 3: %+v", name, chunk, items)
			}
		}
	}
}

// planInChunks repeats an existing plan, from what is listed now, with another chunk size.
func planInChunks(r *rig.Rig, like bulk.Plan, f deadletter.Filter, chunk, limit int64, meets func(context.Context, search.Letter) (bool, error), judged ...func()) (bulk.Plan, []bulk.Item) {
	r.T.Helper()
	plan, err := r.As("acme", "").Bulk.PlanAgain(context.Background(), like, f, plans.Scope{Limit: limit, BatchSize: chunk, Matches: meets}, func() {
		for _, then := range judged {
			then()
		}
	})
	if err != nil {
		r.T.Fatal(err)
	}
	return plan, r.BulkItems(plan.ID, "")
}

// A plan does not touch a letter that its filter no longer selects, whether the list already
// showed the change when the plan was made or not.
func TestAPlanLeavesAloneWhatItsFilterSelectsNoMore(t *testing.T) {
	t.Parallel()
	r := rig.New(t).StartWorkers()
	ctx := context.Background()
	letters := r.DeadLetters(0, 6, rig.Refuses)
	r.StopWorkers()
	no, yes := false, true
	mark := func(letter postadjudication.Submitted) {
		t.Helper()
		if _, err := r.As("acme", "user:cem").DeadLetters.Mark(ctx, letter.Run, deadletter.Mark{Reason: "look first", ManualReviewRequired: &yes}); err != nil {
			t.Fatal(err)
		}
	}
	run := func(plan bulk.Plan, done, stale int64) {
		t.Helper()
		started, err := r.As("acme", "user:bob").Bulk.Run(ctx, plan.ID, plan.Hash)
		mustWorkBulk(r, checkBulkState(r, started, err, bulk.Running))
		if b := r.WaitPlan(plan.ID); b.Progress.Done != done || b.Progress.PlanStale != stale || b.Items != done+stale {
			t.Errorf("%+v", b.Progress)
		}
	}
	q := rig.AllLetters(bulk.Hold)
	q.Filter, q.All = deadletter.Filter{Review: &no}, false
	hold := r.MustPlan(q)
	q.Action = bulk.Release
	release := r.MustPlan(q)
	first := true
	plan, _ := planInChunks(r, hold, q.Filter, 1, 0, nil, func() {
		if first {
			mark(letters[3])
			if err := r.As("", "").Bulk.Index().CatchUp(ctx); err != nil {
				t.Error(err)
			}
		}
		first = false
	})
	run(plan, 5, 1)
	if err := r.As("", "").Bulk.Stored().CatchUp(ctx); err != nil {
		t.Fatal(err)
	}
	mark(letters[1])
	asked := func(context.Context, search.Letter) (bool, error) { return true, nil }
	plan, _ = planInChunks(r, release, q.Filter, 2, 0, asked)
	run(plan, 4, 1)
	for n, l := range letters {
		if d, err := r.As("acme", "").DeadLetters.Annotations(ctx, l.Run); err != nil || d.Held != (n == 1) {
			t.Errorf("letter %d: %+v, %v", n, d, err)
		}
	}
	r.MustAudit()
}

// A plan that nobody starts is deleted; a started plan is kept.
func TestPlansThatNobodyStartsAreForgotten(t *testing.T) {
	t.Parallel()
	var ahead atomic.Int64
	r := rig.New(t, func(c *postadjudication.Config) {
		c.Simulated = true
		c.Now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	}).StartWorkers()
	r.DeadLetters(0, 2, rig.Refuses)
	idle := r.MustPlan(rig.AllLetters(bulk.Fork))
	used := r.RunPlan(r.MustPlan(rig.AllLetters(bulk.Fork)))
	r.WaitNoneLive()
	r.StopWorkers()
	ahead.Store(int64(bulk.PlanRetention - time.Minute))
	plansNothing(r, rig.AllLetters(bulk.Fork))
	if r.RowsOfPlan(idle.ID) == 0 {
		t.Error("a plan was deleted too early")
	}
	ahead.Store(int64(bulk.PlanRetention + time.Minute))
	if _, err := r.As("acme", "user:ada").Bulk.Plan(context.Background(), rig.AllLetters(bulk.Fork)); err == nil {
		t.Error("a plan of nothing")
	}
	if n := r.RowsOfPlan(idle.ID); n != 0 {
		t.Errorf("%d rows are left of a plan that nobody started", n)
	}
	if b, err := r.As("acme", "").Bulk.Get(context.Background(), used.ID); err != nil || b.Progress.Done != 2 {
		t.Errorf("%+v, %v", b, err)
	}
}

// A failed item that turns out to have been done becomes done, and the counts still add up; no
// other outcome changes.
func TestAnOutcomeIsWrittenOnce(t *testing.T) {
	t.Parallel()
	r := rig.New(t).StartWorkers()
	ctx := context.Background()
	r.DeadLetters(0, 3, rig.Refuses)
	plan := r.MustPlan(rig.AllLetters(bulk.Fork))
	items, err := r.As("", "").Bulk.Stored().PendingItems(ctx, plan.ID, 0, 10)
	if err != nil || len(items) != 3 {
		t.Fatalf("%d items, %v", len(items), err)
	}
	record := func(outcomes ...string) {
		t.Helper()
		for n, o := range outcomes {
			items[n].Outcome = o
		}
		if err := r.As("", "").Bulk.Stored().RecordItems(ctx, plan.ID, items); err != nil {
			t.Fatal(err)
		}
	}
	record("failed", "done", "plan_stale")
	record("failed", "failed", "done")
	record("done", "plan_stale", "failed")
	b, err := r.As("acme", "").Bulk.Get(ctx, plan.ID)
	if p := b.Progress; err != nil || p.Done != 2 || p.PlanStale != 1 || p.Failed != 0 || p.Pending != 0 || p.Money["EUR"] != settlement.SumOf(2000) {
		t.Errorf("%+v, %v", p, err)
	}
	if left, err := r.As("", "").Bulk.Stored().PendingItems(ctx, plan.ID, 0, 10); err != nil || len(left) != 0 {
		t.Errorf("%+v, %v", left, err)
	}
}

// However many plans of one tenant are being made, the searches of another find a connection.
func TestPlansOfATenantLeaveConnectionsToTheSearchesOfOthers(t *testing.T) {
	t.Parallel()
	r := rig.New(t).StartWorkers()
	ctx := context.Background()
	r.DeadLetters(0, 1, rig.Refuses)
	whole := r.MustPlan(rig.AllLetters(bulk.Hold))
	like, err := r.As("", "").Bulk.Stored().Find(ctx, "acme", whole.ID)
	if err != nil {
		t.Fatal(err)
	}
	const planners, ofTenant = 12, 3
	matching, release, ended := make(chan struct{}, planners), make(chan struct{}), make(chan error, planners)
	scope := plans.Scope{
		Filter: r.As("acme", "").Bulk.Scope(whole.PlannedAt), BatchSize: 10, Hash: func() [32]byte { return [32]byte{} }, GateOf: func(*plans.Letter) string { return "" },
		Matches: func(context.Context, search.Letter) (bool, error) {
			matching <- struct{}{}
			<-release
			return true, nil
		},
	}
	for range planners {
		b := like
		b.ID = uuid.New()
		go func() {
			_, err := r.As("", "").Bulk.Stored().Create(ctx, b, scope)
			ended <- err
		}()
	}
	for range ofTenant {
		<-matching
	}
	for range 10 {
		if _, err := r.As("other", "").DeadLetters.List(ctx, deadletter.Query{Limit: 10}); err != nil {
			t.Errorf("a list of another tenant: %v", err)
		}
		if _, err := r.As("other", "").DeadLetters.Count(ctx, deadletter.Filter{}); err != nil {
			t.Errorf("a count of another tenant: %v", err)
		}
	}
	if n := len(matching); n > 0 {
		t.Errorf("%d plans of a tenant have a connection", ofTenant+n)
	}
	close(release)
	for range planners {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

// However often, and by however many at once, a request is carried out, it makes one plan. Items that
// another plan has just stored are not its to delete.
func TestARequestMakesOnePlan(t *testing.T) {
	t.Parallel()
	r := rig.New(t).StartWorkers()
	ctx := context.Background()
	letters := r.DeadLetters(0, 3, rig.Refuses)
	others := casework.NewID() // its process is about to store the plan
	if _, err := r.DB.Exec(`INSERT INTO recourse.bulk_counts SELECT $1, false, '', 'EUR', 1, 1`, others); err != nil {
		t.Fatal(err)
	}
	q := rig.AllLetters(bulk.Fork)
	q.Request = "request 1"
	free := rig.FreeRequest("txr_1")
	free.Request = "request 2"
	paid := rig.PaidFinding
	paid.RequestID = "request 3"
	by := r.As("acme", "user:ada").Bulk
	for name, plan := range map[string]func() (bulk.Plan, error){
		"letters": func() (bulk.Plan, error) { return by.Plan(ctx, q) },
		"cases":   func() (bulk.Plan, error) { return by.PlanFree(ctx, free) },
		"finding": func() (bulk.Plan, error) { return by.PlanFinding(ctx, letters[0].Run, paid) },
	} {
		var all sync.WaitGroup
		made := make([]bulk.Plan, 8)
		for i := range made {
			all.Go(func() {
				var err error
				if made[i], err = plan(); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			})
		}
		all.Wait()
		for _, p := range made {
			if p.ID != made[0].ID || p.Hash != made[0].Hash || p.Items != made[0].Items {
				t.Errorf("%s: plan %s of %d and plan %s of %d", name, p.ID, p.Items, made[0].ID, made[0].Items)
			}
		}
		if n := r.Count(`SELECT count(*) FROM recourse.bulks WHERE id = $1`, made[0].ID); n != 1 {
			t.Errorf("%s: the plan is not stored", name)
		}
	}
	if n := r.Count(`SELECT (SELECT count(*) FROM recourse.bulks) * 100 + (SELECT count(DISTINCT bulk_id) FROM recourse.bulk_items) * 10 + (SELECT count(DISTINCT bulk_id) FROM recourse.bulk_counts WHERE bulk_id <> $1)`, others); n != 333 {
		t.Errorf("plans, and plans with items and with counts: %d", n)
	}
	if n := r.CountReceipts(rig.Receipts{Subtype: receipts.BulkChanged}); n != 3 {
		t.Errorf("%d receipts", n)
	}
	if n := r.Count(`SELECT count(*) FROM recourse.bulk_counts WHERE bulk_id = $1`, others); n != 1 {
		t.Error("the counts of the plan in the making are gone")
	}
	if _, err := r.As("other", "user:ada").Bulk.Plan(ctx, q); err == nil {
		t.Error("another tenant got the plan of the request")
	}
}
