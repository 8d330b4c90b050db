package postadjudication

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/postgres"
)

// planWhere asks for a plan of the letters that meet a condition.
func planWhere(a BulkAction, condition string) BulkRequest {
	q := allLetters(a)
	q.All, q.Where = false, condition
	return q
}

// A plan with a condition has the letters that a search with it finds, in the order of
// their deaths, and says of how many it could not be told.
func TestAPlanWithAConditionHasTheLettersThatMeetIt(t *testing.T) {
	t.Parallel()
	r := newRig(t).startWorkers()
	ctx := context.Background()
	refusals := r.deadLetters(0, 9, func(Call) Answer { return refused() })
	r.deadLetters(9, 15, func(Call) Answer { return busy429() })
	if _, err := r.Fork(ctx, "acme", refusals[0].Run, ForkRequest{Actor: "user:ada", Reason: "mended"}); err != nil {
		t.Fatal(err)
	}
	r.untilNoneLive()
	for _, l := range refusals[1:3] { // what is held has no end
		if _, err := r.Hold(ctx, "acme", l.Run, HoldRequest{Actor: "user:ada", Reason: "in court"}); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		where                     string
		filter                    LetterFilter
		items, scanned, undecided int64
	}{
		{`error.type == "http.refused"`, LetterFilter{}, 8, 14, 0},
		{`transaction_receipt_id in ["txr_0", "txr_3", "txr_9"]`, LetterFilter{}, 2, 14, 0},
		{`attempts > 1`, LetterFilter{ReasonCode: background.ReasonFinal}, 0, 8, 0},
		{`error.type.endsWith("refused") && held`, LetterFilter{Class: NotExecuted}, 2, 14, 0},
		{`expires_at > dead_lettered_at && age < duration("1h")`, LetterFilter{}, 12, 14, 2},
		{`true`, LetterFilter{Currency: "JPY"}, 0, 0, 0},
	} {
		q := planWhere(BulkReconcile, c.where)
		q.Filter = c.filter
		if c.items == 0 {
			if nothing := r.plansNothing(q); nothing.Scanned != c.scanned || nothing.Undecided != c.undecided {
				t.Errorf("%s: %+v", c.where, nothing)
			}
			continue
		}
		plan := r.mustPlan(q)
		f := c.filter
		f.Status = background.LetterOpen
		found, err := r.SearchLetters(ctx, "acme", LetterSearch{Filter: f, Where: c.where, Sort: OldestFirst, Limit: 100})
		items := r.bulkItems(plan.ID, "")
		if err != nil || len(items) != len(found.Letters) {
			t.Fatalf("%s: %d items of %d that are found, %v", c.where, len(items), len(found.Letters), err)
		}
		for n, l := range found.Letters {
			if items[n].Run != l.Run || items[n].Position != int64(n+1) {
				t.Errorf("%s: item %+v is not letter %s", c.where, items[n], l.Run)
			}
		}
		if plan.Spec.Where != c.where || plan.Items != c.items || plan.Ready != c.items || plan.Money["EUR"] != 1000*c.items || len(plan.Refused) != 0 {
			t.Errorf("%s: %+v", c.where, plan)
		}
		if plan.Scanned != c.scanned || plan.Undecided != c.undecided || found.Scanned != int(c.scanned) || found.Undecided != int(c.undecided) {
			t.Errorf("%s: of %d letters %d are undecided; a search says %d, %d", c.where, plan.Scanned, plan.Undecided, found.Scanned, found.Undecided)
		}
	}
}

// What a plan with a condition does is what any plan does: once, and only with the hash
// of all that was asked.
func TestAPlanWithAConditionIsDoneOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t).startWorkers()
	ctx := context.Background()
	r.deadLetters(0, 6, func(Call) Answer { return refused() })
	plan := r.mustPlan(planWhere(BulkFork, `transaction_receipt_id != "txr_4"`))
	other := r.mustPlan(planWhere(BulkFork, `!(transaction_receipt_id == "txr_4")`))
	if plan.Items != 5 || plan.Hash == other.Hash {
		t.Errorf("%+v\n%+v", plan, other)
	}
	if _, err := r.db.Exec(`UPDATE recourse.bulks SET asked = replace(asked, 'txr_4', 'txr_5') WHERE id = $1`, other.ID); err != nil {
		t.Fatal(err)
	}
	var wrong *FieldError
	if _, err := r.RunBulk(ctx, "acme", other.ID, other.Hash, "user:bob"); !errors.As(err, &wrong) || wrong.Field != "hash" {
		t.Errorf("a plan whose condition was changed: %v", err)
	}
	if _, err := r.db.Exec(`UPDATE recourse.bulks SET asked = replace(asked, 'txr_5', 'txr_4') WHERE id = $1`, other.ID); err != nil {
		t.Fatal(err)
	}
	if b := r.runPlan(plan); b.Progress.Done != 5 || b.Scanned != 6 {
		t.Errorf("%+v", b)
	}
	r.untilNoneLive()
	if left := r.letters(LetterFilter{Status: background.LetterOpen}); len(left) != 1 || left[0].Transaction != "txr_4" {
		t.Errorf("%+v", left)
	}
	r.mustAudit()
}

// Where not all can be looked at there is no plan, rather than one of a part; with a limit
// there is one when the oldest that meet the condition are found within the bound.
func TestAPlanThatCouldNotScanAllLettersIsRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t).startWorkers()
	ctx := context.Background()
	r.deadLetters(0, 8, func(Call) Answer { return refused() })
	for _, most := range []scanLimit{{7, time.Hour}, {8, -time.Second}} {
		var wrong *FieldError
		if _, err := r.planBulk(ctx, planWhere(BulkFork, "held || can_fork"), most); !errors.As(err, &wrong) || wrong.Field != "where" || !strings.Contains(wrong.Problem, "Narrow the filter") {
			t.Errorf("%+v: %v", most, err)
		}
	}
	if n := r.count(`SELECT (SELECT count(*) FROM recourse.bulks) + (SELECT count(*) FROM recourse.bulk_items) + (SELECT count(*) FROM recourse.bulk_counts)`); n != 0 {
		t.Errorf("%d rows are left of plans that were refused", n)
	}
	if plan, err := r.planBulk(ctx, planWhere(BulkFork, "held || can_fork"), scanLimit{8, time.Hour}); err != nil || plan.Items != 8 {
		t.Errorf("%+v, %v", plan, err)
	}
	oldest := r.letters(LetterFilter{Status: background.LetterOpen})
	q := planWhere(BulkFork, "can_fork")
	q.Limit = 3
	plan, err := r.planBulk(ctx, q, scanLimit{3, time.Hour})
	if err != nil || plan.Items != 3 || plan.Scanned != 3 {
		t.Fatalf("%+v, %v", plan, err)
	}
	for n, i := range r.bulkItems(plan.ID, "") {
		if want := oldest[len(oldest)-1-n].Run; i.Run != want {
			t.Errorf("item %d is %s, not %s", n, i.Run, want)
		}
	}
}

func TestConditionsOfPlansThatMakeNoSenseAreRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for condition, field := range map[string]string{"held &&": "where", `error.typ == "x"`: "where", " ": "where", "amount.minor": "where"} {
		var wrong *FieldError
		if _, err := r.PlanBulk(context.Background(), planWhere(BulkFork, condition)); !errors.As(err, &wrong) || wrong.Field != field {
			t.Errorf("%q: %v", condition, err)
		}
	}
	q := allLetters(BulkFork)
	q.Where = "held"
	var wrong *FieldError
	if _, err := r.PlanBulk(context.Background(), q); !errors.As(err, &wrong) || wrong.Field != "all" {
		t.Errorf("all beside a condition: %v", err)
	}
}

// A letter is planned as it was when it met the condition: what anybody does with it
// behind that look leaves it alone.
func TestALetterThatChangesAfterTheScanIsLeftAlone(t *testing.T) {
	t.Parallel()
	r := newRig(t).startWorkers()
	r.deadLetters(0, 3, func(Call) Answer { return refused() })
	like := r.mustPlan(allLetters(BulkFork))
	var moved background.RunID
	plan, items := r.planInChunks(like, LetterFilter{}, 2, 0, func(ctx context.Context, l postgres.FoundLetter) (bool, error) {
		if !moved.IsZero() {
			return !l.Review, nil
		}
		moved = l.Run.ID
		yes := true
		_, err := r.Mark(ctx, "acme", moved, MarkRequest{Actor: "user:eve", Reason: "wait", ManualReviewRequired: &yes})
		return !l.Review, err
	})
	if len(items) != 3 || items[0].Run != moved {
		t.Fatalf("%+v", items)
	}
	if b := r.runPlan(plan); b.Progress.Done != 2 || b.Progress.PlanStale != 1 {
		t.Errorf("%+v", b.Progress)
	}
	if stale := r.bulkItems(plan.ID, "plan_stale"); len(stale) != 1 || stale[0].Run != moved {
		t.Errorf("%+v", stale)
	}
	r.untilNoneLive()
	r.mustAudit()
}
